"""A node: listeners, and one machine after another.

    start ──▶ serve ──▶ stop
               ▲  │ the storage failed, or the code did
               │  ▼
             reopen and recover, after a pause that grows;
             or, where a later process of this node counts, refuse everybody until it is stopped

A failure of the storage, or an exception in a core (which may have left it in any state), ends the machine:
nothing is acknowledged any more, every link is closed, the machine is thrown away, and the volume is
opened anew and recovered: the same path as after a crash of the process. Listeners stay bound meanwhile;
who connects is told to come again. Several crashes of the code within a minute end the node.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import structs

from gapless import loggers, plugins
from gapless.core.alarms import Alarm, AlarmBook, AlarmCode
from gapless.core.server import HandlerFailedError, Suspects
from gapless.core.server.reception import WITHIN
from gapless.core.wire.codec import encode
from gapless.core.wire.messages import Code, HelloRefused
from gapless.errors import (
    ConfigurationError,
    DescriptorsExhaustedError,
    NodeTwiceError,
    StorageError,
    VolumeAbsentError,
    VolumeCorruptError,
    VolumeForeignError,
    VolumeFullError,
)
from gapless.node.assembly import (
    Loaded,
    check_settings,
    dialable,
    load_plugins,
    make_links,
    make_machine,
    note_shut_out_at,
    open_volume,
    said_of,
    watch_rules,
)
from gapless.node.gauges import SERVING
from gapless.node.observing import Observing
from gapless.node.shell import AsyncShell, Clock, boot_of_system, system_clock
from gapless.observe.exporting import SpanExport
from gapless.observe.health import Health, Phase
from gapless.observe.spans import BrokerSpans
from gapless.security.audit_file import AuditWriter, open_file
from gapless.spi import Create

if TYPE_CHECKING:
    from gapless.core.alarms import Note, RaisedAlarm
    from gapless.core.gauges import Gauge
    from gapless.core.server.audit import AuditLine
    from gapless.node.config import NodeConfig
    from gapless.node.machine import Machine
    from gapless.spi import Link, LinkHandler, Listener

log = loggers.logger("gapless.node")

PAUSE_FIRST = 0.1
PAUSE_MOST = 5.0
"""Seconds before another machine is tried; doubling."""
STEADY = 60.0
"""Seconds after which a machine has gone well, and earlier failures are forgotten."""
CRASHES_MAX = 5
"""So many crashes of the code within `STEADY` end the node."""
YOUNG_OBJECTS = 8_000
"""So many new containers before cycles are looked for among them."""
SWITCH_INTERVAL = 0.0005
"""Seconds that a thread waits for Python's lock while another one computes."""
NEIGHBOURS_TIMEOUT = 3.0
"""Seconds that a node that starts waits at most until its neighbours know whether another process of it runs."""
STOP_TIMEOUT = 5.0
"""Seconds that an orderly end waits for the disk, and for the clients."""
SPANS_TIMEOUT = 2.0
"""Seconds that it waits at most until spans that were made are sent."""


class Node:
    """A process's broker: roles over one volume, reachable through its listeners and through `dial`."""

    def __init__(self, loaded: Loaded, clock: Clock, audit: AuditWriter | None) -> None:
        """Use `Node.start`."""
        self._loaded = loaded
        self._audit = audit
        """Of all machines; None: none is configured."""
        self._clock = clock
        self._listeners: list[Listener] = []
        self._nodes_listener: Listener | None = None
        """Takes the links of other nodes."""
        self._internal: tuple[Any, Listener] | None = None
        self._shell: AsyncShell | None = None
        self._began = 0.0
        self._failure: BaseException | None = None
        """Why the machine that is being started has failed."""
        self._cause = ""
        """What clients are told of the latest failure; the whole of it stands in the broker's own log."""
        self._shut_out = ""
        """Why nobody is served any more, and nothing begins again: a later process of this node counts."""
        self._suspects = Suspects()
        self._alarms = AlarmBook()
        """Of all machines: why one ended, too."""
        self._health = Health(asyncio.get_running_loop(), self._lacks)
        self._observing: Observing | None = None
        self._spans: SpanExport | None = None
        """Of all machines."""
        self._crashes: deque[float] = deque(maxlen=CRASHES_MAX)
        self._pause = PAUSE_FIRST
        self._restarting: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()
        self._error: BaseException | None = None

    @classmethod
    async def start(cls, config: NodeConfig, *, clock: Clock = system_clock) -> Node:
        """A node that serves.

        Raises ConfigurationError when a setting or a plugin is wrong or an address cannot be bound, and
        StorageError when the volume cannot be opened.
        """
        loaded = load_plugins(config)
        if clock is system_clock:
            loaded = replace(loaded, boot=boot_of_system())
        check_settings(loaded, *clock())
        node = cls(loaded, clock, open_audit(config))
        try:
            if loaded.observer is not None:
                node._observing = await Observing.begin(loaded, node, node._health, clock)
            if config.observe is not None and config.observe.traces:
                with said_of(config, "observe"):
                    node._spans = SpanExport.begin(os.environ, config.node.name)
            if config.create is not Create.NO:
                await node._try_addresses()
            node._shell = await node._begin(config.create)
        except BaseException:
            await node._close_rest()
            raise
        try:
            await node._listen()
        except BaseException:
            await node.stop("the node could not start")
            raise
        node._health.become(Phase.SERVING)
        return node

    # Getters.

    @property
    def addresses(self) -> list[str]:
        """The addresses really bound, in the order of the configuration."""
        return [listener.address for listener in self._listeners]

    @property
    def address(self) -> str:
        """The first listener's address. Raises ConfigurationError when the node has none."""
        if not self._listeners:
            raise ConfigurationError("the node has no listener; it can be reached by Node.dial alone")
        return self._listeners[0].address

    @property
    def urls(self) -> list[str]:
        """What a client on this machine connects to, one for each listener."""
        listeners = zip(self._loaded.listeners, self.addresses)  # noqa: B905 - fewer are bound while it starts
        return [dialable(listen, transport, address) for (listen, transport), address in listeners]

    @property
    def nodes_address(self) -> str:
        """Where other nodes' links are taken; "" where the node is in no network."""
        return "" if self._nodes_listener is None else self._nodes_listener.address

    @property
    def url(self) -> str:
        """What a client on this machine connects to: the first listener. Raises ConfigurationError as `address`."""
        urls = self.urls
        return urls[0] if urls else self.address  # which says why there is none

    @property
    def observe_url(self) -> str:
        """What tools ask for figures and health over HTTP; "" where nothing is told there."""
        return "" if self._observing is None else self._observing.url

    @property
    def serving(self) -> bool:
        """Whether clients are served just now; False while the node recovers from a failure."""
        return self._shell is not None and self._shell.alive

    def alarms(self) -> list[RaisedAlarm]:
        """What the operator was told since the node started, the latest last."""
        return self._alarms.alarms()

    def gauges(self) -> Iterator[Gauge]:
        """The figures of the node; while it recovers only that it does not serve, and its alarms."""
        if self._shell is not None and self._shell.alive:
            yield from self._shell.gauges()
        else:
            yield SERVING.gauge(False, self._loaded.config.node.name)
            yield from self._alarms.gauges()

    def parts(self) -> Iterator[Iterable[Gauge | RaisedAlarm]]:
        """The figures and the alarms, part by part: each is read at once, between two of them there may be turns."""
        if self._shell is not None and self._shell.alive:
            yield from self._shell.parts()
        else:
            yield [*self.gauges(), *self.alarms()]

    def _lacks(self) -> str:
        """What it has not got, and cannot serve clients without; "": nothing."""
        needs_others = len(self._loaded.network.nodes) > 1 and "phb" not in self._loaded.config.node.roles
        links = None if self._shell is None else self._shell.links
        return "it has no link to any other node of its network" if needs_others and links and links.are_none else ""

    # Commands.

    def note(self, note: Note) -> None:
        """Puts something into the log, if it serves."""
        if self._shell is not None:
            self._shell.note(note)

    @property
    def audit_room(self) -> int | None:
        """How many lines of the audit can be taken until whoever makes one has to wait; None: nobody writes one."""
        return None if self._audit is None else self._audit.room

    def audit(self, line: AuditLine) -> None:
        """Has a line of the audit written, with the time of now; also while no machine serves."""
        if self._audit is not None:
            self._audit.write([structs.replace(line, wall=self._clock()[1])])

    async def dial(self, accept: Callable[[Link], LinkHandler]) -> Link:
        """A client's link to this node that stays in the process."""
        if self._internal is None:
            transport = plugins.load("transport", "memory")(options={})
            self._internal = transport, await transport.listen(f"node-{id(self)}", partial(self._accept, WITHIN))
        transport, listener = self._internal
        link: Link = await transport.dial(listener.address, accept)
        return link

    async def stop(self, reason: str = "the node is stopping") -> None:
        """Ends in order: clients are told, everything is synced, the volume is closed. Idempotent."""
        first = not self._stopping.is_set()
        self._stopping.set()
        if not first:
            await self._ended.wait()
            return
        if self._restarting is not None:
            await asyncio.wait([self._restarting])
        self._health.become(Phase.STOPPING, reason)
        await self._close_listeners()
        shell, self._shell = self._shell, None
        if shell is not None:
            await shell.stop(reason, STOP_TIMEOUT)
        await self._close_rest()
        self._ended.set()

    def let_go(self) -> None:
        """Its loop has ended without it: lets go of the volume, which is as after a crash. Idempotent."""
        shell, self._shell = self._shell, None
        if shell is not None:
            shell.let_go()
        if self._audit is not None:
            self._audit.close(STOP_TIMEOUT)
        if self._observing is not None:
            self._observing.end()
        if self._spans is not None:
            self._spans.end(SPANS_TIMEOUT)

    def reopen_audit(self) -> None:
        """The audit's file was moved away, or will be: the lines that follow go to a new one of its name."""
        if self._audit is not None:
            self._audit.reopen()

    async def _close_rest(self) -> None:
        """Closes what is of all machines."""
        loop = asyncio.get_running_loop()
        if self._observing is not None:  # before the audit, as whoever looks makes a line there
            await loop.run_in_executor(None, self._observing.end)
        if self._audit is not None:
            await loop.run_in_executor(None, self._audit.close, STOP_TIMEOUT)
        if self._spans is not None:
            await loop.run_in_executor(None, self._spans.end, SPANS_TIMEOUT)

    async def wait(self) -> None:
        """Waits until the node has ended. Raises the error for which it gave up, if it did."""
        await self._ended.wait()
        if self._error is not None:
            raise self._error

    # Links.

    async def _bind(self) -> None:
        membership = self._loaded.config.membership
        if membership is not None and self._loaded.nodes_transport is not None:
            self._nodes_listener = await self._loaded.nodes_transport.listen(membership.listen, self._accept_node)
        for number, (listen, transport) in enumerate(self._loaded.listeners):
            self._listeners.append(await transport.listen(listen.address, partial(self._accept, number)))

    async def _listen(self) -> None:
        await self._bind()
        node = self._loaded.config.node
        if self._nodes_listener is not None:
            log.info("node %r takes the links of other nodes on %s", node.name, self.nodes_address)
        log.info("node %r serves on %s", node.name, ", ".join(self.urls) or "no address")
        if self._observing is not None:
            log.info("node %r tells its figures on %s", node.name, self.observe_url)
        if self._spans is not None:
            log.info("node %r makes spans of sampled batches", node.name)

    async def _try_addresses(self) -> None:
        """Binds all addresses for a moment: a node that cannot listen makes no volume. Raises ConfigurationError."""
        try:
            await self._bind()
        finally:
            await self._close_listeners()
            self._listeners.clear()
            self._nodes_listener = None

    async def _close_listeners(self) -> None:
        listeners = [*self._listeners, *([self._internal[1]] if self._internal else [])]
        if self._nodes_listener is not None:
            listeners.append(self._nodes_listener)
        for listener in listeners:
            await listener.close()

    def _accept(self, listener: int, link: Link) -> LinkHandler:
        if self._shell is not None and self._shell.alive:
            return self._shell.accept(link, listener)
        if self._shut_out:
            refused = HelloRefused(Code.CONFIGURATION, self._shut_out)
        else:
            refused = HelloRefused(Code.RETRY, f"the broker is recovering{self._cause}")
        link.send([encode(0, refused)])
        link.close(refused.reason)
        return NullHandler()

    def _accept_node(self, link: Link) -> LinkHandler:
        if self._shell is not None and self._shell.alive and self._shell.links is not None:
            return self._shell.links.accept(link)
        link.close(
            self._shut_out or "the node is recovering"
        )  # which the other end learns from the link's end: it dials again
        return NullHandler()

    # One machine after another.

    async def _begin(self, create: Create) -> AsyncShell:
        """Opens the volume, recovers a machine, and starts it. Raises what goes wrong."""
        volume, identity = open_volume(self._loaded, create, self._clock()[1])

        def make(shell: AsyncShell) -> Machine:
            machine = make_machine(self._loaded, volume, identity, shell)
            machine.sessions.remember(self._suspects)
            return machine

        try:
            min_free_bytes = self._loaded.config.node.min_free_bytes
            shell = AsyncShell(
                volume,
                make,
                self._on_failed,
                self._alarms,
                partial(watch_rules, self._loaded),
                min_free_bytes=min_free_bytes,
                clock=self._clock,
                make_links=partial(make_links, self._loaded, identity),
                transports=self._loaded.transports,
                audit=self._audit,
                spans=self._make_spans(),
            )
        except BaseException:
            volume.close()
            raise
        self._began = time.monotonic()
        self._failure = None
        self._alarms.on_restart(self._clock()[1])
        await shell.ask_neighbours(NEIGHBOURS_TIMEOUT)
        shell.start()
        await shell.settled(STOP_TIMEOUT)
        if not shell.alive:
            shell.abandon("the node could not start")
            await shell.closed()
            assert self._failure is not None
            raise self._failure
        return shell

    def _make_spans(self) -> BrokerSpans | None:
        if self._spans is None:
            return None
        return BrokerSpans(self._spans.tracer, self._loaded.config.node.name, lambda: self._clock()[0])

    def _on_failed(self, shell: AsyncShell, error: BaseException) -> None:
        if shell is not self._shell:
            self._failure = error
            return
        self._restarting = asyncio.get_running_loop().create_task(self._replace(shell, error))

    async def _replace(self, shell: AsyncShell, error: BaseException) -> None:
        """Throws away a machine that failed and starts another one, as often as it takes."""
        try:
            await self._recover(shell, error)
        except Exception as another:  # noqa: BLE001 - a node that neither serves nor ends is the worst of all
            await self._give_up(another)

    async def _recover(self, shell: AsyncShell, error: BaseException) -> None:
        self._shell = None
        if isinstance(error, NodeTwiceError):
            self._shut_out = str(error)
        self._report(error)
        self._health.become(Phase.SHUT_OUT if self._shut_out else Phase.RECOVERING, str(error) or type(error).__name__)
        shell.abandon(self._shut_out or f"the broker has failed and recovers{self._cause}")
        if time.monotonic() - self._began > STEADY:
            self._pause = PAUSE_FIRST
        await shell.closed()
        # Whatever a traceback or a dead cycle still holds of the old volume could keep its lock.
        error = error.with_traceback(None)
        if error.__cause__ is not None:
            error.__cause__ = error.__cause__.with_traceback(None)
        gc.collect()
        if isinstance(error, NodeTwiceError):
            try:
                note_shut_out_at(self._loaded, error.later)
            except StorageError as another:
                self._report(another)
            return  # whoever ran it again would be the later one, and shut the other out in turn
        while not self._stopping.is_set() and not self._is_final(error):
            await self._sleep()
            try:
                self._shell = await self._begin(Create.NO)
            except Exception as another:  # noqa: BLE001 - judged by _is_final
                error = another
                self._report(error)
                self._health.become(Phase.RECOVERING, str(error) or type(error).__name__)
                continue
            self._health.become(Phase.SERVING)
            log.warning("node %r has recovered and serves again", self._loaded.config.node.name)
            return
        if self._is_final(error):
            await self._give_up(error)

    def _report(self, error: BaseException) -> None:
        self._cause = ": its disk is full" if isinstance(error, VolumeFullError) else ""
        if isinstance(error, NodeTwiceError):
            self._note(Alarm(AlarmCode.NODE_TWICE, self._shut_out, self._loaded.config.node.name))
            log.critical("%s", error, extra={"alarm": AlarmCode.NODE_TWICE.label})
        elif isinstance(error, StorageError):
            has_none = isinstance(error, DescriptorsExhaustedError)
            what = "no file could be opened" if has_none else "the storage has failed"
            text = f"{what}, nothing was acknowledged that is not durable: {error}"
            code = AlarmCode.DESCRIPTORS_EXHAUSTED if has_none else AlarmCode.STORAGE_FAILED
            self._note(Alarm(code, text))
            log.error("%s", text, extra={"alarm": code.label})
        else:
            self._crashes.append(time.monotonic())
            culprit = ""
            if isinstance(error, HandlerFailedError):
                self._suspects.on_failed(error, self._clock()[0])
                culprit = f" while it handled {error.told}, who stays outside for a while"
            text = f"a bug: an exception in a core{culprit}; the node starts over"
            self._note(Alarm(AlarmCode.BROKER_FAILED, f"{text}: {error!r}"))
            log.error("%s", text, exc_info=error, extra={"alarm": AlarmCode.BROKER_FAILED.label})

    def _note(self, alarm: Alarm) -> None:
        self._alarms.note(alarm, self._clock()[1])

    def _is_final(self, error: BaseException) -> bool:
        if isinstance(error, (VolumeAbsentError, VolumeCorruptError, VolumeForeignError, ConfigurationError)):
            return True
        full = len(self._crashes) == CRASHES_MAX
        return full and time.monotonic() - self._crashes[0] < STEADY and not isinstance(error, StorageError)

    async def _sleep(self) -> None:
        """Pauses before the next attempt, unless the node is stopped meanwhile."""
        pause, self._pause = self._pause, min(2 * self._pause, PAUSE_MOST)
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait([stopping], timeout=pause)
        finally:
            stopping.cancel()

    async def _give_up(self, error: BaseException) -> None:
        log.critical("node %r gives up: %s", self._loaded.config.node.name, error)
        self._error = error
        self._health.become(Phase.STOPPING, str(error) or type(error).__name__)
        await self._close_listeners()
        self._stopping.set()
        await self._close_rest()
        self._ended.set()


def open_audit(config: NodeConfig) -> AuditWriter | None:
    """What writes the audit; None: none is configured. Raises ConfigurationError if its file cannot be opened."""
    section = config.audit
    if section is None:
        return None
    with said_of(config, "audit.file"):
        opened = open_file(section.file)
    return AuditWriter(section.file, opened, config.node.name, section.queue, required=section.required)


class NullHandler:
    """Hears a link that was refused."""

    def on_frames(self, payloads: Sequence[bytes]) -> None:
        """Whatever is said."""

    def on_broken(self, reason: str) -> None:
        """Whatever came: the link is being closed."""

    def on_drained(self) -> None:
        """Nothing waits for that."""

    def on_closed(self, reason: str) -> None:
        """As asked."""


async def serve(config: NodeConfig, on_ready: Callable[[Node], None] | None = None) -> None:
    """Runs a node until SIGINT or SIGTERM, then stops it in order. Raises what `start` and `wait` raise.

    Told so before it serves, it stops as soon as it does; told once more, the process ends at once. SIGHUP opens the
    file of the audit anew, if there is one.
    """
    loop = asyncio.get_running_loop()
    stops: list[asyncio.Task[None]] = []
    early = asyncio.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)

    def note() -> None:
        early.set()
        for number in numbers:
            loop.remove_signal_handler(number)

    def stop() -> None:
        stops.append(loop.create_task(node.stop()))

    for number in numbers:
        with suppress(NotImplementedError):  # Windows: KeyboardInterrupt ends the process
            loop.add_signal_handler(number, note)
    node = await Node.start(config)
    for number in numbers:
        with suppress(NotImplementedError):
            loop.add_signal_handler(number, stop)
    if early.is_set():
        stop()
    if config.audit is not None:
        with suppress(NotImplementedError, AttributeError):  # Windows has no such signal
            loop.add_signal_handler(signal.SIGHUP, node.reopen_audit)
    if on_ready is not None:
        on_ready(node)
    with cycles_sought_seldom(), threads_switched_often():
        try:
            await node.wait()
        finally:
            await node.stop()


@contextmanager
def cycles_sought_seldom() -> Iterator[None]:
    """Within, the collector of reference cycles looks at what is young seldom, and at what is here now never.

    Events come in dictionaries by the ten thousand, and none of them is part of a cycle: with Python's own thresholds a
    quarter of a busy broker's time went to looking at them. It looks at no more than a few times that many at once, or
    100,000 filters that come would hold a turn for half a second. For a process that does nothing else.
    """
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 1, 3000)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


@contextmanager
def threads_switched_often() -> Iterator[None]:
    """Within, the threads that sync the disk do not wait long for Python's lock while the loop computes.

    A sync needs that lock after each of its dozen system calls, and with Python's own 5 ms a sync of 1 ms took 300 ms
    beside a busy loop. For a process that does nothing else.
    """
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
