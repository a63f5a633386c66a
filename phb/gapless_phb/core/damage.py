"""The parts of a pubend's log that cannot be read, and those that an operator has given up.

Ticks of an unreadable part are unknown: nothing is sent about them, and readers that reach them wait. Once the
operator has given the part up, its ticks are lost, and each reader that reaches them is informed. Neither kind is
ever taken for silence.
"""

from __future__ import annotations

from collections.abc import Iterator

from gapless.core.stream.intervals import IntervalSet
from gapless.core.stream.ticks import PubendId, Tick


class Damage:
    """The tick ranges (lo, hi] of one log that are unreadable, and those that were given up."""

    def __init__(self, pubend: PubendId) -> None:
        self._pubend = pubend
        self._given_up = IntervalSet()
        self._holes = IntervalSet()
        self._unreadable = IntervalSet()
        self._reason = ""
        self.refusal = ""
        """Why nothing can be published now, or ""."""

    def give_up(self, lo: Tick, hi: Tick, upto: Tick) -> None:
        """Notes a range that an operator has given up: ticks (lo, hi], stored at the indices (lo, upto].

        The two ends differ because a record is stored under its last tick. The record behind the hole has an index
        above `upto`, but its first events may stand right behind `hi`.
        """
        self._given_up.add(lo, hi)
        self._holes.add(lo, upto)

    def behind(self, after: Tick) -> Tick:
        """Returns the index behind which to read for what is above a tick: the end of a hole, if the tick is in one."""
        return next((hi for lo, hi in self._holes.ranges if lo <= after < hi), after)

    def note(self, lo: Tick, hi: Tick, reason: str) -> None:
        """Notes a range that cannot be read."""
        self._unreadable.add(lo, hi)
        self._reason = reason

    def refuse(self, reason: str) -> None:
        """Closes the pubend to publishers: repeats of batches in the unreadable part cannot be recognised."""
        self.refusal = self.refusal or (
            f"nothing can be published to pubend {self._pubend} until `gapless repair` has been run, "
            f"because what its publishers have sent can no longer be read: {reason}"
        )

    def divide(self, lo: Tick, hi: Tick, lost: Tick) -> Iterator[tuple[Tick, Tick, bool]]:
        """Yields the parts of (lo, hi] in order, each with whether it was given up. Ticks up to `lost` count as not."""
        at = lo
        for first, last in self._given_up.ranges:
            start, end = max(first, lost, at), min(last, hi)
            if start < end:
                if at < start:
                    yield at, start, False
                yield start, end, True
                at = end
        if at < hi:
            yield at, hi, False

    def is_between(self, lo: Tick, hi: Tick) -> bool:
        """Whether a part that was given up lies between two ticks."""
        return any(low < hi and lo < high for low, high in self._given_up.ranges)

    def listing(self, lost: Tick) -> list[tuple[Tick, Tick, str]]:
        """Returns the damaged ranges above `lost`, each with its reason for people: "" if it was given up."""
        unreadable = [(lo, hi, self._reason) for lo, hi in self._unreadable.ranges if hi > lost]
        return sorted(unreadable + [(lo, hi, "") for lo, hi in self._given_up.ranges if hi > lost])
