"""Intervals of numbers, filed so that those around a number are found without looking at the others.

An interval lies in one or two cells of a grid whose cells are about as wide as itself, so one that has the
number in a cell of its own contains it, or nearly. There are as many grids as there are sizes, by powers of
two. Filing and taking away touch nothing but those cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from math import floor, frexp
from typing import Final, Generic, TypeVar

B = TypeVar("B", bound=Sized)

LIMIT_MAX: Final = 2.0**52
"""Bounds beyond this are not filed: there, floats are further apart than whole numbers."""

FINEST: Final = -30
"""Narrower intervals lie in cells of this power of two."""


class Spans(Generic[B]):
    """The buckets of one name's intervals."""

    __slots__ = ("_cells", "_grids", "_make")

    def __init__(self, make: Callable[[], B]) -> None:
        """`make` makes an empty bucket."""
        self._cells: dict[tuple[int, int], B] = {}
        self._grids: dict[int, int] = {}
        """How many intervals each grid has, by the power of two that its cells are wide."""
        self._make = make

    def __len__(self) -> int:
        return sum(self._grids.values())

    def take(self, low: float, high: float) -> list[B]:
        """The buckets to put an interval into."""
        grid = grid_of(low, high)
        self._grids[grid] = self._grids.get(grid, 0) + 1
        return [self._cells.setdefault(cell, self._make()) for cell in cells_of(grid, low, high)]

    def give(self, low: float, high: float) -> Iterator[B]:
        """The buckets that an interval is in; once it has been taken out of each, it is forgotten."""
        grid = grid_of(low, high)
        for cell in cells_of(grid, low, high):
            bucket = self._cells[cell]
            yield bucket
            if not len(bucket):
                del self._cells[cell]
        self._grids[grid] -= 1
        if not self._grids[grid]:
            del self._grids[grid]

    def around(self, value: float) -> Iterator[B]:
        """The buckets of the intervals that may contain a number; no interval is in two of them."""
        if not -LIMIT_MAX <= value <= LIMIT_MAX:
            return
        for grid in self._grids:
            bucket = self._cells.get((grid, floor(value / 2.0**grid)))
            if bucket is not None:
                yield bucket


def grid_of(low: float, high: float) -> int:
    """Which grid an interval is filed in: its cells are wider than the interval, and not twice as wide."""
    return max(frexp(high - low)[1], FINEST) if low < high else FINEST


def cells_of(grid: int, low: float, high: float) -> list[tuple[int, int]]:
    """The cells that an interval touches: one or two; none if it is empty."""
    width = 2.0**grid
    return [(grid, cell) for cell in range(floor(low / width), floor(high / width) + 1)] if low <= high else []
