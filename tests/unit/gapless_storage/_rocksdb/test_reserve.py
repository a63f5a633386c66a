"""Room that is kept aside, and what becomes of it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from gapless_storage._rocksdb.reserve import Reserve

SIZE = 1000


class Rig:
    """A reserve on a disk that has as much room as a test says, when the reserve is not there."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room = 10 * SIZE
        self.file = directory / "reserve"
        self.reserve = Reserve(directory, SIZE)
        monkeypatch.setattr(self.reserve, "_disk_free", lambda: max(0, self.room - self.has))

    @property
    def has(self) -> int:
        return self.file.stat().st_size if self.file.exists() else 0


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    rig = Rig(tmp_path, monkeypatch)
    rig.reserve.take()
    return rig


def test_it_takes_room_and_only_its_owner_may_read_it(rig: Rig) -> None:
    assert rig.file.stat().st_blocks * 512 >= SIZE
    assert os.name == "nt" or rig.file.stat().st_mode & 0o777 == 0o600


def test_what_it_lacks_is_not_free(rig: Rig) -> None:
    whole = rig.reserve.free_bytes
    rig.reserve.give_up()

    assert whole == rig.reserve.free_bytes == 9 * SIZE


def test_it_is_given_up_when_hardly_anything_is_left_and_taken_back_when_that_lasts(rig: Rig) -> None:
    seen = []
    for room in (1500, 1250, 1249, 1499, 1500, 1250):
        rig.room = room
        rig.reserve.tend()
        seen.append(rig.has)

    assert seen == [SIZE, SIZE, 0, 0, SIZE, SIZE]


def test_a_volume_is_opened_with_it_when_there_is_less_room_than_that(rig: Rig) -> None:
    for room, left in ((2000, SIZE), (1999, 0)):
        rig.room = room
        rig.reserve.give_up_if_needed()

        assert rig.has == left


def test_what_gives_space_back_takes_it_and_keeps_it_till_it_is_done(rig: Rig) -> None:
    rig.room = 1600
    with rig.reserve.used_for(1600) as enough, rig.reserve.used_for(1601) as too_little:
        rig.reserve.tend()
        within = rig.has
    rig.reserve.tend()

    assert (enough, too_little) == (True, False)
    assert within == 0
    assert rig.has == SIZE


def test_another_size_is_the_one_from_now_on(rig: Rig, tmp_path: Path) -> None:
    for size in (300, 5000, 0):
        Reserve(tmp_path, size).tend()

        assert rig.has == size


def test_without_room_nothing_is_left_of_an_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reserve = Reserve(tmp_path, SIZE)

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(reserve, "_allocate", fail)

    with pytest.raises(OSError, match="No space left"):
        reserve.take()

    assert not (tmp_path / "reserve").exists()
