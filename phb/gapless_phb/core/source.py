"""The seam between the two halves of a pubend: its source and its retention (protocol: log, members, release).

    source    knows which events are in the pubend and how far that is decided. This broker assigns the ticks of an
              `OwnLogSource` (`own_log.source`) itself; a `ForeignLogSource` (`foreign_log.source`) stands over a log
              which numbers its records itself.
    retention knows who needs the events and how far they may be forgotten (`retention.members`). It is the same for
              every source.

The retention reads the source's `Facts`, asks the source to give up what may go, and is called when the source grows.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Protocol, TypeAlias

from gapless.core.deadlines import Deadlines
from gapless.core.gauges import Gauge, Histogram
from gapless.core.network.facts import BrokerId, OpenRequest, Pub
from gapless.core.outbox import Outbox, Then
from gapless.core.ports import Authorizer, LogBytes
from gapless.core.stream.columns import EventBatch
from gapless.core.stream.ticks import FOREVER, PubendId, Tick
from gapless_phb.core.damage import Damage
from gapless_phb.core.rows import Tables
from gapless_phb.core.settings import Settings

SECOND = 1_000_000_000
"""One second in nanoseconds."""
ANSWER_BYTES: Final = 128 << 10
"""So much is read at once for wants: what arrives is decoded in one turn, also if it is thousands of small events."""


@dataclass(frozen=True, slots=True)
class PubendContext:
    """What all pubends of a broker share."""

    network: str
    broker: BrokerId
    volume: str
    """The storage id of the broker's volume."""
    tables: Tables
    settings: Settings
    authorizer: Authorizer
    outbox: Outbox
    boot: str
    """In which run of the machine `now` counts; "" if that is unknown."""
    audited: bool
    """Whether anybody writes an audit."""
    publish_seconds: Histogram
    """How long batches take until their receipts may leave."""
    traces: float = 0.0
    """`RoleContext.traces`."""


class Timer(Enum):
    """The timers of a pubend; each value describes what happens when the time has come."""

    SILENCE = "SIL: say that nothing happened"
    ACKNOWLEDGEMENT = "AET: ask for progress"
    RELEASE = "chop what may go"
    LOG = "read older marks of a log again"
    END = "find the end of a log again"
    SCAN = "read the marks of the past again"
    CHECKPOINT = "write what is known of the publishers of a numbered log"
    FORGETTING = "forget publishers without a name that do not come back"


class Timers(Deadlines[Timer]):
    """The deadlines of both halves of a pubend in one order, with the function to call for each."""

    __slots__ = ("_calls", "_outbox")

    def __init__(self, outbox: Outbox) -> None:
        super().__init__()
        self._outbox = outbox
        self._calls: dict[Timer, Callable[[int, int], None]] = {}

    def on(self, timer: Timer, call: Callable[[int, int], None]) -> None:
        """Sets the function that is called, with (now, wall), when this timer expires."""
        self._calls[timer] = call

    def wake(self, timer: Timer, at: int) -> None:
        """Lets the timer expire at this time, unless it is set to expire sooner."""
        if at < self._at.get(timer, FOREVER):
            self.set(timer, at)
            self._outbox.wake_at(at)

    @property
    def deadline(self) -> int:
        """When the first timer expires, in monotonic nanoseconds, or FOREVER."""
        due = self.next()
        return FOREVER if due is None else due

    def on_deadline(self, now: int, wall: int) -> None:
        """Calls the functions of all timers that have expired."""
        for timer in self.take_expired(now):
            self._calls[timer](now, wall)


class Piece(Protocol):
    """A decoded piece of a log that is read whole: the events after the piece before it, up to its own last tick."""

    @property
    def previous(self) -> Tick:
        """The last tick of the piece before this one; 0 in the first piece."""

    @property
    def first_tick(self) -> Tick:
        """The tick of its first event, or one before that."""

    @property
    def last_tick(self) -> Tick:
        """The last tick that it covers."""

    def within(self, lo: Tick, hi: Tick) -> EventBatch:
        """Returns its events with ticks in (lo, hi]."""


class Found(NamedTuple):
    """What a log has in a range (after, upto], or in the first part of it."""

    pieces: list[Piece]
    """Each covers all above the one before it; the first one, all above `after`."""
    reached: Tick
    """How far that is known; 0 if not at all."""
    first: Tick
    """Everything at or below it may be gone; it was looked at after the read (T43)."""
    size: int
    """How many bytes were read."""
    fault: str
    """Why nothing is known behind `reached`, or ""."""
    hole: Tick
    """Where the part ends that cannot be read, so that reading goes on behind it; 0 if that is not known."""


ThenFound: TypeAlias = "Callable[[Found, int], None]"
"""(what was found, now)."""


class Sizes(LogBytes, Protocol):
    """About how many bytes of a log lie where."""

    def between(self, lo: Tick, hi: Tick) -> int:
        """Returns about how many bytes lie in (lo, hi]."""

    def next(self, tick: Tick) -> Tick | None:
        """Returns the tick of something above `tick` that its host may remove, or None if there is nothing."""

    @property
    def total(self) -> int:
        """How many bytes were ever logged, or followed."""

    def sample(self, upto: Tick) -> list[tuple[Tick, int]]:
        """Returns some points (tick, total up to there), the last of them at `upto`: what a checkpoint stores."""


class Facts(Protocol):
    """What a source reports about its log; the values are current."""

    pubend: PubendId
    grain: Tick
    """How many of its ticks make one unit of distance (`PubendMeta.grain`)."""
    ready: bool
    """Whether the findings of the start are durable; before, none of them may be sent."""
    lost: Tick
    """Durable: events at or below it may be gone."""
    lost_asked: Tick
    """The highest value of `lost` that was ever given to a write. The write may not be durable yet."""
    newest: Tick
    """The newest event that was sent to the network."""
    stable: Tick
    """Everything at or below it is decided, durable and sent to the network."""
    damage: Damage

    @property
    def index(self) -> Sizes:
        """Estimates how many bytes lie where."""

    def answered_upto(self, tick: Tick) -> Tick:
        """Returns how far the answer goes to a want that ends at `tick`."""

    def is_silent(self, lo: Tick, hi: Tick) -> bool:
        """Whether it is known without a read that no event is in (lo, hi], which is decided."""

    @property
    def suspect(self) -> bool:
        """Whether the age of events is unknown."""

    def read(self, after: Tick, upto: Tick, then: ThenFound) -> None:
        """Reads what is in (after, upto], or the first part of it."""


class Source(Protocol):
    """The half of a pubend that provides its events."""

    @property
    def log(self) -> Facts:
        """The events of the pubend, and how far they are decided."""

    on_grown: Callable[[int], None]
    """Called with the time when something is durable that will be sent at the end of this turn."""

    def void(self, now: int, wall: int) -> tuple[Tick, Tick] | None:
        """Returns the interval before this start in which no event was or ever will be; None if there is none."""

    def fork(self, upto: Tick, now: int, wall: int) -> Sequence[tuple[Tick, Tick]]:
        """Another process of this node may have logged events under its name, and has told somebody all up to a tick.

        Gives up the ticks where this one cannot know what that one has, and returns them.
        """

    def begin(self, ready: Then, now: int, wall: int) -> None:
        """Makes the findings of the start durable, then calls `ready`."""

    def start(self, now: int, wall: int) -> None:
        """The network knows the pubend now: sends what is decided, and goes on doing so."""

    def promise(self, now: int, wall: int) -> None:
        """Decides and sends all that can be decided now: an SHB asks for more than was sent."""

    def present(self, now: int, wall: int) -> Tick:
        """Returns the present by which events grow old."""

    def locate(self, wall: int, then: Callable[[Tick], None]) -> None:
        """Finds the tick behind which everything of a wall time and later lies, and calls `then` with it."""

    def give_up(self, upto: Tick, again: Callable[[int], None]) -> None:
        """Gives up everything up to a tick, if that removes anything.

        If something has to be durable first, the source writes that, and calls `again` with the time when it is
        durable.
        """

    def knows(self, publisher: str, *, keyed: bool) -> bool:
        """Whether a publisher, or a producer of keyed batches, has published to this pubend."""

    def open_publisher(self, request: OpenRequest, reply_to: Hashable, now: int, wall: int) -> None:
        """Opens a publisher, and answers."""

    def submit(self, pub: Pub, reply_to: Hashable, refusal: str, now: int, wall: int) -> None:
        """Takes a batch of a publisher. `refusal`: why nothing new can be taken now, or ""."""

    def end(self, request: OpenRequest, reply_to: Hashable, now: int) -> None:
        """Closes a publisher, or notes that its session has ended."""

    @property
    def publisher_count(self) -> int:
        """How many publishers are known."""

    def gauges(self) -> Iterator[Gauge]:
        """Yields its positions, its sizes, and what else an operator has to know."""
