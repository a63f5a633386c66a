"""The knowledge stream: what is known about one pubend's ticks (protocol: knowledge).

A tick's value is the highest that was ever stated for it: Q (unknown) < L (lost) < S (silence, under a stamp) < D (an
event). At one tick, silence that was not filtered and an event contradict each other: `KnowledgeConflict`.

What is stored:

- the events;
- the runs of silence with their stamps: each stated interval is one run, and the events in it override it;
- L: the ranges of which it was stated. That the pubend has given up everything up to a tick is known besides, and
  makes nothing L: a cache on the way to it may have the events still, or the silence between them;
- the ranges that an operator has given up as damaged. They are lost like L, with another reason.

Everything <= `base` is decided and was dropped; statements about it are ignored.

Any run may be forgotten at any time. What is stored stays true then; there is only less of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gapless.core.stream.columns import EMPTY, EventBatch
from gapless.core.stream.intervals import IntervalMap, IntervalSet, Ranges
from gapless.core.stream.segments import EventSegments, KnowledgeConflict
from gapless.core.stream.stamps import RAW, Stamp, covers, join, meet
from gapless.core.stream.ticks import PubendId, ShbId, Tick

__all__ = ["Delta", "Kind", "Knowledge", "KnowledgeConflict", "KnowledgeStream", "Run"]


class Knowledge(Struct, frozen=True, gc=False):
    """A statement: every tick in (lo, hi] is D (an event in `data`), L (<= lost), or silence under `stamp`.

    `lost` may lie below `lo`: the pubend has given up everything up to there, and nothing is stated of it.
    """

    pubend: PubendId
    lo: Tick
    hi: Tick
    data: EventBatch = EMPTY
    lost: Tick = 0
    stamp: Stamp = RAW
    reply: bool = False
    """Whether it answers a want: then it goes only to where it was asked for (T37)."""
    damaged: bool = False
    """Whether all of (lo, hi] could not be read, and an operator has given it up: it is lost, and there is no data."""

    @property
    def gone(self) -> Ranges:
        """The range that is stated to be L, where it has no events; () if there is none, or it is damaged."""
        upto = min(self.hi, self.lost)
        return ((self.lo, upto),) if self.lo < upto and not self.damaged else ()

    @classmethod
    def of_damage(cls, pubend: PubendId, lo: Tick, hi: Tick, lost: Tick) -> Knowledge:
        """Returns the answer to a want for a range that an operator has given up."""
        return cls(pubend, lo, hi, EMPTY, lost, RAW, reply=True, damaged=True)

    def upto(self, hi: Tick) -> Knowledge:
        """Returns what is stated of the ticks up to `hi`, which is above `lo`."""
        if hi >= self.hi:
            return self
        data = self.data
        return replace(self, hi=hi, data=data.slice(0, bisect_right(data.ticks, hi)) if data else data)

    def without_events_in(self, cut: Ranges) -> list[Knowledge]:
        """Returns the same, but nothing of ranges that are known to have no events, if it has any there.

        That is what a log told before it was cut, and a broker on the way may still have.
        """
        ticks = self.data.ticks
        wrong = [(lo, hi) for lo, hi in cut if bisect_right(ticks, lo) < bisect_right(ticks, hi)]
        if not wrong:
            return [self]
        return [
            replace(
                self,
                lo=lo,
                hi=hi,
                data=self.data.slice(bisect_right(ticks, lo), bisect_right(ticks, hi)),
                lost=min(self.lost, hi) if self.lost > lo else 0,
            )
            for lo, hi in (IntervalSet([(self.lo, self.hi)]) - IntervalSet(wrong)).ranges
        ]


class Kind(Enum):
    """The kind of a run of ticks, apart from the events in it."""

    UNKNOWN = "Q"
    LOST = "L"
    DAMAGED = "L, damaged"
    SILENCE = "S"


class Run(NamedTuple):
    """Every tick in (lo, hi] is of this kind, or an event. `stamp` is that of silence."""

    lo: Tick
    hi: Tick
    kind: Kind
    stamp: Stamp = RAW


class Delta(NamedTuple):
    """What was new in a statement."""

    events: EventBatch
    """The events that were not known before."""
    known: Ranges
    """The ranges of new silence: nothing was known there, or silence under a stamp that did not cover the new one."""
    lost: Tick = 0
    """The new `lost`, if the statement raised it; else 0."""


class KnowledgeStream:
    """Knowledge of one pubend, gathered from statements in any order; see the module."""

    __slots__ = ("_base", "_damaged", "_events", "_gone", "_lost", "_runs", "_upto", "pubend")

    def __init__(self, pubend: PubendId, base: Tick = 0) -> None:
        self.pubend = pubend
        self._base = base
        self._upto = base
        self._lost = 0
        self._gone = IntervalSet()
        self._damaged = IntervalSet()
        self._events = EventSegments()
        self._runs: IntervalMap[Stamp] = IntervalMap()

    @property
    def base(self) -> Tick:
        """Everything up to here is decided and was dropped."""
        return self._base

    @property
    def lost(self) -> Tick:
        """The pubend has given up everything up to here. Whoever asks for it may get it from a cache nevertheless."""
        return self._lost

    @property
    def known_upto(self) -> Tick:
        """The highest tick about which something is known, or `base`."""
        return self._upto

    @property
    def event_count(self) -> int:
        """How many events are held."""
        return len(self._events)

    @property
    def batch_count(self) -> int:
        """In how many batches they are."""
        return self._events.batch_count

    @property
    def size(self) -> int:
        """The bytes of all events: for a limit on memory."""
        return self._events.size

    @property
    def run_count(self) -> int:
        """How many runs of silence, and of what was stated to be lost, are held."""
        return len(self._runs) + len(self._gone)

    # ------------------------------------------------------------------------------ what is stated

    def accumulate(self, knowledge: Knowledge) -> Delta:
        """Takes a statement, and returns what was new in it. Its part <= `base` is ignored.

        Raises KnowledgeConflict, having changed nothing, if it contradicts what is known: another event at the same
        tick, RAW silence where an event is known, or an event where RAW silence is known.
        """
        lo, hi, data = knowledge.lo, knowledge.hi, knowledge.data
        assert not data or lo < data.ticks[0] <= data.ticks[-1] <= hi, "events outside of their knowledge"
        if knowledge.damaged:
            return self._give_up(knowledge)
        if self._upto <= lo < hi and knowledge.lost <= lo:  # behind all that is known: nothing to compare
            risen = self._rise(knowledge.lost)
            self._runs.append(lo, hi, knowledge.stamp)
            if data:
                self._events.append(data)
            self._upto = hi
            return Delta(data, ((lo, hi),), risen)
        return self._merge(knowledge)

    def _give_up(self, knowledge: Knowledge) -> Delta:
        """Notes a damaged range: its ticks are lost, because nobody will ever know more about them."""
        assert not knowledge.data, "what is damaged has no events"
        risen = self._rise(knowledge.lost)
        self._damaged.add(max(knowledge.lo, self._base), knowledge.hi)
        self._upto = max(self._upto, knowledge.hi)
        return Delta(EMPTY, (), risen)

    def _merge(self, knowledge: Knowledge) -> Delta:
        lo, hi = max(knowledge.lo, self._base), knowledge.hi
        silent = min(max(lo, knowledge.lost), hi)
        said = _after(knowledge.data, self._base)
        fresh = self._events.fresh(said)
        if knowledge.stamp is RAW:
            self._refuse_forgotten_events(_after(said, silent), _after(fresh, silent), silent, hi)
        self._refuse_events_in_silence(fresh)
        risen = self._rise(knowledge.lost)
        self._events.insert(fresh)
        self._gone.add(lo, silent)
        known = self._runs.join(silent, hi, knowledge.stamp, join)
        self._upto = max(self._upto, hi if lo < hi else 0)
        return Delta(fresh, known, risen)

    def _rise(self, lost: Tick) -> Tick:
        """Notes how much the pubend has given up. Returns that if it is more than was known, else 0."""
        if lost <= self._lost:
            return 0
        self._lost = lost
        return lost

    def _refuse_forgotten_events(self, said: EventBatch, fresh: EventBatch, lo: Tick, hi: Tick) -> None:
        """Refuses RAW silence over (lo, hi] if an event is known there that the statement does not have."""
        if self._events.count(lo, hi) != len(said) - len(fresh):
            raise KnowledgeConflict(f"{self.pubend}: RAW silence in ({lo}, {hi}] where an event is known")

    def _refuse_events_in_silence(self, fresh: EventBatch) -> None:
        """Refuses new events where RAW silence is known."""
        if not fresh:
            return
        for lo, hi, stamp in self._runs.overlapping(fresh.ticks[0] - 1, fresh.ticks[-1]):
            if stamp is RAW and any(lo < tick <= hi for tick in fresh.ticks):
                raise KnowledgeConflict(f"{self.pubend}: an event in RAW silence ({lo}, {hi}]")

    # ------------------------------------------------------------------------------- what is known

    def horizon(self, start: Tick, need: Stamp) -> Tick:
        """Returns the highest tick h for which all of (start, h] is D, L, or silence whose stamp covers `need`.

        If the tick after `start` is none of these, it returns `start`. A start below `base` counts as `base`.
        """
        start = max(start, self._base)
        last = self._runs.last
        if last is not None and last[0] <= start < last[1] == self._upto and covers(last[2], need):
            return self._upto
        for run in self._judged(start, self._upto, need):
            if run.kind is Kind.UNKNOWN:
                return run.lo
        return max(start, self._upto)

    def take(self, lo: Tick, hi: Tick, without: Mapping[Tick, EventBatch] | None = None) -> EventBatch:
        """Returns the events known in (lo, hi], in order. They stay here.

        `without`: batches that `take` has returned before, by their first ticks; of their events none is wanted now.
        """
        return self._events.take(lo, hi, without)

    def first_event(self, lo: Tick, hi: Tick) -> Tick | None:
        """Returns the tick of the first event in (lo, hi]; None: there is none."""
        return self._events.first(lo, hi)

    def lost_in(self, lo: Tick, hi: Tick, need: Stamp) -> Ranges:
        """Returns which ticks in (lo, hi] are lost: no event, and no silence under a stamp that covers `need`.

        Silence under a lower stamp does not count, because it was not computed for those who need more.
        """
        return self._without_events(lo, hi, need, Kind.LOST) if self._gone else ()

    def damaged_in(self, lo: Tick, hi: Tick, need: Stamp) -> Ranges:
        """Returns the same for ticks that were given up as damaged."""
        return self._without_events(lo, hi, need, Kind.DAMAGED) if self._damaged else ()

    def _without_events(self, lo: Tick, hi: Tick, need: Stamp, kind: Kind) -> Ranges:
        lost = IntervalSet((run.lo, run.hi) for run in self._judged(lo, hi, need) if run.kind is kind)
        for start, stop in lost.ranges:
            for tick in self._events.take(start, stop).ticks:
                lost.remove(tick - 1, tick)
        return lost.ranges

    def unknown(self, lo: Tick, hi: Tick, need: Stamp) -> Ranges:
        """Returns which ranges of (lo, hi] to ask for: Q, or silence under a stamp that does not cover `need`.

        Both ends of a range are unknown. Inside, it may contain events between such silence: to get an event twice
        costs less than two ranges instead of one. Ticks <= `base` are decided.
        """
        runs = self._judged(lo, hi, need)
        return IntervalSet((run.lo, run.hi) for run in runs if run.kind is Kind.UNKNOWN).ranges

    def answer(self, ranges: Ranges, need: Stamp) -> tuple[list[Knowledge], Ranges]:
        """Answers a want from what is known here. Returns replies, and the ranges that others have to answer.

        Each reply is a maximal interval of D and silence that covers `need`, or of D and L; its stamp is true for the
        whole interval. Dropped ticks (<= `base`) are left to others.
        """
        answered: list[Run] = []
        rest = IntervalSet()
        for lo, hi in ranges:
            rest.add(lo, min(hi, self._base))
            for run in self._judged(lo, hi, need):
                if run.kind is Kind.UNKNOWN or run.kind is Kind.DAMAGED:  # damage is answered by the pubend itself
                    rest.add(run.lo, run.hi)
                elif answered and answered[-1].hi == run.lo and answered[-1].kind is run.kind:
                    last = answered.pop()
                    answered.append(Run(last.lo, run.hi, run.kind, meet(last.stamp, run.stamp)))
                else:
                    answered.append(run)
        return [self._reply(run) for run in answered], rest.ranges

    def _reply(self, run: Run) -> Knowledge:
        # Only replies about lost runs carry `lost`: together with silence it would turn this silence into L at the
        # receiver.
        lost = self._lost if run.kind is Kind.LOST else 0
        return Knowledge(self.pubend, run.lo, run.hi, self.take(run.lo, run.hi), lost, run.stamp, reply=True)

    def runs(self, lo: Tick, hi: Tick) -> Iterator[Run]:
        """Yields the maximal runs in (lo, hi], in order, from `base` on; events lie inside them."""
        at = max(lo, self._base)
        for start, stop, stamp in self._runs.overlapping(at, hi):
            yield from self._outside(at, start)
            yield Run(start, stop, Kind.SILENCE, stamp)
            at = stop
        yield from self._outside(at, hi)

    def stretches(self, upto: Tick) -> list[tuple[Tick, Tick, Stamp]]:
        """The stretches up to a tick of which all is known, each with the highest stamp that is true for all of it."""
        found: list[tuple[Tick, Tick, Stamp]] = []
        for start, stop, stamp in self._runs.overlapping(self._base, upto):
            if found and found[-1][1] == start:
                lo, _, before = found.pop()
                found.append((lo, stop, meet(before, stamp)))
            else:
                found.append((start, stop, stamp))
        return found

    def highest_silence_below(self, version: int, shb: ShbId) -> Tick:
        """Returns the highest tick that is held as silence under a stamp with stamp[shb] < version, or 0.

        It bounds `since` of a joining subscription from below (protocol: joining).
        """
        for lo, hi, stamp in reversed(self._runs):
            if stamp is None or stamp.get(shb, 0) >= version:
                continue
            tick = hi
            while tick > lo and tick in self._events:
                tick -= 1
            if tick > lo:
                return tick
        return 0

    def _outside(self, lo: Tick, hi: Tick) -> Iterator[Run]:
        """Yields the runs in (lo, hi], for which no silence is stated: lost, damaged if that is not stated, unknown."""
        at = lo
        for start, stop in self._gone.within(lo, hi):
            yield from self._but_damage(at, start)
            yield Run(start, stop, Kind.LOST)
            at = stop
        yield from self._but_damage(at, hi)

    def _but_damage(self, lo: Tick, hi: Tick) -> Iterator[Run]:
        """Yields the runs in (lo, hi], for which neither silence nor L is stated."""
        at = lo
        for start, stop in self._damaged.within(lo, hi):
            if at < start:
                yield Run(at, start, Kind.UNKNOWN)
            yield Run(start, stop, Kind.DAMAGED)
            at = stop
        if at < hi:
            yield Run(at, hi, Kind.UNKNOWN)

    def _judged(self, lo: Tick, hi: Tick, need: Stamp) -> Iterator[Run]:
        """Yields the runs in (lo, hi] from the view of `need`: silence that covers it, lost, or unknown.

        Silence that does not cover it counts as never stated. What was stated to be lost counts as lost then: whoever
        stated it had been asked by somebody with such a need, and nobody on the way had a better answer.
        """
        for run in self.runs(lo, hi):
            if run.kind is not Kind.SILENCE or covers(run.stamp, need):
                yield run
                continue
            for part in self._outside(run.lo, run.hi):
                yield from self._between_events(part) if part.kind is Kind.UNKNOWN else (part,)

    def _between_events(self, run: Run) -> Iterator[Run]:
        """Yields an unknown run without the events at its ends.

        An event needs no stamp, so these ends count as silence.
        """
        lo, hi = run.lo, run.hi
        while lo < hi and lo + 1 in self._events:
            lo += 1
        while lo < hi and hi in self._events:
            hi -= 1
        parts = Run(run.lo, lo, Kind.SILENCE), Run(lo, hi, Kind.UNKNOWN), Run(hi, run.hi, Kind.SILENCE)
        yield from (part for part in parts if part.lo < part.hi)

    # -------------------------------------------------------------------------- what is let go of

    def trim(self, upto: Tick) -> None:
        """Drops everything <= `upto`, which is decided, and ignores it from now on."""
        if upto <= self._base:
            return
        self._base = upto
        self._events.trim(upto)
        if self._damaged:
            self._damaged.remove(0, upto)
        if self._gone:
            self._gone.remove(0, upto)
        self._runs.trim(upto)
        self._upto = max(self._upto, upto)

    def forget(self, lo: Tick, hi: Tick) -> None:
        """Makes (lo, hi] unknown again. Where it is damaged, it becomes that: it stays true for ever.

        What was stated to be lost goes, too: of an event that is forgotten here, another cache may not have said so.
        """
        if lo >= hi:
            return
        self._events.remove(lo, hi)
        self._runs.remove(lo, hi)
        self._gone.remove(lo, hi)
        last = self._runs.last
        ends = (ranges[-1][1] for ranges in (self._gone.ranges, self._damaged.ranges) if ranges)
        self._upto = max(self._base, last[1] if last is not None else 0, *ends)
        assert self._upto >= self._base, "what was dropped is decided, whatever is forgotten above it"

    def forget_lost_events(self, upto: Tick) -> None:
        """Forgets what was stated up to a tick to be lost but for events, which somebody had kept."""
        lost = [(run.lo, run.hi) for run in self.runs(self._base, upto) if run.kind is Kind.LOST]
        for lo, hi in lost:
            if self._events.count(lo, hi):
                self.forget(lo, hi)

    def let_go(self, lo: Tick, hi: Tick, kept: EventBatch, stamp: Stamp, silent_from: Tick) -> None:
        """Lets go of the events in (lo, hi], but for `kept`; all of (silent_from, hi] is silence under `stamp` then.

        So `stamp` names nobody who may want one of those that go, and all of that was known under higher stamps. What
        was stated to be lost of (lo, hi] is forgotten, as in `forget`.
        """
        assert self._base <= silent_from <= lo < hi, "what is let go of lies in the stretch that stays"
        assert stamp is not None, "an event stands there, so somebody may want it"
        for run in self.runs(silent_from, hi):
            assert run.kind is Kind.SILENCE, f"{self.pubend}: {run} was never said to be silence"
            assert covers(run.stamp, stamp), f"{self.pubend}: {run} would be said to be silence under {stamp}"
        self._events.remove(lo, hi)
        self._events.insert(kept)
        self._gone.remove(lo, hi)
        self._runs.remove(silent_from, hi)
        self._runs.join(silent_from, hi, stamp, join)

    def forget_silence(self, lo: Tick, hi: Tick) -> None:
        """Makes the ticks of (lo, hi] unknown again at which there is no event."""
        events = self._events.take(max(lo, self._base), hi)
        self.forget(lo, hi)
        for index, tick in enumerate(events.ticks):
            self.accumulate(Knowledge(self.pubend, tick - 1, tick, events.slice(index, index + 1)))


def _after(batch: EventBatch, tick: Tick) -> EventBatch:
    """Returns the events after a tick."""
    if not batch or batch.ticks[0] > tick:
        return batch
    return batch.slice(sum(event <= tick for event in batch.ticks), len(batch))
