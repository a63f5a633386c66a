"""The disk that is rebuilt from a journal: what each cut may leave, and what it must."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from integration.io_shim import Call, Kind
from power.disk import CUTS, Case, Disk, Image, changes, put, take


class Journal:
    """Calls, one after the other."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def add(self, kind: Kind, target: str, data: bytes = b"", offset: int = -1) -> None:
        """A call that begins and ends before the next one begins."""
        place = 2 * len(self.calls)
        self.calls.append(Call(kind, target, place, place + 1, len(data), 0, data, offset))

    def left(self, cut: str, seed: int = 0) -> Image:
        """What a cut leaves now."""
        disk = Disk()
        for call in changes(self.calls):
            disk.apply(call)
        return CUTS[cut](disk, Random(seed))


@pytest.fixture
def journal() -> Journal:
    """A file with two writes, of which the first is synced, and so is its name."""
    journal = Journal()
    journal.add(Kind.MKDIR, "d")
    journal.add(Kind.OPEN, "d/f")
    journal.add(Kind.WRITE, "d/f", b"first", 0)
    journal.add(Kind.SYNC, "d/f")
    journal.add(Kind.SYNC, "d")
    journal.add(Kind.SYNC, ".")
    journal.add(Kind.WRITE, "d/f", b"second", 5)
    return journal


@pytest.mark.parametrize(
    ("cut", "content"),
    [("all", b"firstsecond"), ("least", b"first"), ("names", b"first"), ("contents", b"firstsecond")],
)
def test_what_is_not_synced_may_be_there_or_not(journal: Journal, cut: str, content: bytes) -> None:
    assert journal.left(cut) == {"d": None, "d/f": content}


@pytest.mark.parametrize("cut", CUTS)
def test_no_cut_takes_what_was_synced(journal: Journal, cut: str) -> None:
    left = [journal.left(cut, seed)["d/f"] or b"" for seed in range(30)]

    assert all(content.startswith(b"first") for content in left)


@pytest.mark.parametrize("cut", ["torn", "tails"])
def test_a_write_is_torn_anywhere_with_anything_behind_it(journal: Journal, cut: str) -> None:
    left = [journal.left(cut, seed)["d/f"] or b"" for seed in range(60)]

    assert len({len(content) for content in left}) >= 4
    assert any(b"\0" in content for content in left)
    assert any(content.startswith(b"firstse") for content in left)


def test_a_write_that_ended_after_a_sync_began_is_not_covered() -> None:
    open_call = Call(Kind.OPEN, "f", 0, 1, 3, 0, b"", 0)
    write = Call(Kind.WRITE, "f", 2, 4, 1, 0, b"x", 0)
    sync = Call(Kind.SYNC, "f", 3, 5, 0, 0, b"")
    disk = Disk()
    for call in (open_call, write, sync):
        disk.apply(call)

    assert CUTS["names"](disk, Random(0)) == {"f": b""}


def test_a_synced_file_without_a_synced_name_is_not_there(journal: Journal) -> None:
    journal.add(Kind.OPEN, "d/new")
    journal.add(Kind.WRITE, "d/new", b"x", 0)
    journal.add(Kind.SYNC, "d/new")

    assert "d/new" not in journal.left("least")
    assert journal.left("names")["d/new"] == b"x"


def test_a_rename_is_atomic_and_takes_its_content_along(journal: Journal) -> None:
    journal.add(Kind.OPEN, "d/f.new")
    journal.add(Kind.WRITE, "d/f.new", b"other", 0)
    journal.add(Kind.SYNC, "d/f.new")
    journal.add(Kind.RENAME, "d/f.new\nd/f")
    left = [journal.left("prefix", seed) for seed in range(60)]

    assert {content["d/f"] for content in left} == {b"first", b"firstsecond", b"other"}
    assert all(content["d/f"] != b"other" for content in left if "d/f.new" in content)
    assert journal.left("least")["d/f"] == b"first"
    assert journal.left("all") == {"d": None, "d/f": b"other"}


def test_names_change_in_order(journal: Journal) -> None:
    for name in ("one", "two", "three"):
        journal.add(Kind.OPEN, f"d/{name}")
    left = [journal.left("prefix", seed) for seed in range(60)]

    assert all("d/one" in image for image in left if "d/two" in image)
    assert any("d/one" in image and "d/three" not in image for image in left)


def test_a_removed_file_may_come_back(journal: Journal) -> None:
    journal.add(Kind.UNLINK, "d/f")

    assert "d/f" not in journal.left("all")
    assert journal.left("least")["d/f"] == b"first"


def test_a_file_grows_and_shrinks(journal: Journal) -> None:
    journal.add(Kind.TRUNCATE, "d/f", offset=3)
    assert journal.left("all")["d/f"] == b"fir"
    journal.add(Kind.TRUNCATE, "d/f", offset=5)
    journal.add(Kind.OPEN, "d/f", offset=0)
    assert journal.left("all")["d/f"] == b"fir\0\0"
    journal.add(Kind.OPEN, "d/f", offset=1)
    assert journal.left("all")["d/f"] == b""


def test_pages_go_each_for_itself(journal: Journal) -> None:
    journal.add(Kind.WRITE, "d/f", b"x" * 20_000, 11)
    left = [journal.left("pages", seed)["d/f"] or b"" for seed in range(20)]

    assert {len(content) for content in left} == {20_011}
    assert any(b"\0" in content and content.endswith(b"x") for content in left)


def test_an_image_is_put_and_taken(tmp_path: Path, journal: Journal) -> None:
    image = journal.left("all")
    put(image, tmp_path / "disk")

    assert take(tmp_path / "disk") == image


def test_a_case_is_read_as_it_was_written() -> None:
    assert Case.parse(str(Case(12, "torn", 3))) == Case(12, "torn", 3)
