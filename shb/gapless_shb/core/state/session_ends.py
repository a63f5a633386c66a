"""What ends with the session of a client (protocol: waiting).

Whoever keeps something for a session, a request that waits, a read, a lease, says here how that ends, and takes it back
when it is over by itself. So nothing is forgotten where a session ends, whoever it is kept by.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeAlias

End: TypeAlias = "Callable[[int, int], object]"
"""(now, wall)"""


class SessionEnds:
    """What ends with each session, in the order in which it began."""

    def __init__(self) -> None:
        self._ends: dict[int, dict[Hashable, End]] = {}

    def add(self, session: int, what: Hashable, end: End) -> None:
        """Something has begun that ends with a session."""
        self._ends.setdefault(session, {})[what] = end

    def remove(self, session: int, what: Hashable) -> None:
        """It is over."""
        ends = self._ends.get(session)
        if ends is not None and ends.pop(what, None) is not None and not ends:
            del self._ends[session]

    def end(self, session: int, now: int, wall: int) -> None:
        """A session has ended, and with it all that is still there."""
        while ends := self._ends.get(session):
            what, end = next(iter(ends.items()))
            self.remove(session, what)
            end(now, wall)

    def __len__(self) -> int:
        return sum(map(len, self._ends.values()))
