"""The missing ticks of one pubend, and when to ask for them again (protocol: curiosity, timers).

Ticks have to be missing for a while before they are asked for, because most holes come from reordering and fill by
themselves. A want without an answer is repeated for ever, at doubling intervals. It never ends as silence (T24): only
knowledge ends it. All times are monotonic integer nanoseconds.
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
WAITS = 4
"""So many times as long as an answer takes is it waited for before a want is repeated."""
DOUBTS = 3
"""What was asked for more often was out of reach, and says nothing about how long an answer takes."""


@dataclass(frozen=True, slots=True)
class CuriosityTimes:
    """The waits, in nanoseconds; the names in brackets are those of the protocol (protocol: timers)."""

    patience: int = 200 * _MS
    """How long ticks must be missing before they are asked for (GCT)."""
    stall: int = 3_000 * _MS
    """How long a horizon may stand still before the ticks above it are asked for (DCT)."""
    repeat_min: int = 600 * _MS
    """How long to wait before the first repetition of a want (NRT) …"""
    repeat_max: int = 30_000 * _MS
    """… and the longest wait; each one is twice the last."""
    forget_min: int = 400 * _MS
    """How long a broker in between remembers at least that it asked: twice as long as an answer takes (RFT).

    Less than `repeat_min` of the broker that asks it (T7) …
    """
    forget_max: int = 10_000 * _MS
    """… and the longest."""


class _Curious(NamedTuple):
    """The need of a run of missing ticks, and its times."""

    need: Stamp
    first_at: int
    """When it was first missing under this need; or under a lower need, if that was never asked for."""
    due_at: int
    tries: int
    """How often it was asked for."""
    wait: int = 0
    """How long the answer to the last try is waited for."""


class _Asked(NamedTuple):
    """With which need a broker in between asked for a run, when, and whether an answer has come."""

    need: Stamp
    at: int
    answered: bool = False


class CuriosityStream:
    """The missing ticks of one pubend, each with the stamp that silence must have to count."""

    __slots__ = ("_deadline", "_round_trip", "_runs", "_stale", "times")

    def __init__(self, times: CuriosityTimes | None = None) -> None:
        self.times = times or CuriosityTimes()
        self._round_trip = 0  # how long an answer takes, about
        self._runs: IntervalMap[_Curious] = IntervalMap()
        self._deadline: int | None = None
        self._stale = False  # whether the deadline has to be computed anew

    def __len__(self) -> int:
        """How many runs are missing."""
        return len(self._runs)

    @property
    def ranges(self) -> Ranges:
        """All missing ticks."""
        return IntervalSet((lo, hi) for lo, hi, _ in self._runs).ranges

    @property
    def missing_since(self) -> int | None:
        """When the oldest run became missing, or None. What never arrives is an alarm, not silence (T24)."""
        return min((curious.first_at for _, _, curious in self._runs), default=None)

    def add(self, ranges: Iterable[tuple[Tick, Tick]], need: Stamp, now: int, *, urgent: bool = False) -> None:
        """Notes that these ranges are missing. Ranges that are missing already keep their times.

        If the old need does not cover the new one, both are joined, and the range is asked for again. `urgent`: asks at
        once for what was not asked for yet; what was asked for still waits for its repetition.
        """
        due_at = now if urgent else now + self.times.patience
        for lo, hi in ranges:
            self._runs.join(lo, hi, _Curious(need, now, due_at, 0), _combine)
        self._stale = True

    def on_answer(self, lo: Tick, hi: Tick, now: int) -> None:
        """Learns from an answer to a want how long answers take. It comes before `clear` for the same ranges.

        The first repetition waits four times as long: else every want is sent several times where answers are slow. Of
        what was asked for more than once nobody knows which try was answered. Then the next want is simply waited for
        as long as the last try, until an answer comes that leaves no doubt. So losses do not make a broker patient.
        """
        asked = [curious for _, _, curious in self._runs.overlapping(lo, hi) if curious.tries]
        once = [now - curious.due_at + curious.wait for curious in asked if curious.tries == 1]
        again = [curious.wait // WAITS for curious in asked if curious.tries <= DOUBTS]
        if once:
            self._round_trip = (self._round_trip + max(once)) // 2
        elif again:
            self._round_trip = max(self._round_trip, *again)

    def clear(self, ranges: Iterable[tuple[Tick, Tick]], stamp: Stamp = RAW) -> None:
        """Notes that these ranges became known: as silence under this stamp, or as the need wanted it.

        Ranges whose need the stamp does not cover stay missing.
        """
        if not self._runs:
            return
        for lo, hi in ranges:
            for start, stop, curious in tuple(self._runs.overlapping(lo, hi)):
                if covers(stamp, curious.need):
                    self._runs.remove(start, stop)
                    self._stale = True

    def trim(self, upto: Tick) -> None:
        """Drops ticks <= `upto`: they are not needed any more."""
        self._runs.trim(upto)
        self._stale = True

    def deadline(self) -> int | None:
        """Returns when something will be due, or None while nothing is missing."""
        if self._stale:
            self._deadline = min((curious.due_at for _, _, curious in self._runs), default=None)
            self._stale = False
        return self._deadline

    def due(self, now: int) -> list[tuple[Ranges, Stamp]]:
        """Returns the ranges to ask for now, by need, in tick order. From now on they count as asked for."""
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
        wait = self._repeat_after(curious.tries)
        return curious._replace(due_at=now + wait, tries=curious.tries + 1, wait=wait)

    def _repeat_after(self, tries: int) -> int:
        """Returns how long to wait for the answer to one more try."""
        times = self.times
        first = max(times.repeat_min, WAITS * self._round_trip)
        return min(first << min(tries, 32), max(times.repeat_max, first))


class RecentWants:
    """The recent wants of a broker in between. It asks once for all brokers that want the same ranges (T7).

    It forgets a want before those brokers repeat it, because the one want that it sent may have been lost.
    """

    __slots__ = ("_prune_at", "_round_trip", "_runs", "times")

    def __init__(self, times: CuriosityTimes | None = None) -> None:
        self.times = times or CuriosityTimes()
        self._runs: IntervalMap[_Asked] = IntervalMap()
        self._round_trip = 0  # how long an answer takes, about
        self._prune_at = 0

    def __len__(self) -> int:
        """How many runs are remembered."""
        return len(self._runs)

    def pass_on(self, ranges: Iterable[tuple[Tick, Tick]], need: Stamp, now: int) -> Ranges:
        """Returns the ranges to ask for: all that were not asked for lately with a need that covers this one."""
        self._prune(now)
        since = now - self._forget_after
        wanted = IntervalSet(ranges)
        for lo, hi in wanted.ranges:
            for start, stop, asked in self._runs.overlapping(lo, hi):
                if asked.at > since and covers(asked.need, need):
                    wanted.remove(start, stop)
        for lo, hi in wanted:
            self._runs.join(lo, hi, _Asked(need, now), _take_new)
        return wanted.ranges

    def on_answer(self, lo: Tick, hi: Tick, now: int) -> None:
        """Learns from an answer how long answers take; what comes again says nothing new."""
        waited = [(start, stop, asked) for start, stop, asked in self._runs.overlapping(lo, hi) if not asked.answered]
        if not waited:
            return
        self._round_trip = (self._round_trip + max(now - asked.at for _, _, asked in waited)) // 2
        for start, stop, asked in waited:
            self._runs.join(start, stop, asked._replace(answered=True), _take_new)

    @property
    def _forget_after(self) -> int:
        return min(max(self.times.forget_min, 2 * self._round_trip), self.times.forget_max)

    def _prune(self, now: int) -> None:
        """Forgets old wants, now and then, so that it costs little per want."""
        if now < self._prune_at:
            return
        recent: IntervalMap[_Asked] = IntervalMap()
        for lo, hi, asked in self._runs:
            if asked.at > now - self._forget_after:
                recent.append(lo, hi, asked)
        self._runs = recent
        self._prune_at = now + self._forget_after


def _combine(old: _Curious, new: _Curious) -> _Curious:
    """Returns the entry of a range that was missing already, and is reported as missing again."""
    if covers(old.need, new.need):
        sooner = not old.tries and new.due_at < old.due_at
        return old._replace(due_at=new.due_at) if sooner else old
    if old.tries:  # it was asked for, but the answer may have too low a stamp: the new want starts over
        return new._replace(need=join(old.need, new.need))
    return _Curious(join(old.need, new.need), old.first_at, min(old.due_at, new.due_at), 0)


def _take_new(_old: Value, new: Value) -> Value:
    return new


def _wanted(wants: list[tuple[IntervalSet, Stamp]], need: Stamp) -> IntervalSet:
    """Returns the ranges wanted with this need, to be added to."""
    for ranges, other in wants:
        if other == need:
            return ranges
    wants.append((IntervalSet(), need))
    return wants[-1][0]
