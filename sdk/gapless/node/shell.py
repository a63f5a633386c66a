"""The shell of a machine on the event loop: its clock, its turns, one timer, its links, its disk, its numbered logs.

A shell lives from the recovery of its machine to its end, over one opening of the volume. It ends by `stop`, in
order, or by its first failure: of the storage, or of the code. After a failure nothing leaves it any more; its
owner throws it away and starts another one (`gapless.node.node`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

from gapless import loggers
from gapless.core.gauges import Histogram
from gapless.core.network.incarnations import started
from gapless.core.server.audit import WITHOUT_END
from gapless.errors import NodeTwiceError
from gapless.node import process
from gapless.node.commit import SYNCS_MAX, GroupCommit, SyncGroup
from gapless.node.gauges import SERVING, SYNC_RUNNING, SYNC_SECONDS, TURN_SECONDS
from gapless.node.logs import NodeLogs
from gapless.node.noting import Notes
from gapless.node.troubles import Troubles
from gapless.node.upkeep import Upkeep

if TYPE_CHECKING:
    from gapless.core.alarms import Alarm, AlarmBook, Note, RaisedAlarm
    from gapless.core.gauges import Gauge
    from gapless.core.network.facts import ShutOut
    from gapless.core.ports import LogQuestion, Operation
    from gapless.core.server.audit import AuditLine
    from gapless.core.traces import Logged, Matched
    from gapless.node.link_owner import LinkOwner
    from gapless.node.links import NodeLinks
    from gapless.node.machine import Cookie, Machine, Network, Tap
    from gapless.node.rules_watch import RulesWatch
    from gapless.observe.spans import BrokerSpans
    from gapless.security.audit_file import AuditWriter
    from gapless.spi import Link, LogVolume, Transport

log = loggers.logger("gapless.node")

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


def boot_of_system() -> str:
    """Names the run of this machine, in which all processes share one monotonic clock; "" where it has no name."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


class AsyncShell:
    """A machine with its volume, its links and its timer."""

    taps: Sequence[Tap] = ()

    def __init__(
        self,
        volume: LogVolume,
        make: Callable[[AsyncShell], Machine],
        on_failed: Callable[[AsyncShell, BaseException], None],
        alarms: AlarmBook,
        watch_rules: Callable[[AsyncShell], RulesWatch],
        *,
        min_free_bytes: int = 0,
        clock: Clock = system_clock,
        make_links: Callable[[AsyncShell], NodeLinks | None] = lambda _: None,
        transports: Sequence[Transport] = (),
        audit: AuditWriter | None = None,
        spans: BrokerSpans | None = None,
    ) -> None:
        """`make` recovers the machine; raises what it raises. `make_links`: those to other nodes, if it has any.

        `watch_rules`: who looks whether other rules are to count.
        `transports`: those that the node listens with. What they find wrong becomes alarms.
        `audit`: of all shells of the node; None: none is configured.
        `spans`: makes spans of what the machine tells of sampled batches; None: nobody wants any.

        `on_failed` is called once, if the machine or the storage fails, or a later process of the node counts;
        `alarms` is of all shells of the node.
        """
        self._loop = asyncio.get_running_loop()
        self._volume = volume
        self._tell_failure = on_failed
        self._alarms = alarms
        self.clock = clock
        self._begun = False
        self._notes = Notes(self._loop, lambda note: log.info("%s", note.text, extra=note.fields))
        machine = self.machine = make(self)
        self.links = make_links(self)
        """To other nodes; None where there are no others."""
        self._logs = NodeLogs(machine.on_log_answer, self.alarm)
        self._commit = GroupCommit(volume, self._begin_sync, machine.on_durable, machine.fail)
        # What is kept in memory is as durable at once as it will ever be: a thread would only cost time.
        self._threads = SyncThreads(volume, self._loop, SYNCS_MAX) if volume.capabilities.durable else None
        self._synced: asyncio.Future[None] | None = None
        """Waited for until no sync runs."""
        self._syncs, self._turns = Histogram(SYNC_SECONDS), Histogram(TURN_SECONDS)
        self._syncing: dict[int, None] = {}
        """When the syncs that run were begun, the earliest first."""
        self._rules = watch_rules(self)
        self._troubles = Troubles([*transports, *machine.authenticators()], self.alarm)
        self._upkeep = Upkeep(
            volume,
            min_free_bytes,
            machine.on_space,
            self.alarm,
            machine.fail,
            lambda: machine.links_closed,
            self._look_elsewhere,
        )
        self._spans = spans
        self._audit = audit
        if audit is not None:
            audit.listen(partial(self._from_thread, machine.on_audit_room), partial(self._from_thread, self.alarm))
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0
        self._no_links = asyncio.Event()
        self._no_links.set()

    # Getters.

    @property
    def alive(self) -> bool:
        """Whether it has neither failed nor been stopped."""
        return self.machine.alive

    def gauges(self) -> Iterator[Gauge]:
        """The figures of the machine, of its disk, and how often the operator was told of something."""
        yield from self.machine.gauges()
        yield from self._own_gauges()

    def parts(self) -> Iterator[Iterable[Gauge | RaisedAlarm]]:
        """The same, part by part as `Machine.parts`, and the alarms."""
        yield from self.machine.parts()
        yield self.status()

    def status(self) -> Iterator[Gauge | RaisedAlarm]:
        """Its own figures, and the alarms."""
        yield from self._own_gauges()
        yield from self._alarms.alarms()

    def _own_gauges(self) -> Iterator[Gauge]:
        yield SERVING.gauge(self.alive, self.machine.sessions.node)
        yield from self._upkeep.gauges()
        for histogram in (self._commit.seconds, self._syncs, self._turns):
            yield from histogram.gauges()
        running = next(iter(self._syncing), None)
        yield SYNC_RUNNING.gauge(0 if running is None else (time.perf_counter_ns() - running) / 1e9)
        yield from self._logs.gauges()
        if self.links is not None:
            yield from self.links.gauges()
        if self._audit is not None:
            yield from self._audit.gauges()
        yield from self._alarms.gauges()
        yield from process.gauges()

    # What happened.

    async def ask_neighbours(self, timeout: float) -> None:
        """Waits before the first turn, up to `timeout` seconds, until the neighbours know who of this node runs.

        So what this process says of its pubends, and its first receipt, come when another process of this node says
        nothing any more, wherever a neighbour has links to both.
        """
        if self.links is not None:
            await _at_most(timeout, self.links.ask_neighbours())

    def start(self) -> None:
        """Carries out what the machine asked for while it was made, and begins to look after the disk."""
        self._begun = True
        self._turn()
        if self.alive:
            self._rules.start()
            self._upkeep.start()

    async def settled(self, timeout: float) -> None:
        """Waits until what the roles wrote when they began is durable, and what follows from that too."""
        for _ in range(SETTLING_WRITES):
            await _at_most(timeout, self._idle())

    def accept(self, link: Link, listener: int) -> LinkOwner:
        """A client connected through the listener with this number; the owner hears its link."""
        self._no_links.clear()
        return self.machine.accept(link, listener)

    # Commands.

    async def stop(self, reason: str, timeout: float) -> None:
        """Ends in order: answers what is being written, tells the clients, syncs, closes the volume.

        Waits up to `timeout` seconds each for the disk and for the clients.
        """
        await _at_most(timeout, self._idle())
        if self.alive:
            self.machine.close(reason)
            self._turn()
            await _at_most(timeout, self._no_links.wait())
            self._turn()
            await _at_most(timeout, self._idle())
        self.abandon(reason)
        await _at_most(timeout, self.closed())

    def abandon(self, reason: str) -> None:
        """Nothing is carried out any more; all links are closed, and the clients told why."""
        owners = self.machine.abandon()
        with suppress(Exception):  # a machine that failed may not even know its sessions any more
            for number, payload in self.machine.sessions.farewells(reason):
                owners[number].link.send([payload], urgent=True)
        for owner in owners.values():
            owner.link.close(reason)
        if self.links is not None:
            self.links.close(reason)
        self._commit.failed = True
        self._upkeep.stop()
        self._rules.stop()
        self._notes.close()
        if self._timer is not None:
            self._timer.cancel()

    def let_go(self) -> None:
        """The loop has ended: closes the volume, which is as after a crash. Nothing runs that could be told."""
        self.machine.abandon()
        self._commit.failed = True
        if self._threads is not None:
            self._threads.close()
        self._volume.close()

    async def closed(self) -> None:
        """Waits until no thread uses the volume any more, and closes it. Only for a shell that is over."""
        assert not self.alive
        await self._idle()
        await self._upkeep.idle()
        await self._logs.close()
        if self.links is not None:
            await self.links.closed()
        if self._threads is not None:
            self._threads.close()
        self._volume.close()

    # What the machine needs of the world.

    def schedule(self) -> None:
        """A turn, in the next iteration of the loop; what happens before the first one is taken in by that."""
        if self._begun:
            self._loop.call_soon(self._turn)

    def commit(self, operations: Sequence[Operation], cookies: Sequence[Cookie]) -> None:
        """Writes now; syncs in a thread."""
        self._commit.commit(operations, cookies, time.perf_counter_ns())

    def carry_out_reads(self) -> None:
        """Reads while there is time in this turn."""
        until = time.perf_counter_ns() + READ_TIME
        while self.machine.reads:
            self.machine.read_one()
            if time.perf_counter_ns() >= until:
                return

    def arm(self, now: int, due: int) -> None:
        """One timer, for the earliest deadline.

        One that fires too early does no harm, and costs less than replacing it whenever a deadline moves away.
        """
        if self._timer is not None:
            if self._timer_at <= due:
                return
            self._timer.cancel()
        self._timer_at = due
        self._timer = self._loop.call_later(max((due - now) / 1e9, TIMER_GRAIN), self._on_timer)

    def to_network(self, effect: Network) -> None:
        """For a link to another node; without any, a router has nobody to dial."""
        if self.links is not None:
            self.links.to_network(effect)
        else:
            log.warning("the router asks for %s, but this node is in no network", type(effect).__name__)

    def to_log(self, source: int, question: LogQuestion) -> None:
        """For the plugin that keeps the log."""
        self._logs.ask(source, question)

    def alarm(self, alarm: Alarm) -> None:
        """For the operator."""
        self._alarms.note(alarm, self.clock()[1])
        fields = {"alarm": alarm.code.label, "about": alarm.about}
        log.warning("%s (%s)", alarm.text, alarm.code.label, extra=fields)

    def note(self, note: Note) -> None:
        """For the operator's log."""
        self._notes.note(note)

    def trace(self, traced: Logged | Matched, turn: int) -> None:
        """For whoever makes spans."""
        if self._spans is not None:
            self._spans.hear(traced, turn)

    def audit_room(self) -> int:
        """So many lines may come until requests have to wait."""
        return self._audit.room if self._audit is not None else WITHOUT_END

    def audit(self, lines: Sequence[AuditLine]) -> None:
        """For the thread that writes them."""
        if self._audit is not None:
            self._audit.write(lines)

    def on_last_link_closed(self) -> None:
        """No client is connected any more."""
        self._no_links.set()

    def on_failed(self, error: BaseException) -> None:
        """The storage failed, or the code."""
        self._commit.failed = True
        self._tell_failure(self, error)

    def on_shut_out(self, shut_out: ShutOut) -> None:
        """A later process of this node counts: nothing leaves this one any more, no receipt above all."""
        self.machine.fail(
            NodeTwiceError(
                f"this process is shut out: another process runs as node {self.machine.sessions.node!r}, started"
                f" {started(shut_out.later)}, and the later one counts; node {shut_out.peer!r} knows both."
                " Stop the one that is not meant for good, and start the other again",
                shut_out.later,
            )
        )

    def _look_elsewhere(self) -> None:
        self._troubles.look()
        self._rules.look()

    def _from_thread(self, call: Callable[..., None], *arguments: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            self._loop.call_soon_threadsafe(call, *arguments)

    def _on_timer(self) -> None:
        """A turn that is due anyway keeps the deadline, too: one more beside it would be followed by others for ever.

        A turn that leaves something for the next one asks for that, and the two would go on side by side.
        """
        self._timer = None
        if not self.machine.scheduled:
            self._turn()

    def _turn(self) -> None:
        """A turn of the machine; what it has said to other nodes leaves right after."""
        began = time.perf_counter_ns()
        self.machine.turn()
        if self.links is not None:
            self.links.flush()
        if self._spans is not None:
            self._spans.on_turn()
        self._turns.observe((time.perf_counter_ns() - began) / 1e9)

    # Syncs.

    def _begin_sync(self, group: SyncGroup) -> None:
        began = time.perf_counter_ns()
        self._syncing[began] = None
        on_synced = partial(self._on_synced, began)
        if self._threads is not None:
            self._threads.sync(group, on_synced)
        else:
            self._loop.call_soon(on_synced, group, sync(self._volume))

    def _on_synced(self, began: int, group: SyncGroup, error: BaseException | None) -> None:
        now = time.perf_counter_ns()
        self._syncing.pop(began, None)
        self._syncs.observe((now - began) / 1e9)
        if self._spans is not None and error is None:
            self._spans.on_synced(now - group.written[-1], now - began)
        self._commit.on_synced(group, error, now)
        if self._synced is not None and not self._commit.busy:
            self._synced.set_result(None)
            self._synced = None

    async def _idle(self) -> None:
        """Waits until no sync runs and none is due."""
        while self._commit.busy:
            if self._synced is None:
                self._synced = self._loop.create_future()
            await asyncio.shield(self._synced)


class SyncThreads:
    """Threads that do nothing but `volume.sync()`: they take work from a queue, and answer through the loop.

    An executor would do, for 40 µs of CPU and latency more per sync (measured, on the loop's thread).
    """

    def __init__(self, volume: LogVolume, loop: asyncio.AbstractEventLoop, count: int) -> None:
        self._volume = volume
        self._loop = loop
        self._queue: SimpleQueue[tuple[SyncGroup, Answer] | None] = SimpleQueue()
        self._threads = [Thread(target=self._run, name=f"gapless-sync-{number}") for number in range(count)]
        for thread in self._threads:
            thread.daemon = True  # a stalled disk must not keep the process from ending
            thread.start()

    def sync(self, group: SyncGroup, answer: Answer) -> None:
        """Syncs; then calls `answer(group, error)` on the loop."""
        self._queue.put((group, answer))

    def close(self) -> None:
        """Ends the threads once they have done what was asked."""
        for _ in self._threads:
            self._queue.put(None)

    def _run(self) -> None:
        while (task := self._queue.get()) is not None:
            group, answer = task
            error = sync(self._volume)
            with suppress(RuntimeError):  # the loop is closed: nobody is left to be told
                self._loop.call_soon_threadsafe(answer, group, error)


Answer = Callable[[SyncGroup, "BaseException | None"], None]


def sync(volume: LogVolume) -> BaseException | None:
    """Syncs, and returns what went wrong: an error in a thread must reach the loop, whatever it is."""
    try:
        volume.sync()
    except BaseException as error:  # noqa: BLE001 - it is handed on, not swallowed
        return error
    return None


async def _at_most(timeout: float, waiting: Coroutine[Any, Any, Any]) -> None:
    """Waits, but not for ever: then what was waited for is left as it is."""
    task = asyncio.ensure_future(waiting)
    try:
        await asyncio.wait([task], timeout=timeout)
    finally:
        task.cancel()
