"""The ticks of a Kafka partition, and the leader epochs that they are made of (protocol: numbered-logs).

    tick = leader epoch << 44 | offset + 1

A record at offset n, written under leader epoch e, has the tick e << 44 | n + 1. As a position a tick is that of the
last record that was read, so `offset_of(tick)` is the offset to be read next. Nothing here does I/O.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from gapless.core.stream.ticks import OFFSET_BITS, Tick
from gapless_log.kafka.messages import UNKNOWN

OFFSETS_MAX: Final = 1 << OFFSET_BITS
"""As many records can be numbered: 17.6 T."""
EPOCHS_MAX: Final = 1 << 63 - OFFSET_BITS
"""As many leader epochs can be, so many elections."""


class TicksExhaustedError(ValueError):
    """An offset or a leader epoch is too large for a tick: the topic cannot be read any further."""


def tick_at(leader_epoch: int, offset: int) -> Tick:
    """Returns the tick of one who reads `offset` next, and has read what is below it under this leader epoch."""
    if not (0 <= leader_epoch < EPOCHS_MAX and 0 <= offset < OFFSETS_MAX):
        raise TicksExhaustedError(f"leader epoch {leader_epoch}, offset {offset}: no tick is that large")
    return leader_epoch << OFFSET_BITS | offset


def epoch_of(tick: Tick) -> int:
    """Returns the leader epoch of a tick."""
    return tick >> OFFSET_BITS


def offset_of(tick: Tick) -> int:
    """Returns the offset that is read next by who stands at a tick."""
    return tick & (OFFSETS_MAX - 1)


class Place(NamedTuple):
    """Where reading goes on."""

    offset: int
    last_epoch: int
    """That of the record before `offset`; `UNKNOWN` if that cannot be checked."""


class Lineage:
    """Which leader epochs wrote a partition's log, each from which offset on; the last one's end is open."""

    def __init__(self, begins: Iterable[tuple[int, int]]) -> None:
        """`begins`: leader epochs, rising, each with the offset of its first record."""
        found = list(begins)
        assert all(one[0] < other[0] and one[1] <= other[1] for one, other in pairwise(found)), found
        self._epochs = [epoch for epoch, _ in found]
        self._begins = [begin for _, begin in found]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Lineage):
            return NotImplemented
        return self.begins == other.begins

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Lineage({self.begins})"

    @property
    def begins(self) -> Sequence[tuple[int, int]]:
        """The leader epochs, each with the offset of its first record."""
        return tuple(zip(self._epochs, self._begins, strict=True))

    @property
    def last_epoch(self) -> int:
        """The newest leader epoch."""
        return self._epochs[-1] if self._epochs else 0

    def position(self, offset: int) -> Tick:
        """Returns the tick of one who has read everything below `offset`.

        If the record before it is gone, and its leader epoch is not known any more: under the oldest one that is known.
        """
        return tick_at(self._epoch_at(offset - 1), offset)

    def told_anew(self, lineage: Lineage, reached: int | None) -> Lineage:
        """Returns what is known when a leader tells the lineage anew. `reached`: up to where this one was read.

        Of leader epochs that have no record left a leader tells nothing. Whoever has read all that they wrote has lost
        nothing, though, and he stands in one of them: so they are remembered, if this is how the log went on.
        """
        if not lineage.begins:
            return lineage
        (epoch, begin), *later = lineage.begins
        before = [each for each in self.begins if each[0] <= epoch and each[1] <= begin]
        if before and before[-1][0] == epoch:  # it may be told to begin where the log does, and began earlier
            return Lineage([*before, *later])
        return Lineage([*before, *lineage.begins]) if begin == reached else lineage

    def seek(self, tick: Tick) -> Place:
        """Returns where one who stands at `tick` goes on.

        If the log was cut below `tick`, that is where the cut is: what one had read above it is not in the log.
        """
        at = bisect_right(self._epochs, epoch_of(tick))
        if not at:
            return Place(self._begins[0] if self._begins else offset_of(tick), UNKNOWN)
        offset = offset_of(tick)
        if at < len(self._begins):
            offset = min(offset, self._begins[at])
        return Place(offset, self._epoch_at(offset - 1) if offset else UNKNOWN)

    @property
    def voids(self) -> Sequence[tuple[Tick, Tick]]:
        """The intervals (lo, hi] between leader epochs: no record has such a tick, nor ever will have one."""
        voids: list[tuple[Tick, Tick]] = []
        for before, epoch, begin in zip(self._epochs, self._epochs[1:], self._begins[1:], strict=False):
            lo, hi = tick_at(before, begin), tick_at(epoch, begin)
            if voids and voids[-1][1] == lo:
                lo = voids.pop()[0]
            voids.append((lo, hi))
        return tuple(voids)

    def behind(self, tick: Tick) -> Tick:
        """Returns the end of the void that begins at `tick` or contains it; without one, `tick`."""
        return next((hi for lo, hi in self.voids if lo <= tick < hi), tick)

    def _epoch_at(self, offset: int) -> int:
        """Returns the leader epoch of the record at an offset; of the oldest one that is known, for one below."""
        if not self._epochs:
            return 0
        return self._epochs[max(0, bisect_right(self._begins, offset) - 1)]
