"""The disk in memory, beside what the suite for all storages says and what a real disk shows (`sim.disk_scripts`)."""

from __future__ import annotations

import pytest

from gapless.errors import (
    VolumeFailedError,
    VolumeFullError,
    VolumeLockedError,
)
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


# -------------------------------------------------------------------------------------------- faults


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


def test_a_disk_says_what_it_was_made_with() -> None:
    volume = MemoryDisk(durable=True, free_bytes=1000).open(IDENTITY)

    assert volume.capabilities.durable is True
    assert volume.free_bytes == 1000
