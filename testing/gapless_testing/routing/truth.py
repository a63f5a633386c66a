"""What the pubends said, and whether a router's knowledge says no more (C1).

Every `know` of every pubend is remembered, so a statement is judged by all that was ever true, not by what
a log still holds: an event that was given up since then stays an event, and silence stays silence.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping
from operator import lt

from gapless.core.stream.columns import EventBatch
from gapless.core.stream.events import Event
from gapless.core.stream.intervals import IntervalSet
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import PubendId, ShbId, Tick
from gapless_testing.routing.breaches import Clause, ContractError
from gapless_testing.routing.interests import InterestHistory


class PubendTruth:
    """All that one pubend ever said about its ticks."""

    def __init__(self, pubend: PubendId) -> None:
        self.pubend = pubend
        self.lost: Tick = 0
        """The highest `lost` it said."""
        self.known = IntervalSet()
        """Where it said D or S, ever."""
        self.damaged = IntervalSet()
        """Where it said that its events cannot be read any more, and were given up."""
        self._ticks: list[Tick] = []
        self._events: dict[Tick, tuple[EventBatch, int]] = {}
        self._cleared: dict[Tick, set[tuple[ShbId, int]]] = {}
        """Per event, the versions under which nobody at an SHB wants it: judged once."""
        self.stable: Tick = 0
        """The highest tick about which it said anything."""

    @property
    def ticks(self) -> list[Tick]:
        """The ticks of all its events, in order."""
        return self._ticks

    def know(self, knowledge: Knowledge) -> None:
        """The pubend states facts. Raises ContractError (CORES) if they contradict earlier ones."""
        lo, hi = knowledge.lo, knowledge.hi
        _check_shape(knowledge)
        silent_from = min(max(lo, knowledge.lost), hi)
        if knowledge.damaged:  # neither an event nor silence, whatever was there before
            self.damaged.add(lo, hi)
        else:
            self._decide(silent_from, knowledge)
        self.lost = max(self.lost, knowledge.lost)
        self.stable = max(self.stable, hi)

    def _decide(self, silent_from: Tick, knowledge: Knowledge) -> None:
        data = knowledge.data
        for index, tick in enumerate(data.ticks):
            self._add(tick, data, index)
            if tick <= silent_from:
                self.known.add(tick - 1, tick)
        for tick in self._left_out(silent_from, knowledge):
            raise ContractError(Clause.CORES, f"{self.pubend} says silence at {tick}, where it said an event")
        self.known.add(silent_from, knowledge.hi)

    def _add(self, tick: Tick, data: EventBatch, index: int) -> None:
        before = self._events.get(tick)
        if before is not None:
            if not _same(before, (data, index)):
                raise ContractError(Clause.CORES, f"{self.pubend} says two different events at {tick}")
            return
        if tick <= self.stable and tick in self.known:
            raise ContractError(Clause.CORES, f"{self.pubend} says an event at {tick}, where it said silence")
        self._events[tick] = data, index
        if not self._ticks or tick > self._ticks[-1]:
            self._ticks.append(tick)
        else:
            insort(self._ticks, tick)

    def between(self, lo: Tick, hi: Tick) -> list[Tick]:
        """The ticks of the events in (lo, hi]."""
        return self._ticks[bisect_right(self._ticks, lo) : bisect_right(self._ticks, hi)]

    def event(self, tick: Tick) -> Event:
        """An event, without its body."""
        data, index = self._events[tick]
        return data.event(self.pubend, index)

    def check(self, knowledge: Knowledge, interests: Mapping[ShbId, InterestHistory]) -> None:
        """Raises ContractError if a router's knowledge says more than the pubend did."""
        _check_shape(knowledge)
        self._check_events(knowledge.data)
        if knowledge.lost > self.lost:
            raise _breach(f"{self.pubend} is called lost up to {knowledge.lost}, it said {self.lost}")
        silent_from = min(max(knowledge.lo, knowledge.lost), knowledge.hi)
        if knowledge.damaged:
            unsaid = self.damaged.first_gap(silent_from, knowledge.hi)
            if unsaid is not None:
                raise _breach(f"({unsaid[0]}, {unsaid[1]}] of {self.pubend} is called damaged, which it never said")
            return
        unheard = self.known.first_gap(silent_from, knowledge.hi)
        if unheard is not None:
            raise _breach(f"silence of {self.pubend} in ({unheard[0]}, {unheard[1]}], of which it said nothing")
        for tick in self._left_out(silent_from, knowledge):
            self._check_left_out(tick, knowledge, interests)

    def _check_events(self, data: EventBatch) -> None:
        for index, tick in enumerate(data.ticks):
            event = self._events.get(tick)
            if event is None:
                raise _breach(f"an event of {self.pubend} at {tick}, where it said none")
            if event[0] is not data and not _same(event, (data, index)):
                raise _breach(f"the event of {self.pubend} at {tick} is not the one that it said")

    def _left_out(self, silent_from: Tick, knowledge: Knowledge) -> Iterator[Tick]:
        first, behind = bisect_right(self._ticks, silent_from), bisect_right(self._ticks, knowledge.hi)
        said = knowledge.data.ticks
        if behind - first == len(said) - bisect_right(said, silent_from):
            return  # every event said is one of the pubend's, so none of the pubend's is left out
        for tick in self._ticks[first:behind]:
            index = bisect_left(said, tick)
            if index == len(said) or said[index] != tick:
                yield tick

    def _check_left_out(self, tick: Tick, knowledge: Knowledge, interests: Mapping[ShbId, InterestHistory]) -> None:
        if knowledge.stamp is None:
            raise _breach(f"RAW silence of {self.pubend} at {tick}, where there is an event")
        cleared = self._cleared.setdefault(tick, set())
        for shb, version in knowledge.stamp.items():
            if version < 1 or (shb, version) in cleared:
                continue
            wanted = interests[shb].wanted(version, self.event(tick))
            if wanted is not None:
                what = f"silence of {self.pubend} at {tick} under version {version} of {shb}"
                raise _breach(f"{what}, which wants the event there by {wanted}")
            cleared.add((shb, version))


def _breach(what: str) -> ContractError:
    return ContractError(Clause.TRUTH, what)


def _same(one: tuple[EventBatch, int], other: tuple[EventBatch, int]) -> bool:
    (batch, index), (batch2, index2) = one, other
    return batch.events[index] == batch2.events[index2] and batch.body_lengths[index] == batch2.body_lengths[index2]


def _check_shape(knowledge: Knowledge) -> None:
    """Every event lies in the interval, in order."""
    ticks = knowledge.data.ticks
    if not ticks:
        return
    ordered = all(map(lt, ticks, ticks[1:]))
    if not ordered or not knowledge.lo < ticks[0] <= ticks[-1] <= knowledge.hi:
        what = f"events of {knowledge.pubend} out of order, or outside of ({knowledge.lo}, {knowledge.hi}]"
        raise _breach(what)
