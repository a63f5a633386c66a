"""The clock of one pubend: it assigns the ticks of events (protocol: the-clock)."""

from __future__ import annotations

from gapless.core.stream.ticks import FOREVER, MILLISECOND, SECOND, STEP, Tick, tick_at
from gapless_phb.core.rows import AgeRow

WALL_LEAD_MAX = 60 * SECOND
"""How far the wall clock may be ahead of the elapsed monotonic time and still be believed."""

_NANOSECONDS = 1_000_000
"""Nanoseconds in a millisecond."""


class TickClock:
    """Assigns ticks that only rise and stay near the wall clock while it can be believed; knows how old events are.

    It keeps two presents:

    `T` stamps events: `T = max(wall, T + monotonic elapsed)`. If the wall clock steps back, T goes on by the monotonic
    clock. If it leaps more than 60 s ahead, T does not follow, because one wrong second would age every event by years;
    `suspect` is true as long as that lasts (C01). At a start T has to begin somewhere, so it believes the wall clock
    then.

    `aged` tells how old events are. At a start the wall clock may be two hours ahead of the last run, and nobody can
    know whether the broker was down for two hours or the clock is wrong. So `aged` is never ahead of T, and follows the
    wall clock only as far as the monotonic clock explains it, across restarts, too: as long as the machine runs, its
    monotonic clock tells how long the broker was down. An event that is forgotten too late costs room; one that is
    forgotten too early is lost. A leap that was there at the start is believed `doubt` nanoseconds after it was found,
    by this run or, while the machine runs, by one before it.
    """

    __slots__ = (
        "_aged_at",
        "_aged_since",
        "_believes_at",
        "_boot",
        "_doubt_began",
        "_floor",
        "_number",
        "_read_at",
        "_shown",
        "_since",
        "_time",
        "aged",
        "ahead",
        "doubtful",
        "latest",
        "suspect",
    )

    def __init__(self, number: int, floor: Tick, age: AgeRow, boot: str, doubt: int, now: int, wall: int) -> None:
        """Starts the clock of pubend number `number`, which has used or promised every tick up to `floor`.

        `age`: that of the former run, at its end; `boot`: in which run of the machine `now` counts; `doubt`: how long a
        leap since then is not believed.
        """
        shown = tick_at(wall)
        certain, began = age.aged, now
        if boot and boot == age.boot and age.now <= now:
            certain = max(certain, min(certain + _ticks(now - age.now), shown))
            if age.doubt_began is not None and shown - certain <= age.leap + WALL_LEAD_MAX:
                began = age.doubt_began
        self._boot = boot
        self._doubt_began = began
        self._read_at, self._shown = now, shown
        self._number = number
        self._floor = floor
        self._time = max(shown, floor)
        self._since = self._aged_since = now
        self._aged_at = certain
        self._believes_at = began + doubt if shown > certain + WALL_LEAD_MAX else FOREVER
        """When a leap that was there at the start is believed. A leap that comes later is never believed."""
        self.latest = self._time
        """T, as it was read last."""
        self.suspect = False
        """Whether the wall clock has leapt ahead of T."""
        self.ahead = self._time - shown
        """How far T is ahead of the wall clock; negative if T is behind it."""
        self.doubtful = False
        """Whether the wall clock has leapt ahead of `aged`."""
        self.aged = certain
        """The present by which events grow old, as it was read last."""
        self.read(now, wall)

    def read(self, now: int, wall: int) -> Tick:
        """Reads both presents and returns T, the present as a tick. Assigns nothing."""
        explained = self._time + _ticks(now - self._since)
        shown = tick_at(wall)
        self._read_at, self._shown = now, shown
        self.suspect = shown > explained + WALL_LEAD_MAX
        if shown > explained and not self.suspect:
            self._time, self._since = shown, now
            explained = shown
        assert explained >= self.latest, "T never falls: the monotonic clock carries it on"
        self.latest = explained
        self.ahead = explained - shown
        self.aged = self._aged_at + _ticks(now - self._aged_since)
        if self.suspect:
            return explained
        # T may be ahead of a wall clock that was right until it leapt. Events must not grow older by that.
        shown = min(shown, explained)
        self.doubtful = shown > self.aged + WALL_LEAD_MAX and now < self._believes_at
        if not self.doubtful:
            # The leap is over, or is believed now. One that comes later in this run is never believed.
            self._believes_at = FOREVER
            if shown > self.aged:
                self.aged = self._aged_at = shown
                self._aged_since = now
        return explained

    def age(self) -> AgeRow:
        """Returns what the next run has to know of `aged`, as it was read last."""
        began = self._doubt_began if self.doubtful and self._believes_at < FOREVER else None
        return AgeRow(self.aged, self._boot, self._read_at, began, max(0, self._shown - self.aged))

    def take(self, count: int, now: int, wall: int) -> Tick:
        """Assigns `count` ticks, STEP apart, and returns the first. Each is above all that was assigned or promised.

        If ticks are taken faster than time passes, they run ahead of it: the counter carries into the milliseconds.
        """
        lowest = max(self.read(now, wall), self._floor + 1)
        # The next tick at or above `lowest` with this pubend's remainder: no two pubends of a broker share a tick.
        first = lowest + (self._number - lowest) % STEP
        assert first > self._floor, "a tick is assigned once, and never below a promise"
        self._floor = first + (count - 1) * STEP
        assert self._floor < FOREVER, "ticks have run out: the wall clock is beyond the year 2088"
        return first

    def promise(self, upto: Tick) -> None:
        """From now on no tick at or below `upto` is assigned."""
        self._floor = max(self._floor, upto)


def _ticks(nanoseconds: int) -> Tick:
    return nanoseconds * MILLISECOND // _NANOSECONDS
