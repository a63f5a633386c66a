"""The events that a knowledge stream holds: batches of one pubend in tick order.

A batch that arrives after all others is stored and returned as it is; only a batch that arrives out of order is cut. So
the usual cost is a few Python steps per batch, not per event.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping

from gapless.core.stream.columns import EMPTY, EventBatch
from gapless.core.stream.ticks import Tick


class KnowledgeConflict(AssertionError):  # noqa: N818 - it is an alarm, like the assertion it derives from
    """Two statements about one tick contradict each other: a broker or its storage is broken.

    It is raised before anything was changed. It must never be swallowed: somewhere events were lost or made up.
    """


class EventSegments:
    """Events by tick. The spans of their batches are disjoint and sorted."""

    __slots__ = ("_batches", "_firsts", "_lasts", "_sizes")

    def __init__(self) -> None:
        self._firsts: list[Tick] = []
        self._lasts: list[Tick] = []
        self._batches: list[EventBatch] = []
        self._sizes: list[int] = []  # -1 until the size is needed

    def __len__(self) -> int:
        """How many events there are."""
        return sum(map(len, self._batches))

    def __contains__(self, tick: Tick) -> bool:
        return self.count(tick - 1, tick) == 1

    @property
    def size(self) -> int:
        """The bytes of all events. Each batch is counted once, when first needed."""
        for index, size in enumerate(self._sizes):
            if size < 0:
                self._sizes[index] = self._batches[index].size
        return sum(self._sizes)

    @property
    def batch_count(self) -> int:
        """How many batches hold them."""
        return len(self._batches)

    def append(self, batch: EventBatch) -> None:
        """Adds events, at least one, that lie after all others."""
        self._firsts.append(batch.ticks[0])
        self._lasts.append(batch.ticks[-1])
        self._batches.append(batch)
        self._sizes.append(-1)

    def fresh(self, batch: EventBatch) -> EventBatch:
        """Returns the events of `batch` that are not here yet.

        Raises KnowledgeConflict if an event differs from the one that is here under its tick.
        """
        here = self.take(batch.ticks[0] - 1, batch.ticks[-1]) if batch else EMPTY
        if not here:
            return batch
        if here.ticks == batch.ticks and here.events == batch.events:  # the same batch again: compared in C
            return EMPTY
        known = dict(zip(here.ticks, here.events, strict=True))
        mask = 0
        for position, (tick, event) in enumerate(zip(batch.ticks, batch.events, strict=True)):
            if tick not in known:
                mask |= 1 << position
            elif known[tick] != event:
                raise KnowledgeConflict(f"two different events at tick {tick}")
        return batch.select(mask) if mask else EMPTY

    def insert(self, batch: EventBatch) -> None:
        """Adds events of which none is here yet."""
        while batch:
            first = batch.ticks[0]
            index = self._split(first)
            here = index < len(self._firsts)
            stop = bisect_left(batch.ticks, self._firsts[index]) if here else len(batch)
            self._put(index, batch.slice(0, stop))
            batch = batch.slice(stop, len(batch))

    def take(self, lo: Tick, hi: Tick, without: Mapping[Tick, EventBatch] | None = None) -> EventBatch:
        """Returns the events in (lo, hi], in order; the very batch that arrived if that is all of one batch.

        `without`: the very batches of which nothing is to be returned, by their first ticks.
        """
        first, behind = bisect_right(self._lasts, lo), bisect_right(self._firsts, hi)
        if first >= behind or lo >= hi:
            return EMPTY
        batches = self._batches[first:behind]
        if self._firsts[first] <= lo:
            batches[0] = batches[0].slice(bisect_right(batches[0].ticks, lo), len(batches[0]))
        if self._lasts[behind - 1] > hi:
            batches[-1] = batches[-1].slice(0, bisect_right(batches[-1].ticks, hi))
        if without:
            batches = [batch for batch in batches if without.get(batch.ticks[0]) is not batch]
        return EventBatch.concatenate(batches) if batches else EMPTY

    def count(self, lo: Tick, hi: Tick) -> int:
        """Returns how many events lie in (lo, hi]."""
        first, behind = bisect_right(self._lasts, lo), bisect_right(self._firsts, hi)
        if first >= behind or lo >= hi:
            return 0
        before = bisect_right(self._batches[first].ticks, lo)
        after = len(self._batches[behind - 1]) - bisect_right(self._batches[behind - 1].ticks, hi)
        return sum(map(len, self._batches[first:behind])) - before - after

    def first(self, lo: Tick, hi: Tick) -> Tick | None:
        """Returns the tick of the first event in (lo, hi], if there is one."""
        index = bisect_right(self._lasts, lo)
        if index == len(self._lasts):
            return None
        ticks = self._batches[index].ticks
        tick = ticks[bisect_right(ticks, lo)]
        return tick if tick <= hi else None

    def remove(self, lo: Tick, hi: Tick) -> None:
        """Removes the events in (lo, hi]."""
        if lo >= hi:
            return
        first, behind = self._split(lo + 1), self._split(hi + 1)
        del self._firsts[first:behind], self._lasts[first:behind]
        del self._batches[first:behind], self._sizes[first:behind]

    def trim(self, upto: Tick) -> None:
        """Removes the events <= `upto`."""
        if self._firsts and self._firsts[0] <= upto:
            gone = self._split(upto + 1)
            del self._firsts[:gone], self._lasts[:gone], self._batches[:gone], self._sizes[:gone]

    def _split(self, tick: Tick) -> int:
        """Returns the index of the first batch with no event below `tick`; a batch across it is cut in two."""
        index = bisect_left(self._lasts, tick)
        if index == len(self._firsts) or self._firsts[index] >= tick:
            return index
        whole = self._batches[index]
        cut = bisect_left(whole.ticks, tick)
        left, right = whole.slice(0, cut), whole.slice(cut, len(whole))
        self._firsts[index : index + 1] = (left.ticks[0], right.ticks[0])
        self._lasts[index : index + 1] = (left.ticks[-1], right.ticks[-1])
        self._batches[index : index + 1] = (left, right)
        self._sizes[index : index + 1] = (-1, -1)
        return index + 1

    def _put(self, index: int, batch: EventBatch) -> None:
        self._firsts.insert(index, batch.ticks[0])
        self._lasts.insert(index, batch.ticks[-1])
        self._batches.insert(index, batch)
        self._sizes.insert(index, -1)
