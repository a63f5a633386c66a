"""What of a pubend's log cannot be read, and what an operator has said of it.

What cannot be read is unknown: nothing is said of it, and who comes to it waits. Once it was given up it is lost,
and readers are told so, each in its turn. Neither is ever taken for silence.
"""

from __future__ import annotations

from collections.abc import Iterator

from gapless.core.stream.intervals import IntervalSet
from gapless.core.stream.ticks import PubendId, Tick


class Damage:
    """The ranges of ticks (lo, hi] of one log that are unreadable, and those that were given up."""

    def __init__(self, pubend: PubendId) -> None:
        self._pubend = pubend
        self._given_up = IntervalSet()
        self._holes = IntervalSet()
        self._unreadable = IntervalSet()
        self._reason = ""
        self.refusal = ""
        """Why nothing can be published, or ""."""

    def give_up(self, lo: Tick, hi: Tick, upto: Tick) -> None:
        """Recovery found that an operator has given these up: in the storage, what has an index in (lo, upto].

        The record behind has a higher index than `upto`, but its first events may stand right behind `hi`.
        """
        self._given_up.add(lo, hi)
        self._holes.add(lo, upto)

    def behind(self, after: Tick) -> Tick:
        """Behind which index to read on for what is above a tick: not in what was given up."""
        return next((hi for lo, hi in self._holes.ranges if lo <= after < hi), after)

    def note(self, lo: Tick, hi: Tick, reason: str) -> None:
        """These cannot be read."""
        self._unreadable.add(lo, hi)
        self._reason = reason

    def refuse(self, reason: str) -> None:
        """What publishers have sent is not known, so nobody can tell what would be sent twice."""
        self.refusal = self.refusal or (
            f"nothing can be published to pubend {self._pubend} until `gapless repair` has been run, "
            f"because what its publishers have sent can no longer be read: {reason}"
        )

    def divide(self, lo: Tick, hi: Tick, lost: Tick) -> Iterator[tuple[Tick, Tick, bool]]:
        """The parts of (lo, hi], in order, and whether each was given up; what is `lost` is no part of that."""
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
        """Whether something that was given up lies between two ticks."""
        return any(low < hi and lo < high for low, high in self._given_up.ranges)

    def listing(self, lost: Tick) -> list[tuple[Tick, Tick, str]]:
        """The ranges above `lost` and what is wrong with each, for people: "" for what was given up."""
        unreadable = [(lo, hi, self._reason) for lo, hi in self._unreadable.ranges if hi > lost]
        return sorted(unreadable + [(lo, hi, "") for lo, hi in self._given_up.ranges if hi > lost])
