"""The two halves of a pubend, and what they know of each other (protocol: log, members, release).

    source    says what is in the pubend and how far that is decided: `Own` (`gapless_phb.core.own`), whose ticks this
              broker gives out itself. One that follows a log which numbers its records itself would stand beside it.
    keeping   says who needs it and how far it may be forgotten (`gapless_phb.core.keeping`): the same for every source.

The keeping reads the source's `Facts`, asks it to give up what may go, and hears when something was added.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from gapless.core.deadlines import Deadlines
from gapless.core.gauges import Gauge
from gapless.core.network.facts import BrokerId, OpenRequest, Pub
from gapless.core.outbox import Outbox, Then
from gapless.core.ports import Authorizer
from gapless.core.stream.columns import EventBatch
from gapless.core.stream.ticks import FOREVER, PubendId, Tick
from gapless_phb.core.damage import Damage
from gapless_phb.core.retention import ByteIndex
from gapless_phb.core.rows import Tables
from gapless_phb.core.settings import Settings

SECOND = 1_000_000_000
"""In nanoseconds."""


@dataclass(frozen=True, slots=True)
class PubendContext:
    """Where pubends live: the same for all of a broker."""

    network: str
    broker: BrokerId
    tables: Tables
    settings: Settings
    authorizer: Authorizer
    outbox: Outbox


class Timer(Enum):
    """What a pubend does when time has passed."""

    SILENCE = "SIL: say that nothing happened"
    ACKNOWLEDGEMENT = "AET: ask for progress"
    RELEASE = "chop what may go"
    FORGETTING = "forget publishers without a name that do not come back"


class Timers(Deadlines[Timer]):
    """The deadlines of both halves in one order, and who is called when one has come."""

    __slots__ = ("_calls", "_outbox")

    def __init__(self, outbox: Outbox) -> None:
        super().__init__()
        self._outbox = outbox
        self._calls: dict[Timer, Callable[[int, int], None]] = {}

    def on(self, timer: Timer, call: Callable[[int, int], None]) -> None:
        """From now on `call` is called, with (now, wall), when this timer has come."""
        self._calls[timer] = call

    def wake(self, timer: Timer, at: int) -> None:
        """The timer comes at this time, unless it comes sooner."""
        if at < self._at.get(timer, FOREVER):
            self.set(timer, at)
            self._outbox.wake_at(at)

    @property
    def deadline(self) -> int:
        """When the first one comes: monotonic nanoseconds, or FOREVER."""
        due = self.next()
        return FOREVER if due is None else due

    def on_deadline(self, now: int, wall: int) -> None:
        """Calls whoever is due."""
        for timer in self.take_expired(now):
            self._calls[timer](now, wall)


class Piece(Protocol):
    """An atomic piece of a log, decoded: events between the piece before it and its own last tick."""

    @property
    def previous(self) -> Tick:
        """The last tick of the piece before it, 0 in the first."""

    @property
    def first_tick(self) -> Tick:
        """The tick of its first event."""

    @property
    def last_tick(self) -> Tick:
        """The tick of its last event, and its index in the log."""

    def within(self, lo: Tick, hi: Tick) -> EventBatch:
        """Its events with ticks in (lo, hi]."""


class Facts(Protocol):
    """What a source says of its log, as it is now."""

    pubend: PubendId
    stream: str
    """The name of the log, for reading."""
    grain: Tick
    """How many of its ticks make a unit of distance (`PubendMeta.grain`)."""
    ready: bool
    """Whether what was found at the start is durable; before, nothing may be said of it."""
    lost: Tick
    """Durable: what is at or below it may be gone."""
    lost_asked: Tick
    """The highest value of `lost` that was ever given to a write."""
    newest: Tick
    """The newest event that was told."""
    stable: Tick
    """Everything at or below it is decided, durable and told."""
    index: ByteIndex
    damage: Damage

    @property
    def suspect(self) -> bool:
        """Whether nobody knows how old an event is."""

    def decode(self, index: Tick, raw: bytes) -> Piece:
        """What was found in the log under an index. Raises VolumeCorruptError if it is not what was put there."""


class Source(Protocol):
    """Where the events of a pubend come from."""

    @property
    def log(self) -> Facts:
        """What is in the pubend, and how far it is decided."""

    on_grown: Callable[[int], None]
    """Called with the time when something is durable that is told at the end of this turn."""

    def void(self, now: int, wall: int) -> tuple[Tick, Tick] | None:
        """The interval before this start in which no event was or ever will be, if there is one."""

    def begin(self, ready: Then, now: int, wall: int) -> None:
        """Adopts what was found; `ready` is called when that is durable."""

    def start(self, now: int, wall: int) -> None:
        """The network knows of the pubend: says what is decided, and goes on doing so."""

    def promise(self, now: int, wall: int) -> None:
        """Decides and tells all that can be decided now: somebody asks for more than was told."""

    def present(self, now: int, wall: int) -> Tick:
        """The present by which events grow old."""

    def give_up(self, upto: Tick, again: Callable[[int], None]) -> None:
        """Gives up everything up to a tick, if that removes anything.

        Where something has to be durable before, it sees to that, and calls `again` with the time when it is.
        """

    def knows(self, publisher: str, *, keyed: bool) -> bool:
        """Whether a publisher, or a producer of keyed batches, has published here."""

    def open_publisher(self, request: OpenRequest, reply_to: Hashable, now: int, wall: int) -> None:
        """A publisher is opened here."""

    def submit(self, pub: Pub, reply_to: Hashable, refusal: str, now: int, wall: int) -> None:
        """A publisher sent a batch; `refusal`: why nothing new can be taken now, or ""."""

    def end(self, request: OpenRequest, reply_to: Hashable, now: int) -> None:
        """A publisher is closed, or its session has ended."""

    @property
    def publisher_count(self) -> int:
        """How many publishers are known."""

    def gauges(self) -> Iterator[Gauge]:
        """Its positions and sizes, and what else it has to tell an operator."""
