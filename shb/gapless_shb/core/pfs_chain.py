"""Following a subscription's chain of PFS blocks, from its newest back to where a reader stands (protocol: pfs).

What a subscription was seldom part of is found by a read per block that it was in; a scan would read
every block between. What it was often part of is found faster by the scan, and the walk says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from gapless.core.stream.ticks import Tick
from gapless_shb.core.blocks import Block
from gapless_shb.core.pfs import Found

SPARSE: Final = 16
"""A chain is followed while it skips this many blocks at a time, on average, or more."""


class ChainWalk:
    """A chain that is being followed, and what it has told so far."""

    def __init__(self, sid: int, after: Tick, newest: Tick, upto: Tick, spacing: Tick, grain: Tick) -> None:
        """`spacing`, `grain`: of the PFS."""
        self.span: tuple[Tick, Tick] | None = (newest - 1, newest)
        """(after, upto] of the next read; None when a scan finds the rest sooner."""
        self._sid = sid
        self._after = after
        self._newest = newest
        self._upto = upto
        """How far it is silence that the chain does not name."""
        self._near = SPARSE * spacing
        self._grain = grain
        self._hops = 0
        self._kept: deque[tuple[Tick, list[Tick]]] = deque()
        """Blocks and their ticks, the oldest first."""
        self._count = 0

    def on_records(self, records: Sequence[tuple[int, bytes]], limit: int) -> Found | None:
        """Takes in the answer to a read of `span`; returns what the chain tells, once it has come to its end.

        No more than about `limit` ticks are kept, the oldest (T12). Raises ValueError when a block does not parse.
        """
        block, self.span = self._block(records), None
        if block is None or block.imprecise:
            return None  # what it does not tell, the pages of a scan find out
        self._keep(block, limit)
        self._hops += 1
        previous = block.previous(self._sid, self._grain)
        if previous is None or previous[1] <= self._after:
            return Found([tick for _, ticks in self._kept for tick in ticks], self._upto)
        known = previous[1] - previous[0] <= self._grain
        if known and self._newest - previous[1] >= self._hops * self._near:
            self.span = previous
        return None

    def _block(self, records: Sequence[tuple[int, bytes]]) -> Block | None:
        """The newest block in the span that has the subscription; None if the read ended before the span does."""
        assert self.span is not None
        if not records or records[-1][0] < self.span[1]:
            return None  # there is a block at its end or behind it, so this is not all that there is
        for index, data in reversed(records):
            if index <= self.span[1] and self._sid in (block := Block(index, data)):
                return block
        return None

    def _keep(self, block: Block, limit: int) -> None:
        ticks = [tick for tick in block.ticks_of(self._sid) if tick > self._after]
        self._kept.appendleft((block.index, ticks))
        self._count += len(ticks)
        while self._count - len(self._kept[-1][1]) >= limit:
            self._count -= len(self._kept.pop()[1])
            self._upto = self._kept[-1][0]
