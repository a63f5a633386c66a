"""Estimates how many bytes of a log lie above a tick, from a few points in memory (protocol: release)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from gapless.core.stream.ticks import Tick

POINTS_MAX = 4096
"""How many points are kept. The error is then about a two-thousandth of the log."""
POINTS_SAVED_MAX = 64


class ByteIndex:
    """A staircase of pairs (last tick of a record, bytes logged up to it since the pubend was created).

    It is exact at its points and rounds down between them. There are at most `POINTS_MAX` points, evenly spread over
    the bytes. When there are too many, every second point is dropped and new ones are added half as often.
    """

    __slots__ = ("_grain", "_sums", "_ticks", "total")

    def __init__(self, points: Sequence[tuple[Tick, int]] = ((0, 0),)) -> None:
        """Creates an index with these points; the first is the beginning of the log."""
        self._ticks = [tick for tick, _ in points]
        self._sums = [total for _, total in points]
        self._grain = 0
        assert self._ticks == sorted(self._ticks), "both columns only rise"
        assert self._sums == sorted(self._sums), "both columns only rise"
        self.total = self._sums[-1]
        """How many bytes were ever logged."""

    def __len__(self) -> int:
        return len(self._ticks)

    @property
    def size(self) -> int:
        """About how many bytes the log has now."""
        return self.total - self._sums[0]

    def add(self, tick: Tick, size: int) -> None:
        """Notes that a record of `size` bytes was appended under `tick`."""
        assert tick >= self._ticks[-1], "records are added in the order of their ticks"
        total = self.total = self.total + size
        # Too near to the point before the last: the last point moves instead of a new one being added.
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
        """Notes that every record up to `upto` is gone."""
        foot = bisect_right(self._ticks, upto) - 1
        del self._ticks[: max(foot, 0)], self._sums[: max(foot, 0)]
        if len(self._ticks) < POINTS_MAX // 4:
            self._grain //= 2

    def between(self, lo: Tick, hi: Tick) -> int:
        """Returns about how many bytes lie in (lo, hi]."""
        return self._upto(hi) - self._upto(lo)

    def above(self, tick: Tick) -> int:
        """Returns about how many bytes lie above `tick`, rounded up."""
        return self.total - self._upto(tick)

    def _upto(self, tick: Tick) -> int:
        return self._sums[max(bisect_right(self._ticks, tick) - 1, 0)]

    def covered(self, least: int) -> Tick:
        """Returns the highest known tick with more than `least` bytes above it; 0 if there is none."""
        position = bisect_right(self._sums, self.total - least - 1) - 1
        return self._ticks[position] if position >= 0 else 0

    def next(self, tick: Tick) -> Tick | None:
        """Returns the last tick of some record above `tick`, or None if there is no record above it."""
        position = bisect_right(self._ticks, tick)
        return self._ticks[position] if position < len(self._ticks) else None

    def sample(self, upto: Tick) -> list[tuple[Tick, int]]:
        """Returns at most `POINTS_SAVED_MAX` points up to a tick; the first point and that tick are among them."""
        end = bisect_right(self._ticks, upto)
        points = list(zip(self._ticks[:end], self._sums[:end]))  # noqa: B905  # of one length by construction
        step = max(1, -(-len(points) // (POINTS_SAVED_MAX - 1)))
        return [*points[:-1:step], (upto, self._upto(upto))]
