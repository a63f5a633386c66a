"""The clock of one pubend: which ticks its events get (protocol: the-clock)."""

from __future__ import annotations

from gapless.core.stream.ticks import FOREVER, MILLISECOND, SECOND, STEP, Tick, tick_at

WALL_LEAD_MAX = 60 * SECOND
"""How far the wall clock may be ahead of what the monotonic clock explains, and still be followed."""

_NANOSECONDS = 1_000_000
"""In a millisecond."""


class TickClock:
    """Gives ticks that only rise, near the wall clock while that can be believed; and says how old events are.

    `T = max(wall, T + monotonic elapsed)`: a step backwards of the wall clock costs nothing, for T goes on
    by the monotonic clock. A wall clock that leaps more than 60 s ahead is not followed either, or one bad
    second would age every event by years; `suspect` says so as long as it lasts (C01).

    Events are stamped with T, and T has to begin somewhere: at a start it believes the wall clock, and it never goes
    back. Whether the broker was down for two hours or the clock is two hours ahead, nobody can tell then. So events
    grow old by another present, `aged`, which is never ahead of T, and follows the wall clock only as far as the
    monotonic clock explains it, across restarts too. What is forgotten too late costs room; what is forgotten too early
    is lost. A leap that a start began with is believed in the end: `doubt` nanoseconds later.
    """

    __slots__ = (
        "_aged_at",
        "_aged_since",
        "_believes_at",
        "_floor",
        "_number",
        "_since",
        "_time",
        "aged",
        "ahead",
        "doubtful",
        "latest",
        "suspect",
    )

    def __init__(self, number: int, floor: Tick, certain: Tick, doubt: int, now: int, wall: int) -> None:
        """The clock of pubend number `number`, which has used or promised every tick up to `floor`.

        `certain`: `aged` of the run before; `doubt`: for how long a leap since then is not believed.
        """
        shown = tick_at(wall)
        self._number = number
        self._floor = floor
        self._time = max(shown, floor)
        self._since = self._aged_since = now
        self._aged_at = certain
        self._believes_at = now + doubt if shown > certain + WALL_LEAD_MAX else FOREVER
        """When a leap is believed: not at all, if it comes while this runs."""
        self.latest = self._time
        """T as it was read last."""
        self.suspect = False
        """Whether the wall clock has leapt ahead of T."""
        self.ahead = self._time - shown
        """How far T is ahead of the wall clock; negative where it is behind."""
        self.doubtful = False
        """Whether the wall clock has leapt ahead of `aged`."""
        self.aged = certain
        """The present by which events grow old, as it was read last."""
        self.read(now, wall)

    def read(self, now: int, wall: int) -> Tick:
        """T: the present as a tick. Assigns nothing."""
        explained = self._time + (now - self._since) * MILLISECOND // _NANOSECONDS
        shown = tick_at(wall)
        self.suspect = shown > explained + WALL_LEAD_MAX
        if shown > explained and not self.suspect:
            self._time, self._since = shown, now
            explained = shown
        self.latest = explained
        self.ahead = explained - shown
        self.aged = self._aged_at + (now - self._aged_since) * MILLISECOND // _NANOSECONDS
        if self.suspect:
            return explained
        # T may itself be ahead of a clock that was right until it leapt: nothing grows older by that.
        shown = min(shown, explained)
        self.doubtful = shown > self.aged + WALL_LEAD_MAX and now < self._believes_at
        if not self.doubtful:
            self._believes_at = FOREVER
            if shown > self.aged:
                self.aged = self._aged_at = shown
                self._aged_since = now
        return explained

    def take(self, count: int, now: int, wall: int) -> Tick:
        """Assigns `count` ticks, STEP apart, and returns the first; each is above all assigned or promised.

        Ticks that are taken faster than time goes simply run ahead of it: the counter carries into the
        milliseconds.
        """
        lowest = max(self.read(now, wall), self._floor + 1)
        first = lowest + (self._number - lowest) % STEP
        self._floor = first + (count - 1) * STEP
        assert self._floor < FOREVER, "ticks have run out: the wall clock is beyond the year 2088"
        return first

    def promise(self, upto: Tick) -> None:
        """From now on nothing is assigned at or below `upto`."""
        self._floor = max(self._floor, upto)
