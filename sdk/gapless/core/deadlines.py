"""All deadlines of one machine in one table, of which the world sees a single number."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

Timer = TypeVar("Timer", bound=Hashable)


class Deadlines(Generic[Timer]):
    """At most one deadline per timer, in monotonic integer nanoseconds."""

    __slots__ = ("_at", "_next")

    def __init__(self) -> None:
        self._at: dict[Timer, int] = {}
        self._next: int | None = None
        """The earliest of them; None where it is not known, or where there are none."""

    def __contains__(self, timer: Timer) -> bool:
        return timer in self._at

    def at(self, timer: Timer) -> int | None:
        """When this timer expires, or None."""
        return self._at.get(timer)

    def set(self, timer: Timer, at: int) -> None:
        """The timer expires at this time, whatever was set before."""
        self._at.pop(timer, None)
        self._at[timer] = at
        self._next = None

    def set_earlier(self, timer: Timer, at: int) -> None:
        """The timer expires at this time, unless it is set and expires sooner."""
        if at < self._at.get(timer, at + 1):
            self.set(timer, at)

    def clear(self, timer: Timer) -> None:
        """The timer does not expire."""
        self._at.pop(timer, None)
        self._next = None

    def clear_all(self) -> None:
        """No timer expires."""
        self._at.clear()
        self._next = None

    def next(self) -> int | None:
        """When the first timer expires, or None."""
        if self._next is None:
            self._next = min(self._at.values(), default=None)
        return self._next

    def take_expired(self, now: int) -> Iterator[Timer]:
        """Yields the timers with a time <= `now`, the earliest first; each is no longer set when it comes.

        Those with the same time come in the order in which they were set. What handling one of them clears, or sets
        to a later time, does not come any more.
        """
        for timer in sorted((timer for timer, at in self._at.items() if at <= now), key=self._at.__getitem__):
            if self._at.get(timer, now + 1) <= now:
                self.clear(timer)
                yield timer
