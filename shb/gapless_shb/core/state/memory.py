"""The memory of an SHB for everything that is read for clients, or waits for them (protocol: credit, readers).

There is one budget for all of it. Three kinds of holders share it:

    links     what was given to a client's link and has not left
    readers   what one reader has asked for, or has and did not give to its client yet
    pages     what readers share; half of the budget at most

Nothing is reserved for anybody. A holder may hold about as much as is free: so one alone gets half of the budget, and
a thousand that take nothing leave something free. A link may always hold a little (`least`), so that small events
reach a client that reads, whatever others hold. A piece that is larger, and that there is no memory for, waits its
turn; the broker closes a link on which nothing moves, and so the turn comes.

What a reader asks for counts from then on, at about the size that events have: else a thousand readers that go on at
once would ask for a thousand large events, and nothing would be held yet. If one event is larger than `least`, a reader
asks for it when all readers together hold no more than is left for links; one may always ask. What is not answered soon
counts no more: a pubend that cannot be reached must not keep others waiting.
"""

from __future__ import annotations

from typing import Final, Protocol

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

ANSWERED_WITHIN: Final = 5_000_000_000
"""What a reader has asked for counts for so many nanoseconds, if no answer comes."""

FIRST: Final = 4
"""So many events are fetched as long as it is not known how large they are; …"""
FIRST_MOST: Final = 2048
"""… more after each answer without events, but no more than this."""


class Fetcher(Protocol):
    """Whoever waits until it may fetch."""

    def on_memory(self, now: int, wall: int) -> None:
        """Its turn has come: there is memory for what it wants to fetch."""


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
        self.asked = 0
        """How many bytes readers have asked for that are not here yet."""
        self._asked: dict[Fetcher, tuple[int, int]] = {}
        """The readers that have asked, in the order of their questions: for how much, and until when that counts."""
        self._fetchers: dict[Fetcher, int] = {}
        """The readers that wait until they may fetch, in their order: the size of what they want."""

    @property
    def free(self) -> int:
        """How many bytes of the budget nobody holds, or has asked for."""
        return self._most - self.links - self.readers - self.asked - self.pages

    @property
    def is_short(self) -> bool:
        """Whether what cannot be sent now is dropped, and read again later."""
        return 4 * self.free < self._most

    @property
    def fetch_bytes(self) -> int:
        """About how many bytes a reader should fetch now."""
        return self.fetch_bytes_beside(0)

    def fetch_bytes_beside(self, own: int) -> int:
        """Returns the same for whoever holds `own` bytes of what it has fetched: as if it did not."""
        return max(self.least // 2, min((self.free + own) // READER_PART, FETCH_BYTES))

    @property
    def first_bytes(self) -> int:
        """How much one event counts as long as nobody knows how large events are."""
        return min(self._most // READER_PART, FETCH_BYTES)

    def pages_most(self, own: int) -> int:
        """Returns how many bytes the pages of a pubend may hold, which hold `own` now."""
        return max(0, 3 * (self._most // PAGES_PART - self.pages + own) // 4)

    def free_for(self, *, proven: bool) -> int:
        """Returns how much is free for a link. `proven`: something has left it before."""
        return self.free if proven else self.free - self._most // UNPROVEN_PART

    # What links wait for.

    @property
    def is_awaited(self) -> bool:
        """Whether a session or a reader waits until something is free."""
        return bool(self._waiting or self._fetchers)

    def deadline(self, now: int) -> int | None:
        """When it is somebody's turn, as far as that is known: at once, or when a question counts no more."""
        if self._sessions_due() or self._fetchers_due(now):
            return now + 1
        if not self._fetchers or not self._asked:
            return None
        return next(until for _, until in self._asked.values())

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
        turns = self._sessions_due()
        for session in turns:
            del self._waiting[session]
        return turns

    def _sessions_due(self) -> list[int]:
        taken, turns = 0, list[int]()
        for proven in (True, False):
            for session, (size, is_proven) in self._waiting.items():
                if is_proven is not proven:
                    continue
                if size > self.free_for(proven=proven) - taken and (self.links or turns):
                    break
                taken += size
                turns.append(session)
        return turns

    # What readers ask for.

    def may_fetch(self, reader: Fetcher, size: int, now: int, *, in_turn: bool) -> bool:
        """Whether a reader may ask for `size` bytes. If not, its turn will come.

        `in_turn`: it has waited, and its turn has come. Others do not overtake those that wait.
        """
        if size <= self.least or ((in_turn or not self._fetchers) and self._fits(size, 0, now)):
            return True
        self._fetchers[reader] = size
        return False

    def ask(self, reader: Fetcher, size: int, now: int) -> None:
        """A reader has asked for about so many bytes."""
        self.answered(reader)
        self._asked[reader] = size, now + ANSWERED_WITHIN
        self.asked += size

    def answered(self, reader: Fetcher) -> None:
        """What a reader has asked for is here, or it does not want it any more."""
        size, _ = self._asked.pop(reader, (0, 0))
        self.asked -= size

    def forget(self, reader: Fetcher) -> None:
        """A reader wants nothing any more."""
        self.answered(reader)
        self._fetchers.pop(reader, None)

    def take_fetchers(self, now: int) -> list[Fetcher]:
        """Returns the readers whose turn to ask has come."""
        turns = self._fetchers_due(now)
        for reader in turns:
            del self._fetchers[reader]
        return turns

    def _fetchers_due(self, now: int) -> list[Fetcher]:
        taken, turns = 0, list[Fetcher]()
        for reader, size in self._fetchers.items():
            if not self._fits(size, taken, now):
                break
            taken += size
            turns.append(reader)
        return turns

    def _fits(self, size: int, taken: int, now: int) -> bool:
        """Whether a reader may ask for so much more, if `taken` is given to others. One may in any case."""
        while self._asked:
            reader, (_, until) = next(iter(self._asked.items()))
            if now < until:
                break
            self.answered(reader)
        asked = self.asked + taken
        return not asked or self.readers + asked + size <= self.free - taken


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

    @property
    def one(self) -> int:
        """About how many bytes one event has; 0 if none has come yet."""
        return self._estimate

    def fitting(self, size: int) -> int:
        """Returns how many events have about `size` bytes: one at least, and a few if none has come yet."""
        return max(1, size // self._estimate) if self._estimate else self._first
