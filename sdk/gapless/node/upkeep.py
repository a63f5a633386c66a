"""Looks after the disk once a second: whether the volume is there, how much is left, what may be given back.

What closed connections have left in memory is given back at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from gapless.core.alarms import Alarm, AlarmCode
from gapless.node import gauges
from gapless.node.heap import trimmer

if TYPE_CHECKING:
    from gapless.core.gauges import Gauge
    from gapless.spi import LogVolume

INTERVAL = 1.0
"""Seconds between two looks."""
INTERVAL_NEAR = 0.1
NEAR_BYTES = 256 << 20
"""With less left it is looked more often: publishers can write that much in a second or two."""
RECLAIM_BYTES = 64 << 20
"""So much is given back at once."""
RECLAIM_BYTES_IDLE = 1 << 20
"""So much is given back when it has not grown for a while, or when space is low."""
IDLE_LOOKS = 60


class OnSpace(Protocol):
    """Hears that space is low, or no longer."""

    def __call__(self, *, low: bool) -> None:
        """Called when it changes."""


class Upkeep:
    """The watch over one volume."""

    def __init__(
        self,
        volume: LogVolume,
        min_free_bytes: int,
        on_space: OnSpace,
        on_alarm: Callable[[Alarm], None],
        on_failed: Callable[[BaseException], None],
        closed: Callable[[], int],
        look_elsewhere: Callable[[], None],
    ) -> None:
        """`on_failed` gets what `tend` or `reclaim` raised.

        `closed`: how many connections are over. What was held for one is given back to the system soon after its end.
        `look_elsewhere` is called after each look: for what else is to be looked after.
        """
        self._loop = asyncio.get_running_loop()
        self._volume = volume
        self._min_free_bytes = min_free_bytes
        self._on_space = on_space
        self._on_alarm = on_alarm
        self._on_failed = on_failed
        self._closed = closed
        self._look_elsewhere = look_elsewhere
        self._trimmed = 0
        """How many connections were over when memory was given back last."""
        self._trim = trimmer()
        self._low = False
        self._free: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tending: asyncio.Future[None] | None = None
        self._reclaiming: asyncio.Future[int] | None = None
        self._reclaimable = 0
        self._looks_unchanged = 0
        self._stopped = False

    def gauges(self) -> Iterator[Gauge]:
        """How much room there is; of what is free nothing where that is not known."""
        if (free := self._volume.free_bytes) is not None:
            yield gauges.FREE_BYTES.gauge(free)
        yield gauges.SPACE_LOW.gauge(self._low)
        yield gauges.RECLAIMABLE_BYTES.gauge(self._volume.reclaimable)

    def start(self) -> None:
        """Looks now, and every second from now on.

        How much space is left is known when it returns: nobody publishes into what a recovery needs.
        """
        try:
            self._look_at_space()
        except Exception as error:  # noqa: BLE001 - a volume that cannot be asked has failed
            self._on_failed(error)
            return
        self.look()

    def stop(self) -> None:
        """Looks no more; what runs in a thread goes on."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    async def idle(self) -> None:
        """Waits until no thread uses the volume."""
        while working := [work for work in (self._tending, self._reclaiming) if work is not None]:
            await asyncio.wait(working)
            await asyncio.sleep(0)  # their callbacks come first

    def look(self) -> None:
        """Looks now, unless it does. In a thread first: a disk that hangs must not keep the loop."""
        if not self._stopped and self._tending is None:
            self._tending = self._loop.run_in_executor(None, self._tend, self._closed())
            self._tending.add_done_callback(self._on_tended)

    def _tend(self, closed: int) -> None:
        self._volume.tend()
        if closed != self._trimmed:
            self._trimmed = closed
            self._trim()

    def _on_tended(self, tending: asyncio.Future[None]) -> None:
        self._tending = None
        if self._stopped or tending.cancelled():
            return
        try:
            tending.result()
            self._look_at_space()
            self._look_at_reclaimable()
        except Exception as error:  # noqa: BLE001 - a volume that cannot be asked has failed
            self._on_failed(error)
            return
        self._look_elsewhere()
        near = self._free is not None and self._free < NEAR_BYTES
        self._timer = self._loop.call_later(min(INTERVAL, INTERVAL_NEAR) if near else INTERVAL, self.look)

    def _look_at_space(self) -> None:
        free = self._free = self._volume.free_bytes
        low = free is not None and (free < self._min_free_bytes or free == 0)
        if low != self._low:
            self._low = low
            text = (
                f"only {free} bytes are left on the disk: publishers have to wait"
                if low
                else f"{free} bytes are left on the disk: publishers go on"
            )
            self._on_alarm(Alarm(AlarmCode.DISK_LOW, text, over=not low))
            self._on_space(low=low)

    def _look_at_reclaimable(self) -> None:
        reclaimable = self._volume.reclaimable
        unchanged = reclaimable == self._reclaimable
        self._looks_unchanged = self._looks_unchanged + 1 if unchanged else 0
        self._reclaimable = reclaimable
        idle = self._looks_unchanged >= IDLE_LOOKS
        wanted = RECLAIM_BYTES_IDLE if idle or self._low else RECLAIM_BYTES
        if reclaimable >= wanted and self._reclaiming is None:
            self._looks_unchanged = 0
            self._reclaiming = self._loop.run_in_executor(None, self._volume.reclaim)
            self._reclaiming.add_done_callback(self._on_reclaimed)

    def _on_reclaimed(self, reclaiming: asyncio.Future[int]) -> None:
        self._reclaiming = None
        error = None if reclaiming.cancelled() else reclaiming.exception()
        if error is not None and not self._stopped:
            self._on_failed(error)
