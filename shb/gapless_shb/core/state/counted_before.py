"""What readers have found for a subscription where the PFS knows nothing of it: before it joined.

The PFS cannot count these events, and a count that read the log would take too long for a listing. But whoever consumes
them has a reader, which filters them anyway. What it finds is noted here, in memory, as a few runs: so a consumer that
is stuck at its first event has a lag, with and without a consumer. A restart of the broker forgets it.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

from gapless.core.stream.ticks import Tick

RUNS_MAX: Final = 32
"""How many runs a subscription has on a pubend at most. If an acknowledged position is inside of a run, the rest of
that run counts as one event: so it is some three percent of all that a count may lack then."""


class CountedBefore:
    """The events of one subscription on one pubend that readers found in (begin, upto], as runs."""

    __slots__ = ("_begin", "_counts", "_firsts", "_lasts", "_upto")

    def __init__(self, begin: Tick) -> None:
        self._forget(begin)

    def _forget(self, begin: Tick) -> None:
        self._begin = begin
        """From here on nothing is missing."""
        self._upto = begin
        self._firsts = array("q")
        self._lasts = array("q")
        self._counts = array("q")

    def note(self, start: Tick, upto: Tick, ticks: Sequence[Tick], *, whole: bool) -> None:
        """A reader found these events in (start, upto]. `whole`: nothing in there is lost.

        What is read once more, by a consumer that has gone back, counts once.
        """
        if start < self._begin:
            self._forget(start)
        if start > self._upto or not whole:
            self._begin = start if whole else upto
        new = [tick for tick in ticks if tick > self._upto]
        self._upto = max(self._upto, upto)
        length = -(-len(new) // RUNS_MAX)
        for at in range(0, len(new), length or 1):
            part = new[at : at + length]
            self._firsts.append(part[0])
            self._lasts.append(part[-1])
            self._counts.append(len(part))
        while len(self._counts) > RUNS_MAX:
            self._join_two()

    def due(self, done_upto: Tick) -> tuple[int, Tick]:
        """Returns how many events are above a tick, at least, and the first of them that is known; 0 if there is none.

        Runs up to that tick are forgotten.
        """
        settled = sum(1 for last in self._lasts if last <= done_upto)
        for column in (self._firsts, self._lasts, self._counts):
            del column[:settled]
        if not self._counts:
            return 0, 0
        if self._firsts[0] > done_upto:
            return sum(self._counts), self._firsts[0]
        return 1 + sum(self._counts[1:]), self._lasts[0]

    def covers(self, done_upto: Tick, upto: Tick) -> bool:
        """Whether `due` counts everything in (done_upto, upto]."""
        inside = any(first <= done_upto < last for first, last in zip(self._firsts, self._lasts, strict=True))
        return self._begin <= done_upto and upto <= self._upto and not inside

    def _join_two(self) -> None:
        """Makes one of the two neighbours that have the fewest events together."""
        counts = self._counts
        at = min(range(len(counts) - 1), key=lambda at: counts[at] + counts[at + 1])
        counts[at] += counts.pop(at + 1)
        del self._firsts[at + 1]
        self._lasts[at] = self._lasts.pop(at + 1)
