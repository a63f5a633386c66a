"""What a home finds in its PFS for a guest: which lost ticks its subscription had matched (protocol: roaming)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from gapless.core.ports import ReadResult
from gapless.core.stream.ticks import Tick
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.live.constream import Constream
from gapless_shb.core.pfs.blocks import Block
from gapless_shb.core.roaming.mail import LostRange, Matched

DOUBTS_MOST: Final = 4
"""So many doubts are answered at a time: with all their ticks they fit into one mail."""
TICKS_MOST: Final = 1024
"""So many ticks are told of one pubend at a time. Who asked comes again for the rest."""
READ_BYTES: Final = 256 << 10
"""How much of the PFS is read for one answer."""

Found = Callable[[tuple[Matched, ...]], None]
"""Takes what was found; what is not in it nobody knows."""


@dataclass(slots=True)
class Search:
    """The doubts of one renewal."""

    sid: int
    left: list[LostRange]
    then: Found
    found: list[Matched] = field(default_factory=list)


class Matches:
    """Looks up doubts in the PFS, one after the other."""

    def __init__(self, hosting: Hosting) -> None:
        self._hosting = hosting

    def find(self, sid: int, doubts: Sequence[LostRange], then: Found) -> None:
        """Looks up what a subscription had matched, and calls `then` with that: at once, or when the PFS was read."""
        self._go_on(Search(sid, list(doubts[:DOUBTS_MOST]), then))

    def _go_on(self, search: Search) -> None:
        while search.left:
            stream = self._hosting.streams.get(search.left[0].pubend)
            if stream is not None and search.sid in stream.positions and self._reads(search, stream, search.left[0]):
                return
            search.left.pop(0)
        search.then(tuple(search.found))

    def _reads(self, search: Search, stream: Constream, doubt: LostRange) -> bool:
        """Answers a doubt. Returns whether it has to wait for a read."""
        pfs, lo = stream.pfs, _known_from(stream, search.sid, doubt.lo)
        upto = min(doubt.hi, stream.head)
        if lo >= upto:
            return False
        if lo < min(pfs.closed_upto, stream.positions[search.sid].last_tick):
            sealed = min(upto, pfs.closed_upto)
            answered = partial(self._on_read, search, stream, sealed)
            self._hosting.outbox.read(pfs.stream, lo, sealed, answered, READ_BYTES)
            return True
        search.found.append(_matched(doubt, lo, upto, pfs.open_ticks(search.sid, lo)))
        return False

    def _on_read(
        self, search: Search, stream: Constream, upto: Tick, result: ReadResult, _now: int, _wall: int
    ) -> None:
        doubt = search.left.pop(0)
        if search.sid in stream.positions and not result.error:
            # Ticks at or below its chop point *now* are unknown, not silence (T43).
            lo = _known_from(stream, search.sid, max(doubt.lo, result.first))
            blocks = [Block(index, data) for index, data in result.records]
            if blocks:  # what did not fit into the read is left for the next one
                upto = min(upto, blocks[-1].index)
            if stream.positions[search.sid].last_tick <= upto:  # there is nothing behind that
                upto = min(doubt.hi, stream.head)
            if lo < upto:
                ticks = [tick for block in blocks for tick in block.ticks_of(search.sid)]
                search.found.append(_matched(doubt, lo, upto, ticks))
        self._go_on(search)


def _known_from(stream: Constream, sid: int, lo: Tick) -> Tick:
    """Returns from where on the PFS knows what a subscription has matched."""
    return max(lo, stream.positions[sid].since, stream.pfs.chopped)


def _matched(doubt: LostRange, lo: Tick, upto: Tick, ticks: Sequence[Tick]) -> Matched:
    within = ticks[bisect_right(ticks, lo) : bisect_right(ticks, upto)]
    if len(within) > TICKS_MOST:
        within = within[:TICKS_MOST]
        upto = within[-1]
    return Matched(doubt.pubend, lo, upto, tuple(within))
