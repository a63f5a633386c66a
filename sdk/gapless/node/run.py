"""One life of a machine: from its recovery to its end, over one opening of the volume.

Everything that happens in one iteration of the event loop (frames, completed syncs, reads, the timer) is
noted and fed to the machine in a single turn right after; so one turn makes one write, one send per link
and one timer, whatever the load. There is no task, future or log line per message.

A run ends by `stop`, in order, or by its first failure: of the storage, or of the code. After a failure
nothing leaves it any more; its owner throws it away and starts another one (`gapless.node.driver`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from gapless.core.effects import Read, ReadResult
from gapless.errors import StorageError
from gapless.node.commit import GroupCommit
from gapless.node.upkeep import Upkeep

if TYPE_CHECKING:
    from gapless.core.sessions import LinkOutput
    from gapless.node.machine import Cookie, Machine, Output
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


class LinkOwner:
    """Hears a client's link, for one run."""

    __slots__ = ("_number", "_run", "link", "pending")

    def __init__(self, run: Run, number: int, link: Link) -> None:
        self._run = run
        self._number = number
        self.link = link
        self.pending = 0
        """What the machine was last told."""

    def on_frames(self, payloads: Sequence[bytes]) -> None:
        """Frames arrived."""
        self._run.on_frames(self._number, payloads)

    def on_drained(self) -> None:
        """Much had been pending, and now little is."""
        self._run.on_drained(self._number)

    def on_closed(self, reason: str) -> None:
        """The link is over."""
        self._run.on_closed(self._number)


class Run:
    """A machine with its volume, its links and its timer."""

    def __init__(
        self,
        machine: Machine,
        volume: LogVolume,
        on_failed: Callable[[Run, BaseException], None],
        *,
        min_free_bytes: int = 0,
        clock: Clock = system_clock,
    ) -> None:
        """`on_failed` is called once, if the run fails."""
        self._loop = asyncio.get_running_loop()
        self._machine = machine
        self._volume = volume
        self._on_failed = on_failed
        self._clock = clock
        self._commit = GroupCommit(volume, self._on_durable, self._fail)
        self._upkeep = Upkeep(volume, min_free_bytes, self._on_space, self._fail)
        self._links: dict[int, LinkOwner] = {}
        self._link_count = 0
        self._events: list[tuple[Any, ...]] = []
        """What happened: a method of the machine and its arguments, but for the time."""
        self._reads: deque[Read] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0
        self._due: int | None = None
        self._scheduled = False
        self._alive = True
        self._no_links = asyncio.Event()
        self._no_links.set()

    # Getters.

    @property
    def alive(self) -> bool:
        """Whether the run has neither failed nor been stopped."""
        return self._alive

    def status(self) -> dict[str, Any]:
        """What `gapless doctor` shows."""
        return {**self._machine.status(), "sessions": self._machine.sessions.count, **self._upkeep.status()}

    # What happened.

    def start(self) -> None:
        """Carries out what the machine asked for while it was made, and begins to look after the disk."""
        self._turn()
        if self._alive:
            self._upkeep.start()

    async def settled(self, patience: float) -> None:
        """Waits until what the roles wrote when they began is durable, and what follows from that too."""
        for _ in range(SETTLING_WRITES):
            await _patiently(self._commit.idle(), patience)

    def accept(self, link: Link) -> LinkOwner:
        """A client connected; the owner hears its link."""
        self._link_count += 1
        number = self._link_count
        owner = self._links[number] = LinkOwner(self, number, link)
        self._no_links.clear()
        self._happened(self._machine.on_link, number, link.peer)
        return owner

    def on_frames(self, number: int, payloads: Sequence[bytes]) -> None:
        """Frames arrived on a link."""
        self._happened(self._machine.on_frames, number, payloads)

    def on_drained(self, number: int) -> None:
        """Little is pending on a link on which much was."""
        owner = self._links.get(number)
        if owner is not None:
            owner.pending = owner.link.pending
            self._happened(self._machine.on_pending, number, owner.pending)

    def on_closed(self, number: int) -> None:
        """A link is over."""
        self._links.pop(number, None)
        if not self._links:
            self._no_links.set()
        self._happened(self._machine.on_link_closed, number)

    # Commands.

    async def stop(self, reason: str, patience: float) -> None:
        """Ends in order: answers what is being written, tells the clients, syncs, closes the volume.

        Waits up to `patience` seconds each for the disk and for the clients.
        """
        await _patiently(self._commit.idle(), patience)
        if self._alive:
            self._happened(self._machine.close, reason)
            self._turn()
            await _patiently(self._no_links.wait(), patience)
            self._turn()
            await _patiently(self._commit.idle(), patience)
        self.abandon(reason)
        await _patiently(self.closed(), patience)

    def abandon(self, reason: str) -> None:
        """Nothing is carried out any more; all links are closed, and the clients told why."""
        owners, self._links = self._links, {}
        with suppress(Exception):  # a machine that failed may not even know its sessions any more
            for number, payload in self._machine.sessions.farewells(reason):
                owners[number].link.send([payload], urgent=True)
        for owner in owners.values():
            owner.link.close(reason)
        self._alive = False
        self._commit.fail()
        self._upkeep.stop()
        if self._timer is not None:
            self._timer.cancel()
        self._events.clear()
        self._reads.clear()

    async def closed(self) -> None:
        """Waits until no thread uses the volume any more, and closes it. Only for a run that is over."""
        assert not self._alive
        await self._commit.idle()
        await self._upkeep.idle()
        self._commit.close()
        self._volume.close()

    # The turn.

    def _happened(self, *event: Any) -> None:
        if self._alive:
            self._events.append(event)
            self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        if not self._alive:
            return
        try:
            now, wall = self._clock()
            events, self._events = self._events, []
            for call, *arguments in events:
                call(*arguments, now, wall)
            if self._due is not None and self._due <= now:
                self._machine.on_deadline(now, wall)
            self._carry_out(self._machine.take_output())
            self._read_some()
            self._arm(now)
        except Exception as error:  # noqa: BLE001 - whatever it is, this machine cannot go on
            self._fail(error)

    def _carry_out(self, output: Output) -> None:
        if output.operations or output.cookies:
            self._commit.commit(output.operations, output.cookies)
        for number, work in output.links.items():
            owner = self._links.get(number)
            if owner is not None:
                self._serve(number, owner, work)
        self._reads.extend(output.reads)
        for alarm in output.alarms:
            log.warning("%s", alarm)
        for effect in output.network:
            log.warning("the router asks for %s, but this node has no links to brokers", type(effect).__name__)

    def _serve(self, number: int, owner: LinkOwner, work: LinkOutput) -> None:
        link = owner.link
        # What has left since the last send is said before the next one, or a link on which there is always
        # the same little message under way would look as if nothing ever left.
        self._say_pending(number, owner)
        if work.limit:
            link.raise_limit(work.limit)
        if work.urgent:
            link.send(work.urgent, urgent=True)
        if work.ordinary:
            link.send(work.ordinary)
        if work.paused is not None:
            (link.pause if work.paused else link.resume)()
        if work.close is not None:
            link.close(work.close)
            return
        self._say_pending(number, owner)

    def _say_pending(self, number: int, owner: LinkOwner) -> None:
        pending = owner.link.pending
        if pending or owner.pending:
            owner.pending = pending
            self._happened(self._machine.on_pending, number, pending)

    def _read_some(self) -> None:
        """Carries out reads while there is time in this turn; their answers are fed to the next."""
        if not self._reads:
            return
        until = time.perf_counter_ns() + READ_TIME
        while self._reads:
            self._happened(self._machine.on_read, self._read(self._reads.popleft()))
            if time.perf_counter_ns() >= until:
                return

    def _read(self, read: Read) -> ReadResult:
        stream = self._volume.stream(read.stream)
        try:
            records = stream.read(read.after, read.upto, read.max_bytes)
        except StorageError as error:
            return ReadResult(read.cookie, (), stream.first, str(error) or type(error).__name__)
        return ReadResult(read.cookie, records, stream.first)

    def _arm(self, now: int) -> None:
        # One timer, for the earliest deadline. One that fires too early does no harm, and costs less than
        # replacing it whenever a deadline moves away.
        due = self._due = self._machine.deadline()
        if due is None or (self._timer is not None and self._timer_at <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = due
        self._timer = self._loop.call_later(max((due - now) / 1e9, TIMER_GRAIN), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._turn()

    def _on_durable(self, cookies: list[Cookie]) -> None:
        self._happened(self._machine.on_durable, cookies)

    def _on_space(self, *, low: bool) -> None:
        self._happened(partial(self._machine.on_space, low=low))

    def _fail(self, error: BaseException) -> None:
        if self._alive:
            self._alive = False
            self._commit.fail()
            self._on_failed(self, error)


async def _patiently(waiting: Coroutine[Any, Any, Any], patience: float) -> None:
    """Waits, but not for ever: then what was waited for is left as it is."""
    task = asyncio.ensure_future(waiting)
    try:
        await asyncio.wait([task], timeout=patience)
    finally:
        task.cancel()
