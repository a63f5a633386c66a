"""Which events a broker makes spans of, and what its roles tell of those (docs/howto/observe.md).

A PHB and the SHBs of a network choose the same events, without a word between them: those whose ticks lie in chosen
units. A unit is a grain of the pubend's ticks: a millisecond, or a record of a log that numbers its own. The units are
cut into runs, one for each chosen unit that the share allows; in its run it stands anywhere, by a checksum of the run's
number, so that nobody who publishes at a steady pace is always chosen, or never.

Roles know no times but those of their turns: what they tell here, the node makes spans of, by its own clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final
from zlib import crc32

from msgspec import Struct

from gapless.core.stream.columns import EventBatch, EventColumns
from gapless.core.stream.ticks import FOREVER, PubendId, Tick

EVENTS_MAX: Final = 64
"""Of so many events of a step, at most, it is told where they come from."""
_ONE: Final = 1 << 32
_ROUND: Final = _ONE - 1


class Logged(Struct, frozen=True, gc=False):
    """A batch that a PHB has logged, durably."""

    pubend: PubendId
    first: EventBatch
    """Its first event alone."""
    count: int
    came: int
    """When it came to this broker, in monotonic nanoseconds."""
    is_in_volume: bool
    """Whether it is the node's own sync that has made it durable."""


class Matched(Struct, frozen=True, gc=False):
    """A step of an SHB's live delivery: its events were matched, and leave with this turn for whom they match."""

    pubend: PubendId
    chosen: EventBatch
    """Those of its events that are chosen; of many only the first ones."""
    count: int
    """How many events the step has."""
    deliveries: int
    """How many events go to consumers; one that goes to several counts for each."""


class Sampler:
    """Chooses events of one pubend by their ticks."""

    __slots__ = ("_clear_from", "_clear_upto", "_grain", "_share")

    def __init__(self, share: float, grain: Tick) -> None:
        """`share`: which part of all units is chosen, from 0 to 1."""
        self._share = min(round(share * _ONE), _ONE)
        self._grain = grain
        self._clear_from: Tick = 0
        self._clear_upto: Tick = FOREVER if not self._share else 0
        """Between these nothing is chosen: what the last look has found."""

    def chooses(self, first: Tick, last: Tick) -> bool:
        """Whether one of the units from that of one tick to that of another is chosen."""
        if self._clear_from <= first and last < self._clear_upto:
            return False
        return self._look(first // self._grain, last // self._grain)

    def places(self, ticks: Sequence[Tick]) -> list[int]:
        """Returns where the events stand that are chosen, of those that have these ascending ticks: the first ones."""
        places: list[int] = []
        if not ticks or not self.chooses(ticks[0], ticks[-1]):
            return places
        grain = self._grain
        for unit in self._chosen(ticks[0] // grain, ticks[-1] // grain):
            start = bisect_left(ticks, unit * grain)
            stop = bisect_left(ticks, (unit + 1) * grain, start)
            places += range(start, min(stop, start + EVENTS_MAX - len(places)))
            if len(places) == EVENTS_MAX:
                break
        return places

    def _look(self, first: int, last: int) -> bool:
        if next(self._chosen(first, last), None) is not None:
            return True
        run = self._run_of(first)
        before, after = self._unit(run), self._unit(run + 1)
        if before > last:
            before, after = self._unit(run - 1), before
        self._clear_from, self._clear_upto = (before + 1) * self._grain, after * self._grain
        return False

    def _chosen(self, first: int, last: int) -> Iterator[int]:
        """Yields the chosen units from the first to the last of these."""
        for run in range(self._run_of(first), self._run_of(last) + 1):
            if first <= (unit := self._unit(run)) <= last:
                yield unit

    def _run_of(self, unit: int) -> int:
        return unit * self._share >> 32

    def _unit(self, run: int) -> int:
        """Returns the unit that is chosen of a run."""
        start, end = self._start(run), self._start(run + 1)
        return start + crc32((run & _ROUND).to_bytes(4, "big")) % (end - start)

    def _start(self, run: int) -> int:
        """Returns the first unit of a run."""
        return -(-run * _ONE // self._share)


def logged(pubend: PubendId, tick: Tick, columns: EventColumns, came: int, *, is_in_volume: bool) -> Logged:
    """Returns what a PHB tells of a batch, which has this tick first."""
    first = columns.slice(0, 1).batch((tick,))
    return Logged(pubend, first, columns.count, came, is_in_volume)
