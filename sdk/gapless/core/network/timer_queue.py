"""Any number of deadlines, of which the world sees the first."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import TypeAlias

Key: TypeAlias = "tuple[str | int, ...]"
"""What is to be done, and its arguments."""

MILLISECOND = 1_000_000
SECOND = 1_000_000_000


class TimerQueue:
    """At most one deadline per key, in monotonic nanoseconds."""

    __slots__ = ("_at", "_count", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Key]] = []
        self._at: dict[Key, tuple[int, int]] = {}
        """When a key is due, and the entry of the heap that counts for it; all others are leftovers."""
        self._count = 0

    def __contains__(self, key: Key) -> bool:
        return key in self._at

    def set(self, key: Key, at: int) -> None:
        """Do this then, whatever was set before."""
        self._count += 1
        self._at[key] = at, self._count
        heappush(self._heap, (at, self._count, key))

    def set_earlier(self, key: Key, at: int) -> None:
        """Do this then, unless it is set to be done sooner."""
        due = self._at.get(key)
        if due is None or at < due[0]:
            self.set(key, at)

    def cancel(self, key: Key) -> None:
        """Do not do it."""
        self._at.pop(key, None)

    def next(self) -> int | None:
        """When the first is due."""
        heap = self._heap
        while heap and self._at.get(heap[0][2]) != heap[0][:2]:
            heappop(heap)
        return heap[0][0] if heap else None

    def take_due(self, now: int) -> Iterator[Key]:
        """What is due, the earliest first, those of one time as they were set; they are no longer set.

        Each is looked for when it is asked for: what is done for one may cancel another.
        """
        while (at := self.next()) is not None and at <= now:
            key = heappop(self._heap)[2]
            del self._at[key]
            yield key
