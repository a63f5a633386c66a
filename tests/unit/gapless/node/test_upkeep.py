"""The watch over the disk (S11)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from gapless.core.alarms import Alarm, AlarmCode
from gapless.errors import VolumeAbsentError, VolumeFailedError
from gapless.node.gauges import FREE_BYTES, RECLAIMABLE_BYTES, SPACE_LOW
from gapless.node.heap import trimmer
from gapless.node.upkeep import IDLE_LOOKS, RECLAIM_BYTES, RECLAIM_BYTES_IDLE, Upkeep
from volumes import FakeVolume


class Rig:
    """A watch and what it said."""

    def __init__(self) -> None:
        self.volume = FakeVolume()
        self.space: list[bool] = []
        self.alarms: list[Alarm] = []
        self.failures: list[BaseException] = []
        self.closed = 0
        self.looks_elsewhere = 0
        self.upkeep = Upkeep(
            self.volume,
            1000,
            self._on_space,
            self.alarms.append,
            self.failures.append,
            lambda: self.closed,
            self._look_elsewhere,
        )

    def _on_space(self, *, low: bool) -> None:
        self.space.append(low)

    def _look_elsewhere(self) -> None:
        self.looks_elsewhere += 1

    async def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.upkeep.look()
            await self.upkeep.idle()


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = Rig()
    yield rig
    rig.upkeep.stop()
    await rig.upkeep.idle()


async def test_low_space_is_said_once_and_again_when_it_is_over(rig: Rig) -> None:
    for free in (1000, 999, 998, 1000, 2000):
        rig.volume.free_bytes = free
        await rig.look()

    assert rig.space == [True, False]
    assert [(alarm.code, alarm.over) for alarm in rig.alarms] == [
        (AlarmCode.DISK_LOW, False),
        (AlarmCode.DISK_LOW, True),
    ]
    assert "only 999 bytes are left on the disk" in rig.alarms[0].text


async def test_a_volume_that_knows_no_disk_is_never_low(rig: Rig) -> None:
    await rig.look(3)

    assert rig.space == []


async def test_each_look_goes_elsewhere_too(rig: Rig) -> None:
    await rig.look(3)

    assert rig.looks_elsewhere == 3


async def test_much_is_given_back_at_once_and_little_is_not(rig: Rig) -> None:
    rig.volume.reclaimable = RECLAIM_BYTES - 1
    await rig.look(3)
    assert rig.volume.calls == []

    rig.volume.reclaimable = RECLAIM_BYTES
    await rig.look()

    assert rig.volume.calls == ["reclaim"]


async def test_little_is_given_back_when_it_has_not_grown_for_a_while(rig: Rig) -> None:
    rig.volume.reclaimable = RECLAIM_BYTES_IDLE
    await rig.look(IDLE_LOOKS)
    assert rig.volume.calls == []

    await rig.look()

    assert rig.volume.calls == ["reclaim"]


async def test_little_is_given_back_when_space_is_low(rig: Rig) -> None:
    rig.volume.reclaimable = RECLAIM_BYTES_IDLE
    rig.volume.free_bytes = 5
    await rig.look()

    assert rig.volume.calls == ["reclaim"]


async def test_one_reclaim_runs_at_a_time(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = asyncio.Event()
    loop = asyncio.get_running_loop()
    started: list[int] = []

    def reclaim() -> int:
        started.append(1)
        asyncio.run_coroutine_threadsafe(gate.wait(), loop).result()
        return 0

    monkeypatch.setattr(rig.volume, "reclaim", reclaim)
    rig.volume.reclaimable = RECLAIM_BYTES
    rig.upkeep.look()
    rig.upkeep.look()
    await asyncio.sleep(0.01)
    assert started == [1]
    gate.set()
    await rig.upkeep.idle()


@pytest.mark.parametrize("stopped", [False, True])
async def test_a_reclaim_that_fails_is_a_failure_of_the_storage(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    def reclaim() -> int:
        raise VolumeFailedError("EIO")

    monkeypatch.setattr(rig.volume, "reclaim", reclaim)
    rig.volume.reclaimable = RECLAIM_BYTES
    rig.upkeep.look()
    if stopped:
        rig.upkeep.stop()
    await asyncio.sleep(0.02)

    assert [str(error) for error in rig.failures] == ([] if stopped else ["EIO"])


async def test_a_volume_that_cannot_be_asked_has_failed(rig: Rig) -> None:
    class Broken(FakeVolume):
        """Its disk is gone."""

        @property
        def free_bytes(self) -> int | None:
            raise OSError("no such device")

        @free_bytes.setter
        def free_bytes(self, value: int | None) -> None:
            pass

    rig.upkeep._volume = Broken()
    await rig.look()

    assert [str(error) for error in rig.failures] == ["no such device"]


async def test_it_looks_every_second_until_it_is_stopped(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gapless.node.upkeep.INTERVAL", 0.005)
    rig.upkeep.start()
    rig.volume.free_bytes = 5
    await asyncio.sleep(0.05)
    assert rig.space == [True]

    rig.upkeep.stop()
    rig.volume.free_bytes = 5000
    await asyncio.sleep(0.05)

    assert rig.space == [True]
    assert list(rig.upkeep.gauges()) == [FREE_BYTES.gauge(5000), SPACE_LOW.gauge(1), RECLAIMABLE_BYTES.gauge(0)]


async def test_a_volume_is_tended_at_every_look_and_missed_when_it_is_gone(rig: Rig) -> None:
    await rig.look(3)
    rig.volume.tend_error = VolumeAbsentError("unmounted")
    rig.volume.free_bytes = 5
    await rig.look()

    assert rig.volume.tended == 3
    assert [str(error) for error in rig.failures] == ["unmounted"]
    assert rig.space == []  # what is there instead is somebody else's


async def test_without_a_byte_left_space_is_low_whatever_is_configured(rig: Rig) -> None:
    rig.upkeep._min_free_bytes = 0
    for free in (1, 0, 1):
        rig.volume.free_bytes = free
        await rig.look()

    assert rig.space == [True, False]


async def test_space_is_looked_at_before_anybody_is_served(rig: Rig) -> None:
    rig.volume.free_bytes = 5
    rig.upkeep.start()

    assert rig.space == [True]


async def test_memory_is_given_back_once_after_connections_have_closed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    trims: list[int] = []
    monkeypatch.setattr(rig.upkeep, "_trim", lambda: trims.append(rig.closed))
    await rig.look()
    rig.closed = 3
    await rig.look(3)
    rig.closed = 4
    await rig.look()

    assert trims == [3, 4]


def test_the_c_library_takes_memory_back_or_is_left_alone() -> None:
    trimmer()()
