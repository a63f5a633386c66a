"""What counts in an archive, and what does not: manifests appear whole, in order, and once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gapless.errors import ArchiveError
from gapless_spark.pipelines.manifest import ArchiveFolder, Manifest, counting
from unit.gapless_spark.pipelines.archives import NETWORK, P, Q, add_batch, every_file, make_archive, tick


def batch(first: int, last: int, start: int = 0, end: int = 0) -> Manifest:
    return Manifest(first=first, batch=last, files=[], start={P: start}, end={P: end}, gaps=[], token="")


def test_an_archive_is_what_it_was_made_to_be(tmp_path: Path) -> None:
    made = make_archive(tmp_path / "a", ("x", "y.#"))
    read = ArchiveFolder(str(tmp_path / "a"))

    assert read.described() == made.described()
    assert (read.described().network, read.described().topics) == (NETWORK, ("x", "y.#"))
    assert (read.manifests(), read.last()) == ([], None)


def test_what_is_no_archive_is_said_to_be_none(tmp_path: Path) -> None:
    folder = ArchiveFolder(tmp_path)

    assert folder.description() is None
    with pytest.raises(ArchiveError, match=r"is no archive: there is no _gapless/archive\.json"):
        folder.described()


def test_nothing_is_made_an_archive_that_holds_something_else(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("")

    with pytest.raises(ArchiveError, match=r"not empty: there is thesis\.txt"):
        make_archive(tmp_path)
    with pytest.raises(ArchiveError, match="is there already"):
        make_archive(make_archive(tmp_path / "a").path)


def test_another_version_is_refused_and_a_garbled_file_named(tmp_path: Path) -> None:
    folder = make_archive(tmp_path)
    about = tmp_path / "_gapless" / "archive.json"
    about.write_bytes(about.read_bytes().replace(b'"version": 1', b'"version": 2'))
    with pytest.raises(ArchiveError, match="of version 2; this gapless reads version 1"):
        folder.described()
    about.write_text("{")
    with pytest.raises(ArchiveError, match=r"archive\.json is not what an archive has there"):
        folder.described()


def test_batches_are_in_order_and_end_where_the_next_begins(tmp_path: Path) -> None:
    folder = make_archive(tmp_path)
    for end in (5, 9, 12):
        add_batch(folder, {P: end}, {P: range(end - 2, end)})
    found = folder.manifests()

    assert [each.batch for each in found] == [0, 1, 2]
    assert [(each.start[P], each.end[P]) for each in found] == [
        (tick(0), tick(5)),
        (tick(5), tick(9)),
        (tick(9), tick(12)),
    ]
    assert [each.events for each in found] == [2, 2, 2]
    assert folder.last() == found[-1]


def test_of_two_that_commit_a_batch_one_succeeds(tmp_path: Path) -> None:
    folder = make_archive(tmp_path)
    first = add_batch(folder, {P: 5}, {P: [1]})

    with pytest.raises(ArchiveError, match="somebody else writes to this archive"):
        folder.commit(batch(0, 0))
    assert folder.manifests() == [first]


def test_a_file_system_without_links_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", link)
    test_of_two_that_commit_a_batch_one_succeeds(tmp_path)


def test_a_missing_batch_is_an_error(tmp_path: Path) -> None:
    folder = make_archive(tmp_path)
    for end in (5, 9, 12):
        add_batch(folder, {P: end}, {P: [end]})
    (tmp_path / "_gapless" / "batches" / "000000000001.json").unlink()

    with pytest.raises(ArchiveError, match="the manifest of batch 1 is missing"):
        folder.manifests()


def test_a_batch_that_does_not_follow_is_an_error(tmp_path: Path) -> None:
    folder = make_archive(tmp_path)
    folder.commit(batch(0, 0, 0, 5))
    folder.commit(batch(1, 1, 6, 9))

    with pytest.raises(ArchiveError, match="batch 1 begins at 6 of p@1, and the one before it ends at 5"):
        folder.manifests()


@pytest.mark.parametrize(
    ("there", "counts"),
    [
        ([(0, 0), (1, 1), (2, 2)], [(0, 0), (1, 1), (2, 2)]),
        ([(0, 0), (1, 1), (0, 2)], [(0, 2)]),
        ([(0, 0), (1, 2), (0, 2), (3, 3)], [(0, 2), (3, 3)]),
        ([(0, 1), (2, 4), (3, 3), (2, 2)], [(0, 1), (2, 4)]),
        ([], []),
    ],
)
def test_what_lies_within_another_does_not_count(there: list[tuple[int, int]], counts: list[tuple[int, int]]) -> None:
    assert [(each.first, each.batch) for each in counting([batch(*each) for each in there])] == counts


def test_manifests_are_read_again_when_a_compaction_takes_some_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_archive(tmp_path)
    for at in (1, 2, 3):
        folder.commit(batch(at - 1, at - 1, at - 1, at))
    listed = folder._manifest_files()
    listings = [listed]

    def listing() -> list[Path]:
        if listings:
            folder.replace(batch(0, 2, 0, 3))
            for path in listed[:2]:
                path.unlink()
            return listings.pop()
        return [listed[2]]

    monkeypatch.setattr(folder, "_manifest_files", listing)

    assert folder.manifests() == [batch(0, 2, 0, 3)]


def test_a_crash_while_a_manifest_is_written_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_archive(tmp_path)
    for step in ("fsync", "link"):
        with monkeypatch.context() as patched:
            patched.setattr(os, step, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                folder.commit(batch(0, 0))
        assert folder.manifests() == []
    folder.commit(batch(0, 0))
    assert folder.manifests() == [batch(0, 0)]


def test_what_was_replaced_stays_for_a_while_and_what_was_never_committed_goes(tmp_path: Path) -> None:
    folder = make_archive(tmp_path)
    for end in (5, 9):
        add_batch(folder, {P: end}, {P: [end]})
    old = every_file(folder)
    folder.replace(msgspec.structs.replace(folder.manifests()[-1], first=0, start={P: tick(0)}, files=[]))
    for name in ("batch=2", "compacted=0-0", "notes"):
        (folder.events / name / "date=2027-01-15").mkdir(parents=True)
        (folder.events / name / "date=2027-01-15" / "x.parquet").write_text("")

    assert folder.remove_replaced(older_than=0) == (0, 3)
    assert [each.batch for each in folder.manifests()] == [1]
    assert folder.remove_replaced(older_than=1e12) == (3, 0)
    assert every_file(folder) == {f"events/{name}/date=2027-01-15/x.parquet" for name in ("batch=2", "notes")}
    folder.remove_unfinished()
    assert every_file(folder) == {"events/notes/date=2027-01-15/x.parquet"}
    assert len(old) == 2


@pytest.mark.skipif(sys.platform == "win32", reason="no such locks there")
def test_a_lock_is_held_by_one_and_given_back_by_a_process_that_ends(tmp_path: Path) -> None:
    folder = ArchiveFolder(tmp_path)
    program = (
        "import sys; from gapless_spark.pipelines.manifest import ArchiveFolder\n"
        f"with ArchiveFolder({str(tmp_path)!r}).lock('archive'): print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(ArchiveError, match=f"another process is busy with it .archive, process {other.pid}"):
            with folder.lock("archive"):
                pass
        with folder.lock("compaction"):
            pass
        other.kill()
    with folder.lock("archive"):
        pass


def test_two_pubends_may_come_one_after_the_other(tmp_path: Path) -> None:
    folder = make_archive(tmp_path)
    add_batch(folder, {P: 5}, {P: [1]})
    add_batch(folder, {P: 7, Q: 3}, {P: [6], Q: [2]})

    assert folder.manifests()[1].start == {P: tick(5), Q: tick(0)}
