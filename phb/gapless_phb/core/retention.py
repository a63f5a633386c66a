"""How many bytes of a log lie above a tick, from a few points in memory (protocol: release)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from gapless.core.stream.ticks import Tick

POINTS_MAX = 4096
"""How many points are kept: the error is about a two-thousandth of the log."""
POINTS_SAVED_MAX = 64


class ByteIndex:
    """A staircase of (last tick of a record, bytes logged up to there since the pubend was created).

    Exact at its points, rounded down between them. There are at most `POINTS_MAX`, evenly spread over the
    bytes: when they become too many, every second one goes and new ones come half as often.
    """

    __slots__ = ("_grain", "_sums", "_ticks", "total")

    def __init__(self, points: Sequence[tuple[Tick, int]] = ((0, 0),)) -> None:
        """An index with these points; the first is the foot of the log."""
        self._ticks = [tick for tick, _ in points]
        self._sums = [total for _, total in points]
        self._grain = 0
        self.total = self._sums[-1]
        """Bytes ever logged."""

    def __len__(self) -> int:
        return len(self._ticks)

    @property
    def size(self) -> int:
        """About how many bytes are in the log."""
        return self.total - self._sums[0]

    def add(self, tick: Tick, size: int) -> None:
        """A record of `size` bytes was appended under `tick`."""
        total = self.total = self.total + size
        if len(self._sums) > 2 and total - self._sums[-2] < self._grain:
            self._ticks[-1], self._sums[-1] = tick, total
            return
        self._ticks.append(tick)
        self._sums.append(total)
        if len(self._ticks) > POINTS_MAX:
            self._thin()

    def _thin(self) -> None:
        self._grain = max(2 * self._grain, 2 * self.size // POINTS_MAX)
        self._ticks = [*self._ticks[:-1:2], self._ticks[-1]]
        self._sums = [*self._sums[:-1:2], self._sums[-1]]

    def chop(self, upto: Tick) -> None:
        """Every record up to `upto` is gone."""
        foot = bisect_right(self._ticks, upto) - 1
        del self._ticks[: max(foot, 0)], self._sums[: max(foot, 0)]
        if len(self._ticks) < POINTS_MAX // 4:
            self._grain //= 2

    def between(self, lo: Tick, hi: Tick) -> int:
        """About how many bytes lie in (lo, hi]."""
        return self._upto(hi) - self._upto(lo)

    def above(self, tick: Tick) -> int:
        """About how many bytes lie above `tick`, rounded up."""
        return self.total - self._upto(tick)

    def _upto(self, tick: Tick) -> int:
        return self._sums[max(bisect_right(self._ticks, tick) - 1, 0)]

    def covered(self, least: int) -> Tick:
        """The highest tick known to have more than `least` bytes above it; 0 when there is none."""
        position = bisect_right(self._sums, self.total - least - 1) - 1
        return self._ticks[position] if position >= 0 else 0

    def next(self, tick: Tick) -> Tick | None:
        """The last tick of some record above `tick`, or None when there is no record above it."""
        position = bisect_right(self._ticks, tick)
        return self._ticks[position] if position < len(self._ticks) else None

    def sample(self, upto: Tick) -> list[tuple[Tick, int]]:
        """At most `POINTS_SAVED_MAX` points of the log up to a tick, the foot and that tick among them."""
        end = bisect_right(self._ticks, upto)
        points = list(zip(self._ticks[:end], self._sums[:end]))  # noqa: B905  # of one length by construction
        step = max(1, -(-len(points) // (POINTS_SAVED_MAX - 1)))
        return [*points[:-1:step], (upto, self._upto(upto))]
