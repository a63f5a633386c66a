from __future__ import annotations

import pytest

from gapless.errors import VolumeFailedError, VolumeFullError
from gapless.spi import VolumeIdentity
from gapless_sim.world.disk import Disk, memory_disk

IDENTITY = VolumeIdentity("net", "node")


@pytest.fixture
def disk() -> Disk:
    return memory_disk()


def write(disk: Disk, *indexes: int) -> None:
    volume = disk.open(IDENTITY)
    for index in indexes:
        volume.stream("log").put(index, b"x")
        volume.write()


def kept(disk: Disk) -> list[int]:
    return [index for index, _ in disk.open(IDENTITY).stream("log").read(0, 99)]


def test_the_power_takes_what_was_not_synced_but_the_first_so_many(disk: Disk) -> None:
    write(disk, 1, 2, 3)
    disk.cut_power(keep=1)

    assert kept(disk) == [1]


def test_the_end_of_the_process_takes_nothing(disk: Disk) -> None:
    write(disk, 1, 2, 3)
    disk.kill()

    assert kept(disk) == [1, 2, 3]


def test_a_sync_covers_what_was_written_when_it_began(disk: Disk) -> None:
    volume = disk.open(IDENTITY)
    for index in (1, 2):
        volume.stream("log").put(index, b"x")
        volume.write()
    began = disk.written
    volume.stream("log").put(3, b"x")
    volume.write()
    disk.sync(volume, began)

    assert disk.unsynced == 1
    disk.cut_power(0)
    assert kept(disk) == [1, 2]


def test_what_fails_fails_until_it_is_healed(disk: Disk) -> None:
    volume = disk.open(IDENTITY)
    disk.fail("full", "writes")
    volume.stream("log").put(1, b"x")
    with pytest.raises(VolumeFullError):
        volume.write()
    disk.heal()
    disk.kill()
    volume = disk.open(IDENTITY)
    disk.fail("sync", "lost")
    volume.stream("log").put(1, b"x")
    volume.write()
    with pytest.raises(VolumeFailedError):
        disk.sync(volume, disk.written)


def test_a_record_that_cannot_be_read_is_there_until_it_is_given_up(disk: Disk) -> None:
    write(disk, 1, 2, 3)
    disk.kill()
    disk.spoil("log", 2)
    disk.heal()
    before = disk.spoilt

    assert disk.repair(IDENTITY) == [("log", 1, 2)]
    assert (before, disk.spoilt) == (True, False)
    volume = disk.open(IDENTITY)
    assert volume.stream("log").given_up == ((1, 2),)
    assert [index for index, _ in volume.stream("log").read(2, 99)] == [3]
