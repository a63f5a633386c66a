"""The clock of one pubend: which ticks its events get (algorithms.md 1.1, the HLC rule)."""

from __future__ import annotations

from gapless.core.ticks import FOREVER, MILLISECOND, SECOND, STEP, Tick, tick_at

WALL_LEAD_MAX = 60 * SECOND
"""How far the wall clock may be ahead of what the monotonic clock explains, and still be followed."""

_NANOSECONDS = 1_000_000
"""In a millisecond."""


class TickClock:
    """Gives ticks that only rise, near the wall clock while that can be believed.

    `T = max(wall, T + monotonic elapsed)`: a step backwards of the wall clock costs nothing, for T goes on
    by the monotonic clock. A wall clock that leaps more than 60 s ahead is not followed either, or one bad
    second would age every event by years; `suspect` says so as long as it lasts (C01).
    """

    __slots__ = ("_floor", "_number", "_since", "_time", "latest", "suspect")

    def __init__(self, number: int, floor: Tick, now: int, wall: int) -> None:
        """The clock of pubend number `number`, which has used or promised every tick up to `floor`."""
        self._number = number
        self._floor = floor
        self._time = max(tick_at(wall), floor)
        self._since = now
        self.latest = self._time
        """T as it was read last."""
        self.suspect = False

    def read(self, now: int, wall: int) -> Tick:
        """T: the present as a tick. Assigns nothing."""
        explained = self._time + (now - self._since) * MILLISECOND // _NANOSECONDS
        shown = tick_at(wall)
        self.suspect = shown > explained + WALL_LEAD_MAX
        if shown > explained and not self.suspect:
            self._time, self._since = shown, now
            explained = shown
        self.latest = explained
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
