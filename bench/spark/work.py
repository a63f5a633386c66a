"""The events, and what is asked of every system: three ways to read them, and one to read few of them at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

TENTHS: Final = 10
WANTED: Final = 3
"""What `tenth` says of the events that a selection takes."""
PARTITIONS: Final = 2
"""Pubends, partitions, or parts: so many tasks read a batch."""

_FILLER: Final = bytes(range(32, 127)) * 4
BODY: Final = 250


@dataclass(frozen=True)
class Event:
    """One event; some 300 bytes with what it is selected by."""

    number: int

    @property
    def body(self) -> bytes:
        """250 bytes."""
        head = b"%012d" % self.number
        start = self.number % 95
        return head + _FILLER[start : start + BODY - len(head)]

    @property
    def key(self) -> str:
        """One of a thousand."""
        return f"k{self.number % 1000}"

    @property
    def tenth(self) -> int:
        """What is selected by."""
        return self.number % TENTHS

    @property
    def partition(self) -> int:
        """Which of the pubends or partitions has it; each has as many as another of every tenth."""
        return self.number // TENTHS % PARTITIONS


def events(count: int) -> Iterator[Event]:
    """So many, in order."""
    return map(Event, range(count))


@dataclass(frozen=True)
class Work:
    """How events are read."""

    what: str
    columns: tuple[str, ...]
    """What is checked of it: of `number` and `payload`."""
    selective: bool = False
    small: bool = False
    """Few events in a batch, and few batches: what a batch costs whatever is in it."""

    @property
    def taken(self) -> int:
        """One of so many events comes out."""
        return TENTHS if self.selective else 1


WORKS: Final = {
    "wide": Work("all eight columns", ("number", "payload")),
    "narrow": Work("the place in the stream and the payload", ("payload",)),
    "selective": Work("all eight columns of the tenth that is wanted", ("number", "payload"), selective=True),
    "small": Work("a hundred events in a batch", ("number", "payload"), small=True),
}


@dataclass(frozen=True)
class Sizes:
    """How much there is of it."""

    events: int = 2_000_000
    batch: int = 500_000
    """Events of a batch."""
    small_batch: int = 100
    small_batches: int = 30
    rounds: int = 5
    limit_seconds: float = 300
    """For one query; what takes longer is stopped."""

    def batch_of(self, work: Work) -> int:
        """Events that one of its batches passes."""
        return self.small_batch if work.small else self.batch

    def total_of(self, work: Work) -> int:
        """Events that a query passes."""
        return self.small_batch * self.small_batches if work.small else self.events


FULL: Final = Sizes()
QUICK: Final = Sizes(events=40_000, batch=10_000, small_batches=5, rounds=1)
"""To see that everything runs; the figures mean nothing."""
