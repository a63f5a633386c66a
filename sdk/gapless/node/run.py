"""One life of a machine on the event loop: from its recovery to its end, over one opening of the volume.

A run is the shell of an `Engine`: it gives it the clock, the loop's turns, one timer, the group commit and
the upkeep of the disk. It ends by `stop`, in order, or by its first failure: of the storage, or of the
code. After a failure nothing leaves it any more; its owner throws it away and starts another one
(`gapless.node.driver`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gapless.node.commit import GroupCommit
from gapless.node.engine import Engine, LinkOwner
from gapless.node.gauges import SERVING
from gapless.node.upkeep import Upkeep

if TYPE_CHECKING:
    from gapless.core.alarms import Alarm, AlarmBook, RaisedAlarm
    from gapless.core.gauges import Gauge
    from gapless.core.ports import Operation
    from gapless.node.machine import Cookie, Machine, Network
    from gapless.spi import Link, LogVolume

log = logging.getLogger("gapless.node")

READ_TIME = 5_000_000
"""Nanoseconds of a turn after which the reads that are left wait for the next one.

Reads are carried out on the loop, bounded by their `max_bytes`: iterating RocksDB holds the GIL, so a
thread would not spare it (measured: 0.6 ms for 1 MiB here, 2 to 4 ms in a thread, the longest lag the same).
"""
TIMER_GRAIN = 0.001
"""Seconds. A deadline that has passed is kept this soon: one that never moves must not starve the loop."""

SETTLING_WRITES = 4
"""How many writes may follow from one another until a broker that begins can be published to."""

Clock = Callable[[], "tuple[int, int]"]
"""Monotonic nanoseconds, and milliseconds since 1970."""


def system_clock() -> tuple[int, int]:
    """The time of this machine."""
    return time.monotonic_ns(), time.time_ns() // 1_000_000


class Run:
    """A machine with its volume, its links and its timer; the `Shell` of its engine."""

    def __init__(
        self,
        machine: Machine,
        volume: LogVolume,
        on_failed: Callable[[Run, BaseException], None],
        alarms: AlarmBook,
        *,
        min_free_bytes: int = 0,
        clock: Clock = system_clock,
    ) -> None:
        """`on_failed` is called once, if the run fails; `alarms` is of all runs of the node."""
        self._loop = asyncio.get_running_loop()
        self._machine = machine
        self._volume = volume
        self._tell_failure = on_failed
        self._alarms = alarms
        self._engine = Engine(machine, volume, self)
        self._commit = GroupCommit(volume, self._engine.on_durable, self._engine.fail)
        self._upkeep = Upkeep(volume, min_free_bytes, self._engine.on_space, self.alarm, self._engine.fail)
        machine.around = self._status
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0
        self._no_links = asyncio.Event()
        self._no_links.set()
        self.clock = clock

    # Getters.

    @property
    def alive(self) -> bool:
        """Whether the run has neither failed nor been stopped."""
        return self._engine.alive

    def gauges(self) -> Iterator[Gauge]:
        """The figures of the machine, of its disk, and how often the operator was told of something."""
        yield from self._machine.gauges()
        yield from self._own_gauges()

    def _own_gauges(self) -> Iterator[Gauge]:
        yield SERVING.gauge(self.alive, self._machine.sessions.node)
        yield from self._upkeep.gauges()
        yield from self._alarms.gauges()

    def _status(self) -> Iterator[Gauge | RaisedAlarm]:
        yield from self._own_gauges()
        yield from self._alarms.alarms()

    # What happened.

    def start(self) -> None:
        """Carries out what the machine asked for while it was made, and begins to look after the disk."""
        self._engine.turn()
        if self.alive:
            self._upkeep.start()

    async def settled(self, patience: float) -> None:
        """Waits until what the roles wrote when they began is durable, and what follows from that too."""
        for _ in range(SETTLING_WRITES):
            await _patiently(self._commit.idle(), patience)

    def accept(self, link: Link) -> LinkOwner:
        """A client connected; the owner hears its link."""
        self._no_links.clear()
        return self._engine.accept(link)

    # Commands.

    async def stop(self, reason: str, patience: float) -> None:
        """Ends in order: answers what is being written, tells the clients, syncs, closes the volume.

        Waits up to `patience` seconds each for the disk and for the clients.
        """
        await _patiently(self._commit.idle(), patience)
        if self.alive:
            self._engine.close(reason)
            self._engine.turn()
            await _patiently(self._no_links.wait(), patience)
            self._engine.turn()
            await _patiently(self._commit.idle(), patience)
        self.abandon(reason)
        await _patiently(self.closed(), patience)

    def abandon(self, reason: str) -> None:
        """Nothing is carried out any more; all links are closed, and the clients told why."""
        owners = self._engine.abandon()
        with suppress(Exception):  # a machine that failed may not even know its sessions any more
            for number, payload in self._machine.sessions.farewells(reason):
                owners[number].link.send([payload], urgent=True)
        for owner in owners.values():
            owner.link.close(reason)
        self._commit.fail()
        self._upkeep.stop()
        if self._timer is not None:
            self._timer.cancel()

    async def closed(self) -> None:
        """Waits until no thread uses the volume any more, and closes it. Only for a run that is over."""
        assert not self.alive
        await self._commit.idle()
        await self._upkeep.idle()
        self._commit.close()
        self._volume.close()

    # What the engine needs of the world.

    def schedule(self) -> None:
        """A turn, in the next iteration of the loop."""
        self._loop.call_soon(self._engine.turn)

    def commit(self, operations: Sequence[Operation], cookies: Sequence[Cookie]) -> None:
        """Writes now; syncs in a thread."""
        self._commit.commit(operations, cookies)

    def carry_out_reads(self) -> None:
        """Reads while there is time in this turn."""
        until = time.perf_counter_ns() + READ_TIME
        while self._engine.reads:
            self._engine.read_one()
            if time.perf_counter_ns() >= until:
                return

    def arm(self, now: int, due: int) -> None:
        """One timer, for the earliest deadline.

        One that fires too early does no harm, and costs less than replacing it whenever a deadline moves away.
        """
        if self._timer is not None and self._timer_at <= due:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = due
        self._timer = self._loop.call_later(max((due - now) / 1e9, TIMER_GRAIN), self._on_timer)

    def to_network(self, effect: Network) -> None:
        """There are no links to other brokers yet."""
        log.warning("the router asks for %s, but this node has no links to brokers", type(effect).__name__)

    def alarm(self, alarm: Alarm) -> None:
        """For the operator."""
        self._alarms.note(alarm, self.clock()[1])
        log.warning("%s (%s)", alarm.text, alarm.code.label)

    def on_last_link_closed(self) -> None:
        """No client is connected any more."""
        self._no_links.set()

    def on_failed(self, error: BaseException) -> None:
        """The storage failed, or the code."""
        self._commit.fail()
        self._tell_failure(self, error)

    def _on_timer(self) -> None:
        self._timer = None
        self._engine.turn()


async def _patiently(waiting: Coroutine[Any, Any, Any], patience: float) -> None:
    """Waits, but not for ever: then what was waited for is left as it is."""
    task = asyncio.ensure_future(waiting)
    try:
        await asyncio.wait([task], timeout=patience)
    finally:
        task.cancel()
