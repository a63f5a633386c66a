"""The memory of an SHB for everything that is read for clients, or waits for them (protocol: credit, readers).

There is one budget for all of it. Three kinds of holders share it:

    links     what was given to a client's link and has not left
    readers   what was fetched for one reader and was not given to its client yet
    pages     what readers share; half of the budget at most

Nothing is reserved for anybody. A holder may hold about as much as is free: so one alone gets half of the budget, and
a thousand that take nothing leave something free. A link may always hold a little (`least`), so that small events
reach a client that reads, whatever others hold. A piece that is larger, and that there is no memory for, waits its
turn; the broker closes a link on which nothing moves, and so the turn comes.
"""

from __future__ import annotations

from typing import Final

LEAST_PART: Final = 1024
"""A link may hold this part of the budget, whatever others hold."""
PAGES_PART: Final = 2
"""Shared pages may hold this part of the budget, all pubends together."""
UNPROVEN_PART: Final = 8
"""This part of the budget is for links from which something has left before."""
READER_PART: Final = 16
"""A reader fetches about this part of what is free at once, …"""
FETCH_BYTES: Final = 1 << 20
"""… and no more than this."""

FIRST: Final = 4
"""So many events are fetched as long as it is not known how large they are; …"""
FIRST_MOST: Final = 2048
"""… more after each answer without events, but no more than this."""


class Memory:
    """Counts what is held, and says how much more may be."""

    def __init__(self, most: int) -> None:
        """`most`: the budget in bytes."""
        self._most = most
        self.least = max(1, most // LEAST_PART)
        """What a link may hold, whatever others hold."""
        self.links = 0
        """How many bytes wait on links, without those that have little."""
        self.readers = 0
        """How many bytes readers hold."""
        self.pages = 0
        """How many bytes shared pages hold."""
        self._waiting: dict[int, tuple[int, bool]] = {}
        """The sessions with a piece that there was no memory for, in their order: its size, and whether the link is
        proven."""

    @property
    def free(self) -> int:
        """How many bytes of the budget nobody holds."""
        return self._most - self.links - self.readers - self.pages

    @property
    def is_short(self) -> bool:
        """Whether what cannot be sent now is dropped, and read again later."""
        return 4 * self.free < self._most

    @property
    def fetch_bytes(self) -> int:
        """About how many bytes a reader should fetch now."""
        return max(self.least // 2, min(self.free // READER_PART, FETCH_BYTES))

    def pages_most(self, own: int) -> int:
        """Returns how many bytes the pages of a pubend may hold, which hold `own` now."""
        return max(0, 3 * (self._most // PAGES_PART - self.pages + own) // 4)

    def free_for(self, *, proven: bool) -> int:
        """Returns how much is free for a link. `proven`: something has left it before."""
        return self.free if proven else self.free - self._most // UNPROVEN_PART

    # What links wait for.

    @property
    def is_awaited(self) -> bool:
        """Whether a session waits until something is free."""
        return bool(self._waiting)

    def wait(self, session: int, size: int, *, proven: bool) -> None:
        """A session has a piece of `size` bytes, and waits for its turn."""
        self._waiting[session] = size, proven

    def leave(self, session: int) -> None:
        """A session waits no more: it is over."""
        self._waiting.pop(session, None)

    def take_turns(self) -> list[int]:
        """Returns the sessions whose turn has come: those whose link is proven before others.

        If no link holds anything, it is the turn of the first in any case.
        """
        taken, turns = 0, list[int]()
        for proven in (True, False):
            for session, (size, is_proven) in self._waiting.items():
                if is_proven is not proven:
                    continue
                if size > self.free_for(proven=proven) - taken and (self.links or turns):
                    break
                taken += size
                turns.append(session)
        for session in turns:
            del self._waiting[session]
        return turns


class EventSizes:
    """About how large the events of a pubend are, so that whoever fetches knows how many to ask for."""

    def __init__(self) -> None:
        self._estimate = 0
        self._first = FIRST

    def learn(self, count: int, size: int) -> None:
        """An answer had so many events, of so many bytes. Large ones count at once, small ones by and by."""
        if count:
            self._estimate = max(size // count, self._estimate // 2, 1)
        else:  # they are lost: it must not take for ever to find that of all
            self._first = min(4 * self._first, FIRST_MOST)

    @property
    def is_known(self) -> bool:
        """Whether any event has come yet."""
        return self._estimate > 0

    def fitting(self, size: int) -> int:
        """Returns how many events have about `size` bytes: one at least, and a few if none has come yet."""
        return max(1, size // self._estimate) if self._estimate else self._first
