"""The disk in memory and its volume, beside what the suite for all storages says: what may happen, and what is then."""

from __future__ import annotations

import pytest

from gapless.errors import (
    RecordsDamagedError,
    VolumeCorruptError,
    VolumeFailedError,
    VolumeForeignError,
    VolumeFullError,
    VolumeLockedError,
)
from gapless.spi import VolumeIdentity
from gapless_storage.memory import MemoryDisk, MemoryVolume
from gapless_testing.storage import IDENTITY
from gapless_testing.storage.crashes import newest_whole_batch, write_batch


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def written(disk: MemoryDisk, synced: int, unsynced: int) -> MemoryVolume:
    """A volume with that many batches."""
    volume = disk.open(IDENTITY)
    for number in range(1, synced + unsynced + 1):
        write_batch(volume, number)
        if number == synced:
            volume.sync()
    return volume


# ------------------------------------------------------------------------------------------ crashing


@pytest.mark.parametrize(("keep", "expected"), [(0, 3), (1, 4), (2, 5), (3, 6), (99, 6)])
def test_a_crash_keeps_as_many_unsynced_batches_as_asked(disk: MemoryDisk, keep: int, expected: int) -> None:
    written(disk, synced=3, unsynced=3)

    disk.crash(keep)

    assert newest_whole_batch(disk.open(IDENTITY)) == expected


def test_a_crash_brings_back_what_was_there_before(disk: MemoryDisk) -> None:
    volume = written(disk, synced=3, unsynced=0)
    volume.table("t").put(b"replaced", b"old")
    volume.table("t").put(b"deleted", b"old")
    volume.write()
    volume.sync()
    sizes = volume.stream("left").size
    volume.table("t").put(b"replaced", b"new")
    volume.table("t").put(b"added", b"new")
    volume.table("t").delete(b"deleted")
    volume.stream("left").chop(2)
    volume.stream("left").put(9, b"nine")
    volume.write()

    disk.crash()
    volume = disk.open(IDENTITY)

    assert list(volume.table("t").scan()) == [(b"deleted", b"old"), (b"replaced", b"old")]
    assert (volume.stream("left").first, volume.stream("left").last) == (0, 3)
    assert volume.stream("left").size == sizes
    assert volume.reclaimable == 0


# -------------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize(("outcome", "expected"), [("kept", 3), ("lost", 1)])
def test_a_failed_sync_keeps_or_loses(disk: MemoryDisk, outcome: str, expected: int) -> None:
    volume = written(disk, synced=1, unsynced=2)
    disk.faults.sync = outcome  # type: ignore[assignment]

    with pytest.raises(VolumeFailedError):
        volume.sync()
    seen_by_readers = newest_whole_batch(volume)
    volume.close()

    assert seen_by_readers == 3
    assert newest_whole_batch(disk.open(IDENTITY)) == expected
    assert disk.faults.sync == ""


@pytest.mark.parametrize(("outcome", "expected"), [("kept", 2), ("lost", 1)])
def test_a_failed_write_may_come_back(disk: MemoryDisk, outcome: str, expected: int) -> None:
    volume = written(disk, synced=1, unsynced=0)
    disk.faults.write = outcome  # type: ignore[assignment]

    with pytest.raises(VolumeFailedError):
        write_batch(volume, 2)
    seen_by_readers = newest_whole_batch(volume)
    volume.close()

    assert seen_by_readers == 1
    assert newest_whole_batch(disk.open(IDENTITY)) == expected


def test_a_lost_batch_takes_those_behind_it(disk: MemoryDisk) -> None:
    """There is no hole, not even after a crash that would have kept more."""
    volume = written(disk, synced=1, unsynced=3)
    disk.faults.sync = "lost"
    with pytest.raises(VolumeFailedError):
        volume.sync()

    disk.crash(keep=3)

    assert newest_whole_batch(disk.open(IDENTITY)) == 1


def test_no_later_sync_brings_back_what_one_has_lost(disk: MemoryDisk) -> None:
    volume = written(disk, synced=1, unsynced=2)
    disk.faults.sync = "lost"
    with pytest.raises(VolumeFailedError):
        volume.sync()

    disk.sync(disk.written)  # what a volume would do that goes on
    disk.crash()

    assert disk.written == 2
    with pytest.raises(VolumeCorruptError, match="were durable"):
        disk.open(IDENTITY)


def test_a_full_disk_is_full_until_there_is_room(disk: MemoryDisk) -> None:
    volume = written(disk, synced=1, unsynced=0)
    disk.faults.full = True
    with pytest.raises(VolumeFullError):
        write_batch(volume, 2)
    disk.faults.full = False
    with pytest.raises(VolumeFullError):
        write_batch(volume, 3)
    volume.close()

    volume = disk.open(IDENTITY)
    write_batch(volume, 2)
    assert newest_whole_batch(volume) == 2


def test_a_lying_disk_loses_what_it_said_was_synced(disk: MemoryDisk) -> None:
    disk.faults.lying = True
    volume = written(disk, synced=3, unsynced=0)
    volume.close()
    disk.open(IDENTITY)

    disk.crash()

    assert newest_whole_batch(disk.open(IDENTITY)) == 0


def test_a_stranger_is_told_whose_it_is(disk: MemoryDisk) -> None:
    disk.open(IDENTITY).close()

    with pytest.raises(VolumeForeignError, match="test-node"):
        disk.open(VolumeIdentity("", "other"))


@pytest.mark.parametrize("end", ["kill", "crash"])
def test_a_kill_takes_nothing_that_was_written(disk: MemoryDisk, end: str) -> None:
    zombie = written(disk, synced=1, unsynced=2)
    getattr(disk, end)()

    with pytest.raises(VolumeFailedError):
        zombie.sync()
    assert disk.unsynced == (2 if end == "kill" else 0)
    assert newest_whole_batch(disk.open(IDENTITY)) == (3 if end == "kill" else 1)


def test_after_a_kill_the_power_may_still_be_cut(disk: MemoryDisk) -> None:
    written(disk, synced=1, unsynced=3)
    disk.kill()
    disk.crash(keep=1)

    assert newest_whole_batch(disk.open(IDENTITY)) == 2


def test_what_an_opening_found_no_power_cut_takes(disk: MemoryDisk) -> None:
    written(disk, synced=1, unsynced=2)
    disk.kill()
    disk.open(IDENTITY)
    disk.crash()

    assert newest_whole_batch(disk.open(IDENTITY)) == 3


def test_a_sync_with_nothing_to_do_does_not_fail(disk: MemoryDisk) -> None:
    """It touches no disk; the next one does."""
    volume = written(disk, synced=1, unsynced=0)
    disk.faults.sync = "kept"
    disk.faults.full_syncs = True
    volume.sync()

    write_batch(volume, 2)
    with pytest.raises(VolumeFullError):
        volume.sync()
    assert disk.faults.sync == "kept"


def test_an_opening_writes_and_syncs(disk: MemoryDisk) -> None:
    """What a write or a sync may meet, it may meet; the next one finds all that was there."""
    written(disk, synced=1, unsynced=1).close()
    disk.faults.write = "kept"
    disk.faults.sync = "kept"
    for expected in (VolumeFailedError, VolumeFailedError):
        with pytest.raises(expected):
            disk.open(IDENTITY)
    disk.faults.full = True
    with pytest.raises(VolumeFullError):
        disk.open(IDENTITY)
    disk.faults.full = False

    assert newest_whole_batch(disk.open(IDENTITY)) == 2


@pytest.mark.parametrize(("outcome", "expected"), [("kept", 3), ("lost", 1)])
def test_an_opening_that_fails_may_lose_what_was_not_synced(disk: MemoryDisk, outcome: str, expected: int) -> None:
    written(disk, synced=1, unsynced=2)
    disk.kill()
    disk.faults.sync = outcome  # type: ignore[assignment]
    with pytest.raises(VolumeFailedError):
        disk.open(IDENTITY)

    assert newest_whole_batch(disk.open(IDENTITY)) == expected


def test_nothing_is_made_on_a_full_disk(disk: MemoryDisk) -> None:
    disk.faults.full = True
    with pytest.raises(VolumeFullError):
        disk.open(VolumeIdentity("n", "somebody else"))
    disk.faults.full = False

    assert disk.open(IDENTITY).created


def test_a_fence_that_outlives_a_lie_tells_it(disk: MemoryDisk) -> None:
    volume = written(disk, synced=1, unsynced=0)
    disk.faults.lying = True
    write_batch(volume, 2)
    volume.sync()
    disk.crash(fence=True)

    with pytest.raises(VolumeCorruptError, match="are missing, and were durable"):
        disk.open(IDENTITY)


# -------------------------------------------------------------------------------------------- copies


def test_a_copy_is_as_it_was(disk: MemoryDisk) -> None:
    volume = written(disk, synced=1, unsynced=1)
    volume.stream("left").chop(1)
    volume.write()
    copied = disk.copy()
    write_batch(volume, 3)
    other = copied.open(IDENTITY)

    assert (other.stream("left").first, other.stream("left").last) == (1, 2)
    assert other.reclaimable == 1
    assert [key for key, _ in other.table("left").scan()] == [b"000001", b"000002"]
    assert other.created is False
    assert [key for key, _ in volume.table("left").scan()] == [b"000001", b"000002", b"000003"]


def test_two_copies_do_not_know_of_each_other(disk: MemoryDisk) -> None:
    volume = written(disk, synced=1, unsynced=0)
    other = disk.copy().open(IDENTITY)
    write_batch(volume, 2)
    write_batch(other, 2)
    write_batch(other, 3)

    assert (newest_whole_batch(volume), newest_whole_batch(other)) == (2, 3)


def test_an_old_copy_of_everything_opens(disk: MemoryDisk) -> None:
    volume = written(disk, synced=2, unsynced=0)
    old = disk.copy()
    write_batch(volume, 3)
    volume.close()
    for _ in range(2):
        disk.restore(old)
        volume = disk.open(IDENTITY)
        assert newest_whole_batch(volume) == 2
        write_batch(volume, 3)
        volume.close()


def test_an_old_copy_of_the_database_is_refused_until_the_right_one_is_back(disk: MemoryDisk) -> None:
    volume = written(disk, synced=2, unsynced=0)
    old = disk.copy()
    write_batch(volume, 3)
    volume.close()
    new = disk.copy()
    disk.restore(old, "database")
    for _ in range(2):
        with pytest.raises(VolumeCorruptError, match="batches 4 to 4 are missing"):
            disk.open(IDENTITY)
    disk.restore(new, "database")

    assert newest_whole_batch(disk.open(IDENTITY)) == 3


@pytest.mark.parametrize(("openings", "opens"), [(0, True), (1, True), (2, False)])
def test_an_old_fence_may_be_one_opening_behind(disk: MemoryDisk, openings: int, opens: bool) -> None:
    written(disk, synced=1, unsynced=0)
    old = disk.copy()
    disk.kill()
    for _ in range(openings):
        disk.open(IDENTITY).close()
    disk.restore(old, "fence")

    if opens:
        assert newest_whole_batch(disk.open(IDENTITY)) == 1
    else:
        with pytest.raises(VolumeCorruptError, match="different copies"):
            disk.open(IDENTITY)


def test_a_database_that_went_on_elsewhere_is_refused(disk: MemoryDisk) -> None:
    """Though it is longer than what was durable here."""
    written(disk, synced=1, unsynced=0).close()
    other = disk.copy()
    disk.open(IDENTITY).close()
    volume = other.open(IDENTITY)
    for number in range(2, 9):
        write_batch(volume, number)
    volume.close()
    disk.restore(other, "database")

    with pytest.raises(VolumeCorruptError, match="different copies"):
        disk.open(IDENTITY)


def test_a_wiped_disk_is_new(disk: MemoryDisk) -> None:
    written(disk, synced=2, unsynced=0).close()
    disk.faults.unreadable.add(("left", 1))
    disk.wipe()
    volume = disk.open(VolumeIdentity("another", "owner"))

    assert volume.created
    assert newest_whole_batch(volume) == 0
    assert disk.faults.unreadable == set()


@pytest.mark.parametrize("part", ["database", "fence"])
def test_without_a_part_nothing_opens(disk: MemoryDisk, part: str) -> None:
    written(disk, synced=2, unsynced=0).close()
    copied = disk.copy()
    disk.wipe(part)  # type: ignore[arg-type]
    with pytest.raises(VolumeCorruptError, match="missing or damaged"):
        disk.open(IDENTITY)
    disk.restore(copied, part)  # type: ignore[arg-type]

    assert newest_whole_batch(disk.open(IDENTITY)) == 2


def test_a_part_alone_belongs_to_nobody(disk: MemoryDisk) -> None:
    written(disk, synced=2, unsynced=0).close()
    other = MemoryDisk()
    other.restore(disk, "database")

    with pytest.raises(VolumeForeignError, match="not whose it is"):
        other.open(IDENTITY)


def test_what_is_open_stays_where_it_is(disk: MemoryDisk) -> None:
    written(disk, synced=1, unsynced=0)
    copied = disk.copy()

    with pytest.raises(VolumeLockedError):
        disk.restore(copied)
    with pytest.raises(VolumeLockedError):
        disk.wipe()


def test_what_a_failed_write_left_goes_with_what_lies_before_it(disk: MemoryDisk) -> None:
    """It comes behind that in the log, and there is no hole. Found by the simulator (local 1835)."""
    volume = written(disk, synced=1, unsynced=1)
    disk.faults.write = "kept"
    with pytest.raises(VolumeFailedError):
        write_batch(volume, 3)
    disk.faults.sync = "lost"
    volume.close()
    with pytest.raises(VolumeFailedError):
        disk.open(IDENTITY)

    assert newest_whole_batch(disk.open(IDENTITY)) == 1


# ---------------------------------------------------------------------------------------- the volume


def test_the_volume_of_a_crash_is_dead(disk: MemoryDisk) -> None:
    zombie = written(disk, synced=1, unsynced=0)
    disk.crash()
    volume = disk.open(IDENTITY)

    with pytest.raises(VolumeFailedError):
        write_batch(zombie, 2)
    with pytest.raises(VolumeFailedError):
        zombie.sync()
    with pytest.raises(VolumeFailedError):
        zombie.reclaim()
    zombie.close()

    write_batch(volume, 2)
    with pytest.raises(VolumeLockedError):
        disk.open(IDENTITY)
    assert newest_whole_batch(volume) == 2


def test_a_sync_that_takes_time_covers_what_was_written_when_it_began(disk: MemoryDisk) -> None:
    volume = written(disk, synced=0, unsynced=3)
    begun = disk.written
    write_batch(volume, 4)
    write_batch(volume, 5)
    begun_later = disk.written
    write_batch(volume, 6)

    volume.sync(begun_later)
    volume.sync(begun)
    assert disk.unsynced == 1
    disk.crash()

    assert newest_whole_batch(disk.open(IDENTITY)) == 5


def test_records_whose_removal_is_not_durable_are_not_let_go(disk: MemoryDisk) -> None:
    volume = written(disk, synced=5, unsynced=0)
    volume.stream("left").chop(3)
    volume.write()

    assert volume.reclaim() == 0
    volume.sync()
    assert volume.reclaim() == 3
    assert volume.reclaimable == 0


def test_an_unreadable_record_is_not_left_out(disk: MemoryDisk) -> None:
    volume = written(disk, synced=5, unsynced=0)
    disk.faults.unreadable.add(("left", 3))

    assert [index for index, _ in volume.stream("left").read(0, 5)] == [1, 2]
    with pytest.raises(RecordsDamagedError, match="left: the records between 2 and 3 ") as raised:
        volume.stream("left").read(2, 5)
    assert [index for index, _ in volume.stream("left").read(raised.value.upto, 5)] == [4, 5]
    assert [index for index, _ in volume.stream("right").read(0, 5)] == [1, 2, 3, 4, 5]


def test_a_disk_says_what_it_was_made_with() -> None:
    volume = MemoryDisk(durable=True, free_bytes=1000).open(IDENTITY)

    assert volume.capabilities.durable is True
    assert volume.free_bytes == 1000
