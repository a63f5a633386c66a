"""What is published in the race, who wants what of it, and the proof that everyone got exactly that.

An event has a body of 200 bytes and three properties; with their names it is about 250 bytes anywhere.
The body begins with the event's number and the time at which it was due, so that a subscriber can
prove what it received and how late, in whatever way a system carries the rest.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

BODY_SIZE = 200
ORIGIN = "JFK"
HEAD = Struct(">QQ")
_PADDING = b"x" * (BODY_SIZE - HEAD.size)
_SHARES = {"quarter": 4, "percent": 100}


class Event(NamedTuple):
    """What is published. Its third property, `origin`, is always the same."""

    body: bytes
    quarter: int
    percent: int


def event(number: int, due_ns: int = 0) -> Event:
    """The event of a number; one in 4 has a given `quarter`, one in 100 a given `percent`."""
    return Event(HEAD.pack(number, due_ns) + _PADDING, number % 4, number // 4 % 100)


@dataclass(frozen=True)
class Subscriber:
    """A durable subscriber: it wants the events whose property `wanted` has its `value`, and no other."""

    number: int
    wanted: str
    value: int

    @property
    def name(self) -> str:
        """Unique within a topic."""
        return f"s{self.number}"


def subscribers(total: int, wanted: str, first: int = 0, step: int = 1) -> list[Subscriber]:
    """Every `step`-th of `total` subscribers; each value is wanted by equally many of all."""
    return [Subscriber(number, wanted, number % _SHARES[wanted]) for number in range(first, total, step)]


@dataclass
class Tally:
    """What one subscriber has received, against what it should: how many, which ones, in which order."""

    count: int
    """How many events it has to get."""
    checksum: int
    clocked: bool = False
    """Whether it notes how late each event is."""
    received: int = 0
    latencies_us: list[int] = field(default_factory=list)
    on_done: Callable[[], object] = lambda: None
    """Called once, when it has got as many as it should, in whatever thread that happens."""
    _checksum: int = 0

    def done(self) -> bool:
        """Whether it has got as many as it should."""
        return self.received >= self.count

    @property
    def correct(self) -> bool:
        """Whether it has got exactly what it should, in the order of publishing."""
        return self.received == self.count and self._checksum == self.checksum

    def take(self, bodies: Sequence[bytes]) -> None:
        """Bodies of events that it wants, as they were delivered."""
        was_done = self.done()
        self.received += len(bodies)
        self._checksum = zlib.crc32(b"".join([body[:8] for body in bodies]), self._checksum)
        if self.clocked:
            now = time.monotonic_ns()
            self.latencies_us += [(now - HEAD.unpack_from(body)[1]) // 1000 for body in bodies]
        if self.done() and not was_done:
            self.on_done()


def tallies(mine: Iterable[Subscriber], published: int, *, clocked: bool = False) -> list[Tally]:
    """For each subscriber, what it should get of the events 0 to `published` - 1."""
    expected: dict[tuple[str, int], tuple[int, int]] = {}
    for wanted in {subscriber.wanted for subscriber in mine}:
        numbers: dict[int, list[bytes]] = {value: [] for value in range(_SHARES[wanted])}
        for number in range(published):
            each = event(number)
            numbers[getattr(each, wanted)].append(each.body[:8])
        expected |= {(wanted, value): (len(heads), zlib.crc32(b"".join(heads))) for value, heads in numbers.items()}
    return [Tally(*expected[subscriber.wanted, subscriber.value], clocked=clocked) for subscriber in mine]


def visit() -> Tally:
    """The tally of a subscriber that only shows up, so that it is known from then on."""
    return Tally(0, 0)


class Rhythm:
    """When a position should be recorded in a server to which that costs something: once a second."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def due(self) -> bool:
        """Whether a second has passed since it last was."""
        now = time.monotonic()
        if now - self._last < 1:
            return False
        self._last = now
        return True
