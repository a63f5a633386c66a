"""When something has to be done: one table per machine, of which the world sees the next time only."""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias


class Timer(Enum):
    """What a deadline is for."""

    CONNECT = "connect"
    """Dial again; or give up a dial or a greeting that takes too long."""
    HEARTBEAT = "heartbeat"
    """Say something, if nothing was said."""
    SILENCE = "silence"
    """Judge the link dead, if nothing was heard."""
    ACKNOWLEDGE = "acknowledge"
    """Send the acknowledgements that have gathered."""
    PUBLISHER = "publisher"
    """Send again, or open again, what was put off."""
    SUBSCRIPTION = "subscription"
    """Attach again."""
    QUESTION = "question"
    """Ask again."""
    RANGE = "range"
    """Ask again for a range or a lease."""


Key: TypeAlias = "tuple[Timer, int]"
"""What for, and for which publisher or subscription (0: for the connection)."""


class Deadlines:
    """Times in monotonic nanoseconds, one per key."""

    def __init__(self) -> None:
        self._due: dict[Key, int] = {}
        self._next: int | None = None
        """The first of them; None where it is not known, or where there are none."""

    def set(self, timer: Timer, due: int, number: int = 0) -> None:
        """Sets or moves a deadline."""
        self._due[timer, number] = due
        self._next = None

    def set_earlier(self, timer: Timer, due: int, number: int = 0) -> None:
        """Sets a deadline unless there is one that comes first."""
        self.set(timer, min(due, self._due.get((timer, number), due)), number)

    def set_later(self, timer: Timer, due: int, number: int = 0) -> None:
        """Sets a deadline unless there is one that comes after it."""
        self.set(timer, max(due, self._due.get((timer, number), due)), number)

    def stop(self, timer: Timer, number: int = 0) -> None:
        """Takes a deadline away, if it is there."""
        self._due.pop((timer, number), None)
        self._next = None

    def clear(self) -> None:
        """Takes all deadlines away."""
        self._due.clear()
        self._next = None

    def next(self) -> int | None:
        """The first of all deadlines."""
        if self._next is None:
            self._next = min(self._due.values(), default=None)
        return self._next

    def take_expired(self, now: int) -> list[Key]:
        """The keys of all deadlines that have come, in the order of their times; they are taken away."""
        expired = sorted((due, key[0].value, key[1], key) for key, due in self._due.items() if due <= now)
        for *_, key in expired:
            del self._due[key]
        self._next = None
        return [key for *_, key in expired]
