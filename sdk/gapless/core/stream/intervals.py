"""Half-open integer intervals (lo, hi]: sets of them, and maps from them to values.

Each operation costs O(log n + k), where n is the number of intervals and k the number of intervals that are touched;
the number of integers in them does not matter. An interval whose lo is not below its hi is empty: adding it, removing
it or asking about it does nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeAlias, TypeVar

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Half-open intervals (lo, hi], sorted, disjoint."""
Value = TypeVar("Value")


class IntervalSet:
    """A set of integers, stored as sorted, disjoint, merged intervals."""

    __slots__ = ("_his", "_los")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        """Makes the union of these intervals, which may come in any order and overlap."""
        self._los: list[int] = []
        self._his: list[int] = []
        for lo, hi in ranges:
            self.add(lo, hi)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yields the intervals, in order. The set must not be changed meanwhile."""
        return zip(self._los, self._his, strict=True)

    def __len__(self) -> int:
        """How many intervals there are (`total` counts integers)."""
        return len(self._los)

    def __contains__(self, number: int) -> bool:
        return self.covers(number - 1, number)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IntervalSet):
            return NotImplemented
        return self._los == other._los and self._his == other._his

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"IntervalSet({list(self)})"

    def __or__(self, other: IntervalSet) -> IntervalSet:
        return IntervalSet([*self, *other])

    def __and__(self, other: IntervalSet) -> IntervalSet:
        return IntervalSet(part for lo, hi in other for part in self.within(lo, hi))

    def __sub__(self, other: IntervalSet) -> IntervalSet:
        rest = self.copy()
        for lo, hi in other:
            rest.remove(lo, hi)
        return rest

    @property
    def ranges(self) -> Ranges:
        """The intervals as the tuple that frames and wants carry."""
        return tuple(self)

    @property
    def total(self) -> int:
        """How many integers are in the set."""
        return sum(self._his) - sum(self._los)

    def copy(self) -> IntervalSet:
        """Returns another set of the same integers."""
        copied = IntervalSet()
        copied._los, copied._his = self._los.copy(), self._his.copy()
        return copied

    def add(self, lo: int, hi: int) -> None:
        """Adds all of (lo, hi]."""
        if lo >= hi:
            return
        los, his = self._los, self._his
        # The usual case first: knowledge mostly arrives in order, so the new interval is the last one.
        if not his or lo > his[-1]:
            los.append(lo)
            his.append(hi)
            return
        if lo >= los[-1]:
            his[-1] = max(his[-1], hi)
            return
        first, behind = bisect_left(his, lo), bisect_right(los, hi)  # includes touching intervals, which are merged
        if first < behind:
            lo, hi = min(lo, los[first]), max(hi, his[behind - 1])
        los[first:behind] = (lo,)
        his[first:behind] = (hi,)

    def remove(self, lo: int, hi: int) -> None:
        """Removes all of (lo, hi]."""
        first, behind = self._overlapping(lo, hi)
        if lo >= hi or first >= behind:
            return
        edges = (self._los[first], lo), (hi, self._his[behind - 1])
        rest = [(start, stop) for start, stop in edges if start < stop]
        self._los[first:behind] = [start for start, _ in rest]
        self._his[first:behind] = [stop for _, stop in rest]

    def covers(self, lo: int, hi: int) -> bool:
        """Whether all of (lo, hi] is in the set."""
        if lo >= hi:
            return True
        index = bisect_right(self._his, lo)
        return index < len(self._his) and self._los[index] <= lo and hi <= self._his[index]

    def within(self, lo: int, hi: int) -> Ranges:
        """Returns the intervals of (lo, hi] that are in the set."""
        if lo >= hi:
            return ()
        first, behind = self._overlapping(lo, hi)
        return tuple((max(lo, self._los[i]), min(hi, self._his[i])) for i in range(first, behind))

    def gaps(self, lo: int, hi: int) -> Ranges:
        """Returns the intervals of (lo, hi] that are not in the set."""
        inside = self.within(lo, hi)
        edges = zip((lo, *(stop for _, stop in inside)), (*(start for start, _ in inside), hi), strict=True)
        return tuple((start, stop) for start, stop in edges if start < stop)

    def first_gap(self, lo: int, hi: int) -> tuple[int, int] | None:
        """Returns the first interval of (lo, hi] that is not in the set, or None."""
        if lo >= hi:
            return None
        index = bisect_right(self._his, lo)
        if index < len(self._los) and self._los[index] <= lo:
            lo, index = self._his[index], index + 1
        if lo >= hi:
            return None
        return lo, min(hi, self._los[index]) if index < len(self._los) else hi

    def _overlapping(self, lo: int, hi: int) -> tuple[int, int]:
        return bisect_right(self._his, lo), bisect_left(self._los, hi)


class IntervalMap(Generic[Value]):
    """A map from integers to values, stored as sorted, disjoint runs; neighbours with equal values are one run."""

    __slots__ = ("_his", "_los", "_values")

    def __init__(self) -> None:
        self._los: list[int] = []
        self._his: list[int] = []
        self._values: list[Value] = []

    def __iter__(self) -> Iterator[tuple[int, int, Value]]:
        """Yields the runs, in order. The map must not be changed meanwhile."""
        return zip(self._los, self._his, self._values, strict=True)

    def __reversed__(self) -> Iterator[tuple[int, int, Value]]:
        return zip(reversed(self._los), reversed(self._his), reversed(self._values), strict=True)

    def __len__(self) -> int:
        """How many runs there are."""
        return len(self._los)

    def __repr__(self) -> str:
        return f"IntervalMap({list(self)})"

    @property
    def last(self) -> tuple[int, int, Value] | None:
        """The last run, or None."""
        return (self._los[-1], self._his[-1], self._values[-1]) if self._los else None

    def overlapping(self, lo: int, hi: int) -> Iterator[tuple[int, int, Value]]:
        """Yields the runs in (lo, hi], cut to it. The map must not be changed meanwhile."""
        for index in range(bisect_right(self._his, lo), bisect_left(self._los, hi) if lo < hi else 0):
            yield max(lo, self._los[index]), min(hi, self._his[index]), self._values[index]

    def append(self, lo: int, hi: int, value: Value) -> None:
        """Gives a value to (lo, hi], which is not empty and lies after every run. O(1)."""
        his = self._his
        if his and his[-1] == lo and self._values[-1] == value:
            his[-1] = hi
            return
        self._los.append(lo)
        his.append(hi)
        self._values.append(value)

    def join(self, lo: int, hi: int, value: Value, combine: Callable[[Value, Value], Value]) -> Ranges:
        """Gives a value to (lo, hi]; where there is a value already, it becomes `combine(old, value)`.

        Returns where a value is new or changed; touching intervals are merged.
        """
        if lo >= hi:
            return ()
        if not self._his or self._his[-1] <= lo:
            self.append(lo, hi, value)
            return ((lo, hi),)
        inside = bisect_right(self._his, lo)
        if self._los[inside] <= lo and hi <= self._his[inside]:
            old = self._values[inside]
            if combine(old, value) == old:
                return ()
        first, behind = bisect_left(self._his, lo), bisect_right(self._los, hi)  # touching runs may merge
        pieces: list[tuple[int, int, Value]] = []
        changed = IntervalSet()
        at = lo
        for start, stop, old in self._slice(first, behind):
            inside, end = max(start, lo), min(stop, hi)
            pieces.append((start, min(stop, lo), old))
            pieces.append((at, inside, value))
            changed.add(at, inside)
            joined = combine(old, value) if inside < end else old
            pieces.append((inside, end, joined))
            if joined != old:
                changed.add(inside, end)
            pieces.append((max(start, hi), stop, old))
            at = max(at, end)
        pieces.append((at, hi, value))
        changed.add(at, hi)
        self._replace(first, behind, pieces)
        return changed.ranges

    def remove(self, lo: int, hi: int) -> None:
        """Removes the values of (lo, hi]."""
        if lo >= hi:
            return
        first, behind = bisect_right(self._his, lo), bisect_left(self._los, hi)
        pieces = [
            piece
            for start, stop, value in self._slice(first, behind)
            for piece in ((start, min(stop, lo), value), (max(start, hi), stop, value))
        ]
        self._replace(first, behind, pieces)

    def trim(self, upto: int) -> None:
        """Removes the values of all integers <= `upto`. O(1) per run that goes."""
        gone = bisect_right(self._his, upto)
        if gone:
            del self._los[:gone], self._his[:gone], self._values[:gone]
        if self._los and self._los[0] < upto:
            self._los[0] = upto

    def _slice(self, first: int, behind: int) -> list[tuple[int, int, Value]]:
        columns = self._los[first:behind], self._his[first:behind], self._values[first:behind]
        return list(zip(*columns, strict=True))

    def _replace(self, first: int, behind: int, pieces: Iterable[tuple[int, int, Value]]) -> None:
        """Replaces some runs by these pieces; empty pieces are left out."""
        merged: IntervalMap[Value] = IntervalMap()
        for lo, hi, value in pieces:
            if lo < hi:
                merged.append(lo, hi, value)
        self._los[first:behind] = merged._los
        self._his[first:behind] = merged._his
        self._values[first:behind] = merged._values
