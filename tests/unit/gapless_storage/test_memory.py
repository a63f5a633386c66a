"""The disk in memory: what a simulator does to it, and what the plugin is."""

from __future__ import annotations

import pytest

from gapless.errors import (
    ConfigurationError,
    VolumeCorruptError,
    VolumeFailedError,
    VolumeForeignError,
    VolumeFullError,
    VolumeLockedError,
)
from gapless.spi import VolumeIdentity
from gapless.testing.storage import IDENTITY
from gapless.testing.storage.crashes import newest_whole_batch, write_batch
from gapless_storage import memory
from gapless_storage.memory import MemoryDisk, MemoryVolume, open_storage


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


def test_an_unreadable_record_is_not_left_out(disk: MemoryDisk) -> None:
    volume = written(disk, synced=5, unsynced=0)
    disk.faults.unreadable.add(("left", 3))

    with pytest.raises(VolumeCorruptError, match="left: record 3"):
        volume.stream("left").read(0, 5)

    assert [index for index, _ in volume.stream("left").read(0, 2)] == [1, 2]
    assert [index for index, _ in volume.stream("right").read(0, 5)] == [1, 2, 3, 4, 5]


def test_a_disk_says_what_it_was_made_with() -> None:
    volume = MemoryDisk(durable=True, free_bytes=1000).open(IDENTITY)

    assert volume.capabilities.durable is True
    assert volume.free_bytes == 1000


# -------------------------------------------------------------------------------------------- plugin


def test_open_storage() -> None:
    """A named volume outlives its closing, a private one does not."""
    try:
        volume = open_storage("name", IDENTITY, {})
        write_batch(volume, 1)
        volume.close()
        volume = open_storage("name", IDENTITY, {})

        assert volume.capabilities.durable is False
        assert volume.created is False
        assert newest_whole_batch(volume) == 1
        assert memory.disk("name").unsynced == 0
        with pytest.raises(VolumeLockedError):
            open_storage("name", IDENTITY, {})
    finally:
        memory.forget("name")

    volume = open_storage("name", VolumeIdentity("", ""), {})
    assert volume.created is True
    memory.forget("name")


def test_private_volumes_have_nothing_in_common() -> None:
    one, other = open_storage("", IDENTITY, {}), open_storage("", VolumeIdentity("a", "b"), {})
    write_batch(one, 1)

    assert newest_whole_batch(other) == 0
    assert other.identity == VolumeIdentity("a", "b")


def test_it_has_no_options() -> None:
    with pytest.raises(ConfigurationError, match="'compression'"):
        open_storage("", IDENTITY, {"compression": "lz4"})


def test_a_stranger_is_told_whose_it_is(disk: MemoryDisk) -> None:
    disk.open(IDENTITY).close()

    with pytest.raises(VolumeForeignError, match="test-node"):
        disk.open(VolumeIdentity("", "other"))
