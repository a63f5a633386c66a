"""What of one pubend is missing, and when to ask for it, again and again (protocol: curiosity, timers).

A gap must persist for a while before it is asked for, because reordering fills most gaps by itself. A want
that stays unanswered is repeated for ever, at doubling intervals; it never ends as silence (T24): only
knowledge clears it. All times are monotonic integer nanoseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from gapless.core.stream.intervals import IntervalMap, IntervalSet, Ranges
from gapless.core.stream.stamps import RAW, Stamp, covers, join
from gapless.core.stream.ticks import Tick

Value = TypeVar("Value")

_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class CuriosityTimes:
    """How long to wait for what, in nanoseconds; the names in brackets are short for them (protocol: timers)."""

    patience: int = 200 * _MS
    """A gap must be this old before it is asked for the first time (GCT)."""
    stall: int = 3_000 * _MS
    """A horizon that has not moved for this long is a reason to ask for what lies above it (DCT)."""
    repeat_min: int = 600 * _MS
    """An unanswered want is repeated after this time at first (NRT) …"""
    repeat_max: int = 30_000 * _MS
    """… and, doubling each time, after this time at last."""
    forget: int = 400 * _MS
    """A broker in between forgets that it asked; less than `repeat_min` of who asks it (RFT, T7)."""


class _Curious(NamedTuple):
    """Why and since when a run of ticks is missing."""

    need: Stamp
    first_at: int
    """When it was first missed under this need, or a lower one if that was never asked for."""
    due_at: int
    tries: int
    """How often it was asked for."""


class CuriosityStream:
    """The ticks of one pubend that someone waits for, each with the stamp that silence must have."""

    __slots__ = ("_deadline", "_runs", "_stale", "round_trip", "times")

    def __init__(self, times: CuriosityTimes | None = None) -> None:
        self.times = times or CuriosityTimes()
        self.round_trip = 0
        """The caller's estimate of how long an answer takes; a repetition waits for four of them at least."""
        self._runs: IntervalMap[_Curious] = IntervalMap()
        self._deadline: int | None = None
        self._stale = False  # whether the deadline has to be computed anew

    def __len__(self) -> int:
        """How many runs are missing."""
        return len(self._runs)

    @property
    def ranges(self) -> Ranges:
        """All that is missing."""
        return IntervalSet((lo, hi) for lo, hi, _ in self._runs).ranges

    @property
    def missing_since(self) -> int | None:
        """Since when the oldest run is missing, or None: what never comes is an alarm, not silence (T24)."""
        return min((curious.first_at for _, _, curious in self._runs), default=None)

    def add(self, ranges: Iterable[tuple[Tick, Tick]], need: Stamp, now: int, *, urgent: bool = False) -> None:
        """These ranges are missing. What is known to be missing already keeps its times.

        A need that the old one does not cover replaces it (by what covers both), and is asked for anew.
        Urgent: ask at once for what was not asked for yet; what was asked for waits for its repetition.
        """
        due_at = now if urgent else now + self.times.patience
        for lo, hi in ranges:
            self._runs.join(lo, hi, _Curious(need, now, due_at, 0), _combine)
        self._stale = True

    def clear(self, ranges: Iterable[tuple[Tick, Tick]], stamp: Stamp = RAW) -> None:
        """These ranges became known: as silence under this stamp, or else as they were wished for.

        What needs more than the stamp gives stays missing.
        """
        if not self._runs:
            return
        for lo, hi in ranges:
            for start, stop, curious in tuple(self._runs.overlapping(lo, hi)):
                if covers(stamp, curious.need):
                    self._runs.remove(start, stop)
                    self._stale = True

    def trim(self, upto: Tick) -> None:
        """Nobody waits for ticks <= `upto` any more."""
        self._runs.trim(upto)
        self._stale = True

    def deadline(self) -> int | None:
        """When something will be due, or None while nothing is missing."""
        if self._stale:
            self._deadline = min((curious.due_at for _, _, curious in self._runs), default=None)
            self._stale = False
        return self._deadline

    def due(self, now: int) -> list[tuple[Ranges, Stamp]]:
        """What to ask for now, by need, in the order of the ticks; it counts as asked for from now on."""
        deadline = self.deadline()
        if deadline is None or now < deadline:
            return []
        wants: list[tuple[IntervalSet, Stamp]] = []
        for lo, hi, curious in tuple(self._runs):
            if curious.due_at <= now:
                _wanted(wants, curious.need).add(lo, hi)
                self._runs.join(lo, hi, self._asked(curious, now), _take_new)
        self._stale = True
        return [(ranges.ranges, need) for ranges, need in wants]

    def _asked(self, curious: _Curious, now: int) -> _Curious:
        return curious._replace(due_at=now + self._repeat_after(curious.tries), tries=curious.tries + 1)

    def _repeat_after(self, tries: int) -> int:
        """How long to wait for the answer to one more try."""
        times = self.times
        first = max(times.repeat_min, 4 * self.round_trip)
        return min(first << min(tries, 32), max(times.repeat_max, first))


class RecentWants:
    """What a broker in between has asked for lately, so that it asks once for all who want it (T7).

    It forgets before those who asked it repeat themselves: the one want that it sent may have been lost.
    """

    __slots__ = ("_prune_at", "_runs", "times")

    def __init__(self, times: CuriosityTimes | None = None) -> None:
        self.times = times or CuriosityTimes()
        self._runs: IntervalMap[tuple[Stamp, int]] = IntervalMap()
        self._prune_at = 0

    def __len__(self) -> int:
        """How many runs are remembered."""
        return len(self._runs)

    def pass_on(self, ranges: Iterable[tuple[Tick, Tick]], need: Stamp, now: int) -> Ranges:
        """What of these ranges to ask for: all but what was asked for lately, with a need that covers this one."""
        self._prune(now)
        wanted = IntervalSet(ranges)
        for lo, hi in wanted.ranges:
            for start, stop, (asked, until) in self._runs.overlapping(lo, hi):
                if now < until and covers(asked, need):
                    wanted.remove(start, stop)
        for lo, hi in wanted:
            self._runs.join(lo, hi, (need, now + self.times.forget), _take_new)
        return wanted.ranges

    def _prune(self, now: int) -> None:
        """Forget what is old; now and then, so that it costs little per want."""
        if now < self._prune_at:
            return
        recent: IntervalMap[tuple[Stamp, int]] = IntervalMap()
        for lo, hi, (need, until) in self._runs:
            if now < until:
                recent.append(lo, hi, (need, until))
        self._runs = recent
        self._prune_at = now + self.times.forget


def _combine(old: _Curious, new: _Curious) -> _Curious:
    """What is missing already, once it is reported missing again."""
    if covers(old.need, new.need):
        sooner = not old.tries and new.due_at < old.due_at
        return old._replace(due_at=new.due_at) if sooner else old
    if old.tries:  # the old want was asked for, but its answer may be too low: the new one starts over
        return new._replace(need=join(old.need, new.need))
    return _Curious(join(old.need, new.need), old.first_at, min(old.due_at, new.due_at), 0)


def _take_new(_old: Value, new: Value) -> Value:
    return new


def _wanted(wants: list[tuple[IntervalSet, Stamp]], need: Stamp) -> IntervalSet:
    """The ranges that are wanted with this need, for more to be added."""
    for ranges, other in wants:
        if other == need:
            return ranges
    wants.append((IntervalSet(), need))
    return wants[-1][0]
