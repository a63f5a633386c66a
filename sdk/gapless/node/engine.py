"""Turns: what happened is fed to the machine, and what the machine wants is carried out in order.

Everything that happens in one iteration of the event loop (frames, completed syncs, reads, the timer) is
noted and fed to the machine in a single turn right after; so one turn makes one write, one send per link
and one timer, whatever the load. There is no task, future or log line per message.

There is no clock, loop or thread in here: those are the `Shell`'s. In production it is `gapless.node.run`,
in the simulator a process under virtual time, so what is tested there is what runs here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from gapless.core.ports import Read, ReadResult
from gapless.errors import RecordsDamagedError, StorageError

if TYPE_CHECKING:
    from gapless.core.alarms import Alarm
    from gapless.core.ports import Operation
    from gapless.core.server import LinkOutput
    from gapless.node.machine import Cookie, Machine, Network, Output
    from gapless.spi import Link, LogVolume


class Shell(Protocol):
    """The world around an engine."""

    @property
    def clock(self) -> Callable[[], tuple[int, int]]:
        """Tells monotonic nanoseconds, and milliseconds since 1970."""

    def schedule(self) -> None:
        """Call `Engine.turn` soon, after what else happens now. Not asked for again before that turn."""

    def commit(self, operations: Sequence[Operation], cookies: Sequence[Cookie]) -> None:
        """Write all of it as one batch, see to its sync, then call `Engine.on_durable` in that order.

        Raises what the volume's `write` raises.
        """

    def carry_out_reads(self) -> None:
        """Call `Engine.read_one` for the reads that wait: now as many as there is time for, the rest later."""

    def arm(self, now: int, due: int) -> None:
        """Call `Engine.turn` at `due` or earlier."""

    def to_network(self, effect: Network) -> None:
        """Something for a link to another broker."""

    def alarm(self, alarm: Alarm) -> None:
        """Tell the operator."""

    def on_last_link_closed(self) -> None:
        """No client is connected any more."""

    def on_failed(self, error: BaseException) -> None:
        """The engine cannot go on: the storage failed, or the code. Called once."""


class LinkOwner:
    """Hears a client's link, for one engine."""

    __slots__ = ("_engine", "_number", "link", "pending")

    def __init__(self, engine: Engine, number: int, link: Link) -> None:
        self._engine = engine
        self._number = number
        self.link = link
        self.pending = 0
        """What the machine was last told."""

    def on_frames(self, payloads: Sequence[bytes]) -> None:
        """Frames arrived."""
        self._engine.on_frames(self._number, payloads)

    def on_broken(self, reason: str) -> None:
        """What came breaks the framing, or is too much."""
        self._engine.on_broken(self._number, reason)

    def on_drained(self) -> None:
        """Much had been pending, and now little is."""
        self._engine.on_drained(self._number)

    def on_closed(self, reason: str) -> None:
        """The link is over."""
        self._engine.on_closed(self._number)


class Engine:
    """A machine and its volume, turn by turn, until it is abandoned or fails."""

    def __init__(self, machine: Machine, volume: LogVolume, shell: Shell) -> None:
        self._machine = machine
        self._volume = volume
        self._shell = shell
        self.alive = True
        """Whether it has neither failed nor been abandoned."""
        self.scheduled = False
        """Whether a turn is due."""
        self.reads: deque[Read] = deque()
        """What waits to be read."""
        self.links: dict[int, LinkOwner] = {}
        """The clients' links, by number."""
        self._link_count = 0
        self._events: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        """What happened: a method of the machine and its arguments, but for the time."""
        self._due: int | None = None

    # What happened.

    def accept(self, link: Link) -> LinkOwner:
        """A client connected; the owner hears its link."""
        self._link_count += 1
        number = self._link_count
        owner = self.links[number] = LinkOwner(self, number, link)
        self._happened(self._machine.on_link, number, link.peer)
        return owner

    def on_frames(self, number: int, payloads: Sequence[bytes]) -> None:
        """Frames arrived on a client's link."""
        self._happened(self._machine.on_frames, number, payloads)

    def on_broken(self, number: int, reason: str) -> None:
        """What came on a client's link breaks the framing, or is too much."""
        self._happened(self._machine.on_link_broken, number, reason)

    def on_drained(self, number: int) -> None:
        """Little is pending on a link on which much was."""
        owner = self.links.get(number)
        if owner is not None:
            owner.pending = owner.link.pending
            self._happened(self._machine.on_pending, number, owner.pending)

    def on_closed(self, number: int) -> None:
        """A client's link is over."""
        self.links.pop(number, None)
        if not self.links:
            self._shell.on_last_link_closed()
        self._happened(self._machine.on_link_closed, number)

    def on_durable(self, cookies: Sequence[Cookie]) -> None:
        """The writes with these cookies are on disk."""
        self._happened(self._machine.on_durable, cookies)

    def on_space(self, *, low: bool) -> None:
        """The disk is nearly full, or no longer."""
        self._happened(partial(self._machine.on_space, low=low))

    def on_broker_link(self, number: int, peer: str, roles: frozenset[str], incarnation: int) -> None:
        """A link to another broker is there."""
        self._happened(self._machine.on_broker_link, number, peer, roles, incarnation)

    def on_broker_frame(self, number: int, frame: bytes) -> None:
        """A frame of another broker arrived."""
        self._happened(self._machine.on_broker_frame, number, frame)

    def on_broker_link_closed(self, number: int) -> None:
        """A link to another broker is gone."""
        self._happened(self._machine.on_broker_link_closed, number)

    # Commands.

    def call(self, command: Callable[[int, int], None]) -> None:
        """Gives an operator's command to a role, in the next turn: called with (now, wall)."""
        self._happened(command)

    def close(self, reason: str) -> None:
        """Ends all sessions in order, and refuses new ones."""
        self._happened(self._machine.close, reason)

    def read_one(self) -> None:
        """Carries out the read that waits longest; its answer is fed to the next turn."""
        self._happened(self._machine.on_read, self._read(self.reads.popleft()))

    def fail(self, error: BaseException) -> None:
        """Nothing is carried out any more, because of this."""
        if self.alive:
            self.alive = False
            self._shell.on_failed(error)

    def abandon(self) -> dict[int, LinkOwner]:
        """Nothing is carried out any more. Returns the links, which are the caller's now."""
        self.alive = False
        links, self.links = self.links, {}
        self._events.clear()
        self.reads.clear()
        return links

    # The turn.

    def turn(self) -> None:
        """Feeds the machine all that happened, and carries out what it wants."""
        self.scheduled = False
        if not self.alive:
            return
        try:
            now, wall = self._shell.clock()
            events, self._events = self._events, []
            for call, arguments in events:
                call(*arguments, now, wall)
            if self._due is not None and self._due <= now:
                self._machine.on_deadline(now, wall)
            self._carry_out(self._machine.take_output())
            if self.reads:
                self._shell.carry_out_reads()
            self._due = self._machine.deadline()
            if self._due is not None:
                self._shell.arm(now, self._due)
        except Exception as error:  # noqa: BLE001 - whatever it is, this machine cannot go on
            self.fail(error)

    def _happened(self, call: Callable[..., None], *arguments: Any) -> None:
        if self.alive:
            self._events.append((call, arguments))
            if not self.scheduled:
                self.scheduled = True
                self._shell.schedule()

    def _carry_out(self, output: Output) -> None:
        if output.operations or output.cookies:
            self._shell.commit(output.operations, output.cookies)
        for number, work in output.links.items():
            owner = self.links.get(number)
            if owner is not None:
                self._serve(number, owner, work)
        self.reads.extend(output.reads)
        for alarm in output.alarms:
            self._shell.alarm(alarm)
        for effect in output.network:
            self._shell.to_network(effect)

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

    def _read(self, read: Read) -> ReadResult:
        stream = self._volume.stream(read.stream)
        try:
            records = stream.read(read.after, read.upto, read.max_bytes)
        except RecordsDamagedError as error:
            return ReadResult(read.cookie, (), stream.first, str(error), error.upto)
        except StorageError as error:
            return ReadResult(read.cookie, (), stream.first, str(error) or type(error).__name__)
        return ReadResult(read.cookie, records, stream.first)
