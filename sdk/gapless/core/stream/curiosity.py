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
from gapless.core.stream.ticks import FOREVER, Tick

Value = TypeVar("Value")

_MS = 1_000_000
WAITS = 4
"""So many times as long as an answer takes is it waited for before a want is repeated."""
DOUBTS = 6
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
    forget: int = 400 * _MS
    """How long a broker in between remembers that it asked, at least; if that is more, twice as long as answers take.

    Less than `repeat_min` of the broker that asks it (RFT, T7).
    """
    forget_max: int = 10_000 * _MS
    """The longest that it remembers."""


class _Curious(NamedTuple):
    """The need of a run of missing ticks, and its times."""

    need: Stamp
    first_at: int
    """When it was first missing under this need; or under a lower need, if that was never asked for."""
    due_at: int
    tries: int
    """How often it was asked for."""
    sent_at: int
    """When it was first asked for; 0 if it was not, or has no end: its answer may be long in coming."""
    wait: int
    """How long before that it was last asked for."""


class RoundTrip:
    """How long answers take, with all that waits on the way.

    Of what was asked for more than once nobody knows which try was answered. To count from the first one would take
    each loss for a long way, and then wait longer for the next: with one loss in ten for half a minute. So what is
    in doubt only doubles the waits, until an answer comes that leaves no doubt.
    """

    __slots__ = ("estimate", "longest")

    def __init__(self, longest: int) -> None:
        """`longest`: what takes longer says that nothing got through, and not how long the way is."""
        self.estimate = 0
        self.longest = longest

    def measured(self, took: int) -> None:
        """An answer has come to what was asked for once. It counts at once if it took longer, and half if not."""
        assert took >= 0, "nothing is answered before it is asked for"
        self.estimate = max(min(took, self.longest), self.estimate // 2)

    def doubtful(self, took: int) -> None:
        """An answer has come to what was asked for more than once: what is asked for next may take so long."""
        assert took >= 0, "nothing is answered before it is asked for"
        self.estimate = max(min(took, self.longest), self.estimate)


class CuriosityStream:
    """The missing ticks of one pubend, each with the stamp that silence must have to count."""

    __slots__ = ("_deadline", "_round_trip", "_runs", "_stale", "times")

    def __init__(self, times: CuriosityTimes | None = None) -> None:
        self.times = times or CuriosityTimes()
        self._round_trip = RoundTrip(self.times.repeat_max // 4)
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
            self._runs.join(lo, hi, _Curious(need, now, due_at, 0, 0, 0), _combine)
        self._stale = True

    def answered(self, lo: Tick, hi: Tick, now: int) -> None:
        """Notes an answer about these ticks: what was asked for waits four times as long as that took (NRT).

        What was asked for with them and lies above is on its way, or was left out. It is asked for again after the
        first wait, however often it was asked for before.
        """
        sent = [curious for _, _, curious in self._runs.overlapping(lo, hi) if curious.sent_at]
        if not sent:
            return
        before = self._round_trip.estimate
        if once := [now - _asked_at(curious) for curious in sent if curious.tries == 1]:
            self._round_trip.measured(max(once))
        elif again := [curious.wait // WAITS for curious in sent if curious.tries <= DOUBTS]:
            self._round_trip.doubtful(max(again))
        for start, stop, rest in self._runs.overlapping(hi, FOREVER):
            if start == hi and rest in sent:
                due_at = now + self._repeat_after(0)
                anew = rest._replace(due_at=due_at, tries=1, wait=due_at - _asked_at(rest))
                self._runs.join(start, stop, anew, _take_new)
                self._stale = True
            break
        if self._round_trip.estimate > before:  # then what else was asked for takes as long
            for start, stop, curious in tuple(self._runs):
                if curious.sent_at:
                    later = max(0, curious.sent_at + self._repeat_after(0) - curious.due_at)
                    soon = curious._replace(due_at=curious.due_at + later, wait=curious.wait + later)
                    self._runs.join(start, stop, soon, _take_new)
            self._stale = True

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

    def begin_anew(self, now: int) -> None:
        """The way is free again after a standstill: what waits for a late repetition is asked for again soon.

        Else an outage would last for its own length once more, since each wait is twice the last.
        """
        soon = now + self.times.patience
        for lo, hi, curious in tuple(self._runs):
            anew = curious._replace(due_at=min(curious.due_at, soon), tries=0, wait=0)
            self._runs.join(lo, hi, anew, _take_new)
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

    def due(self, now: int) -> list[tuple[Ranges, Stamp, bool]]:
        """Returns the ranges to ask for now, in tick order: by need, and by whether they were asked for before.

        From now on they count as asked for.
        """
        deadline = self.deadline()
        if deadline is None or now < deadline:
            return []
        wants: list[tuple[IntervalSet, Stamp, bool]] = []
        for lo, hi, curious in tuple(self._runs):
            if curious.due_at <= now:
                _wanted(wants, curious.need, again=bool(curious.tries or curious.sent_at)).add(lo, hi)
                self._runs.join(lo, hi, self._asked(curious, hi, now), _take_new)
        self._stale = True
        return [(ranges.ranges, need, again) for ranges, need, again in wants]

    def _asked(self, curious: _Curious, hi: Tick, now: int) -> _Curious:
        sent_at = curious.sent_at if curious.tries else now
        wait = self._repeat_after(curious.tries)
        return curious._replace(
            due_at=now + wait, tries=curious.tries + 1, sent_at=0 if hi >= FOREVER else sent_at, wait=wait
        )

    def _repeat_after(self, tries: int) -> int:
        """Returns how long to wait for the answer to one more try."""
        times = self.times
        first = max(times.repeat_min, WAITS * self._round_trip.estimate)
        return min(first << min(tries, 32), times.repeat_max)


class _Asked(NamedTuple):
    """What a broker in between has asked for."""

    need: Stamp
    first_at: int
    """When it was first asked for; 0: it has no end, so its answer may be long in coming."""
    until: int
    """How long it is not asked for again."""
    again: bool = False
    """Whether it was asked for more than once since."""


class RecentWants:
    """The recent wants of a broker in between. It asks once for all brokers that want the same ranges (T7).

    It forgets a want before those brokers repeat it, because the one want that it sent may have been lost.
    """

    __slots__ = ("_prune_at", "_round_trip", "_runs", "times")

    def __init__(self, times: CuriosityTimes | None = None) -> None:
        self.times = times or CuriosityTimes()
        self._round_trip = RoundTrip(self.times.forget_max)
        self._runs: IntervalMap[_Asked] = IntervalMap()
        self._prune_at = 0

    def __len__(self) -> int:
        """How many runs are remembered."""
        return len(self._runs)

    @property
    def forget(self) -> int:
        """How long it is remembered now that something was asked for (RFT)."""
        return min(max(self.times.forget, 2 * self._round_trip.estimate), self.times.forget_max)

    def pass_on(self, ranges: Iterable[tuple[Tick, Tick]], need: Stamp, now: int) -> Ranges:
        """Returns the ranges to ask for: all that were not asked for lately with a need that covers this one."""
        self._prune(now)
        wanted = IntervalSet(ranges)
        for lo, hi in wanted.ranges:
            for start, stop, asked in self._runs.overlapping(lo, hi):
                if now < asked.until and covers(asked.need, need):
                    wanted.remove(start, stop)
        for lo, hi in wanted:
            # What was asked for without an end must not hold back long what is known to be missing by then.
            ends = hi < FOREVER
            asked = _Asked(need, now, now + self.forget) if ends else _Asked(need, 0, now + self.times.forget)
            self._runs.join(lo, hi, asked, _ask_again)
        return wanted.ranges

    def unanswered(self, ranges: Iterable[tuple[Tick, Tick]], need: Stamp) -> Ranges:
        """What of these ranges was asked for lately with a need that covers this one, and has not been answered."""
        found = IntervalSet()
        for lo, hi in ranges:
            for start, stop, asked in self._runs.overlapping(lo, hi):
                if asked.first_at and covers(asked.need, need):
                    found.add(start, stop)
        return found.ranges

    def known(self, lo: Tick, hi: Tick, stamp: Stamp) -> None:
        """Notes what came without being asked for, and says nothing about how long answers take."""
        for start, stop, asked in tuple(self._runs.overlapping(lo, hi)):
            if covers(stamp, asked.need):
                self._runs.remove(start, stop)

    def begin_anew(self) -> None:
        """What was asked for is lost with the way that it went. Its repetition is passed on at once."""
        self._runs = IntervalMap()

    def answered(self, lo: Tick, hi: Tick, stamp: Stamp, now: int) -> None:
        """Notes an answer: how long it took says how long to remember what is asked for from now on.

        What was answered is held back no more: who asks for it again has kept nothing of it.
        """
        for start, stop, asked in tuple(self._runs.overlapping(lo, hi)):
            if asked.first_at and covers(stamp, asked.need):
                if asked.again:
                    self._round_trip.doubtful(self.forget)
                else:
                    self._round_trip.measured(now - asked.first_at)
                self._runs.remove(start, stop)

    def _prune(self, now: int) -> None:
        """Forgets old wants, now and then, so that it costs little per want.

        What may be asked for again is not forgotten at once: its answer may still come, and says how long that takes.
        """
        if now < self._prune_at:
            return
        recent: IntervalMap[_Asked] = IntervalMap()
        for lo, hi, asked in self._runs:
            if now < asked.until or (asked.first_at and now < asked.first_at + self.times.forget_max):
                recent.append(lo, hi, asked)
        self._runs = recent
        self._prune_at = now + self.times.forget


def _asked_at(curious: _Curious) -> int:
    """When a range was last asked for, also if the way was lost since (`begin_anew`), so that its tries begin anew."""
    return curious.due_at - curious.wait if curious.tries else curious.sent_at


def _combine(old: _Curious, new: _Curious) -> _Curious:
    """Returns the entry of a range that was missing already, and is reported as missing again."""
    if covers(old.need, new.need):
        sooner = not old.tries and new.due_at < old.due_at
        return old._replace(due_at=new.due_at) if sooner else old
    if old.tries:  # it was asked for, but the answer may have too low a stamp: the new want starts over
        return new._replace(need=join(old.need, new.need))
    return _Curious(join(old.need, new.need), old.first_at, min(old.due_at, new.due_at), 0, 0, 0)


def _ask_again(old: _Asked, new: _Asked) -> _Asked:
    return new._replace(first_at=old.first_at or new.first_at, again=bool(old.first_at))


def _take_new(_old: Value, new: Value) -> Value:
    return new


def _wanted(wants: list[tuple[IntervalSet, Stamp, bool]], need: Stamp, *, again: bool) -> IntervalSet:
    """Returns the ranges wanted with this need, for the first time or again, to be added to."""
    for ranges, *other in wants:
        if other == [need, again]:
            return ranges
    wants.append((IntervalSet(), need, again))
    return wants[-1][0]
