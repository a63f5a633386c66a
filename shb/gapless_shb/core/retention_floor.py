"""Who pins the log, and how far down: what makes released(p) cheap to know (protocol: positions).

Only positions that are not idle do: the others go along with what is delivered. Their lowest is the top of
a heap, whose entries are brought up to date when they come to the top, and not before: what is done with only
grows while a position pins, so an old entry is too low, never too high. A checkpoint costs what changed at the
bottom, not what there is.
"""

from __future__ import annotations

from collections.abc import Iterator, ValuesView
from heapq import heappop, heappush, heapreplace, nsmallest

from gapless.core.stream.ticks import Tick
from gapless_shb.core.positions import SubscriptionPosition


class RetentionFloor:
    """The positions of one pubend that are not idle, by subscription."""

    __slots__ = ("_heap", "_queued", "pinning")

    def __init__(self) -> None:
        self.pinning: dict[int, SubscriptionPosition] = {}
        self._heap: list[tuple[Tick, int]] = []
        self._queued: set[int] = set()
        """Who has an entry in the heap: one each, also if it pins no more."""

    def __len__(self) -> int:
        return len(self.pinning)

    def __contains__(self, sid: object) -> bool:
        return sid in self.pinning

    def __iter__(self) -> Iterator[int]:
        return iter(self.pinning)

    def values(self) -> ValuesView[SubscriptionPosition]:
        """All of the positions."""
        return self.pinning.values()

    def put(self, sid: int, position: SubscriptionPosition) -> None:
        """This one pins from what it is done with on."""
        self.pinning[sid] = position
        if sid not in self._queued:
            self._queued.add(sid)
            heappush(self._heap, (position.done_upto, sid))

    def discard(self, sid: int) -> None:
        """It pins nothing any more."""
        self.pinning.pop(sid, None)

    def lowest_few(self, count: int) -> list[int]:
        """Who is done with least, so many of them."""
        return nsmallest(count, self.pinning, key=lambda sid: (self.pinning[sid].done_upto, sid))

    def lowest(self) -> Tick | None:
        """How far everybody who pins is done; None when nobody does."""
        heap = self._heap
        while heap:
            entered, sid = heap[0]
            position = self.pinning.get(sid)
            if position is None:
                heappop(heap)
                self._queued.discard(sid)
            elif position.done_upto > entered:
                heapreplace(heap, (position.done_upto, sid))
            else:
                return entered
        return None
