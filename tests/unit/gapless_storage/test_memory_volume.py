"""Volumes in memory, beside what the suite for all storages says of them."""

from __future__ import annotations

import pytest

from gapless.errors import RecordsDamagedError, VolumeFailedError, VolumeLockedError
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
