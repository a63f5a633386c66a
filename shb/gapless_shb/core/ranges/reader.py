"""Reads what one subscription matches in a range of a pubend, and changes nothing (protocol: ranges).

It is a reader (`catch_up.readers`) with its own way through what the PFS knows. The first line that fits counts:

    ticks that the pubend has lost, when events are counted    nothing, unless the page cache has the events
    a page of the page cache with all wanted events            taken from memory: recent events are there
    closed blocks of the PFS                                   read, then their ticks are fetched
    the open block                                             at hand; its ticks are fetched

Expired events are read like others: a range that is read twice must give the same events. The reader stops at the head
and goes on when that moves, until it has reached the end of its range. The sink's room bounds what is sent.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from gapless.core.ports import ReadResult
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import Tick
from gapless_shb.core.catch_up.fetches import RangeFetch, TickFetch, nearness
from gapless_shb.core.catch_up.readers import Reader, Sink
from gapless_shb.core.live.constream import Constream
from gapless_shb.core.pfs.blocks import Block, BlockColumn
from gapless_shb.core.state.memory import FETCH_BYTES
from gapless_shb.core.state.registry import SubscriptionRecord
from gapless_shb.core.state.segments import Segment

TICKS_MAX: Final = 2048
TICKS_FIRST: Final = 256
"""The limit of ticks in a reader's first fetch, if the events of the pubend are small."""
NEAR_FIRST: Final = 16
"""In grains of the pubend."""
NEAR_MOST: Final = 1 << 42
READ_BYTES: Final = 256 << 10


class RangeSink(Sink, Protocol):
    """Receives what is in the range, in order."""

    wants_events: bool
    """Whether it needs the events, and not only their ticks."""

    def ticks(self, ticks: Sequence[Tick]) -> None:
        """Takes ticks that match, if `wants_events` is not set. The size of their events is unknown."""

    def column(self, column: BlockColumn) -> None:
        """Takes the ticks of a whole block in the same way."""


class NearTicks(TickFetch):
    """Fetches exactly these ticks, and asks for ticks that are close to each other in one range."""

    others = 0
    """How many events have arrived that were not wanted."""

    def offer(self, knowledge: Knowledge) -> None:
        """Takes the wanted events out of knowledge that has arrived, and counts the others."""
        before = self.count
        super().offer(knowledge)
        if knowledge.reply:
            self.others += len(knowledge.data) - (self.count - before)


class BoundedReader(Reader):
    """One subscription's range on one pubend, and how far it is read."""

    def __init__(
        self,
        stream: Constream,
        subscription: SubscriptionRecord,
        lo: Tick,
        hi: Tick,
        sink: RangeSink,
        read: Callable[[Tick, Tick], None],
        go_on: Callable[[int, int], None],
    ) -> None:
        """`read`: reads PFS records; the answer goes to `on_read`. `go_on(now, wall)`: has this reader stepped."""
        super().__init__(stream.scheduler, subscription, stream.positions[subscription.sid], lo, hi, sink)
        self.start = lo
        self._into = sink
        self._read = read
        self._have_stepped = go_on
        self._blocks: deque[Block] = deque()
        """Blocks that were read, and are not used up yet."""
        self._ticks_most = TICKS_FIRST
        """The limit of ticks in the next fetch, if events are as large as those that this reader has met."""
        self._near = NEAR_FIRST * stream.meta.grain

    @property
    def complete(self) -> bool:
        """Whether all of the range was given to the sink."""
        return self.horizon >= self.end and self._gap is None

    def on_read(self, result: ReadResult) -> None:
        """The PFS was read. Ticks at or below its chop point *now* are unknown, not silence (T43)."""
        upto, self._reading_upto = self._reading_upto, None
        assert upto is not None
        if result.error:
            self._unreadable_upto = upto
        elif result.first <= self.horizon:
            self._blocks.extend(Block(index, data) for index, data in result.records)
            if not self._blocks:
                self._ready_upto = upto

    def _go_on(self, now: int, wall: int) -> None:
        self._have_stepped(now, wall)

    def _plan(self, upto: Tick, now: int, wall: int) -> None:
        low, silent_upto = self._silent()
        if low <= self.horizon < silent_upto:
            self._ready_upto = min(silent_upto, upto)
        elif not self._into.wants_events and self.horizon < (lost_upto := self._lost_upto(upto)):
            self._ready_upto = lost_upto
        else:
            super()._plan(upto, now, wall)

    def _lost_upto(self, upto: Tick) -> Tick:
        """Returns up to where no event is left from the horizon on; ticks that the PFS still has will be a gap."""
        return min(self.stream.lost, self.host.page_cache.first_event_behind(self.horizon), upto)

    def _plan_known(self, upto: Tick, now: int, _wall: int) -> None:
        pfs = self.stream.pfs
        if self._take_page(upto) or self._take_blocks(upto, now):
            return
        if self.horizon < pfs.closed_upto:
            self._reading_upto = min(upto, pfs.closed_upto)
            self._read(self.horizon, self._reading_upto)
        else:
            ticks = [tick for tick in pfs.open_ticks(self.sid, self.horizon) if tick <= upto]
            self._take_ticks(ticks, upto, now, imprecise=pfs.imprecise)

    def _take_page(self, upto: Tick) -> bool:
        """Takes a page from memory, if it has all wanted events. Returns whether there was progress."""
        page_cache = self.host.page_cache
        page = page_cache.page(self.horizon)
        if page is None:
            silent_upto = min(page_cache.silent_upto(self.horizon, upto), upto)
            self._ready_upto = max(self._ready_upto, silent_upto)
            return silent_upto > self.horizon
        if not self._into.wants_events:
            return False
        mask = page.wanted(self.sid, self.horizon) & ((1 << bisect_right(page.ticks, upto)) - 1)
        if page.missing(mask):
            return False
        mask = page.matching(self.stream.pubend, mask, self._matcher, self._filter)
        if mask:
            self._ready.append(page.select(mask))
        self._ready_upto = min(page.index, upto)
        return True

    def _take_blocks(self, upto: Tick, now: int) -> bool:
        """Takes the ticks of some blocks that were read. Returns whether there were any."""
        while self._blocks and self._blocks[0].index <= self.horizon:
            self._blocks.popleft()
        if not self._blocks:
            return False
        if self._into.wants_events:
            self._fetch_blocks(upto, now)
        else:
            self._count_blocks(upto)
        return True

    def _fetch_blocks(self, upto: Tick, now: int) -> None:
        ticks: list[Tick] = []
        covered, imprecise = self.horizon, False
        for block in self._blocks:
            if covered >= upto or len(ticks) >= self._ticks_most:
                break
            ticks += self._within(block.ticks_of(self.sid), upto)
            covered = min(block.index, upto)
            imprecise = imprecise or block.imprecise
        self._take_ticks(ticks, covered, now, imprecise=imprecise)

    def _count_blocks(self, upto: Tick) -> None:
        is_first = True
        while self._blocks and self._blocks[0].index <= upto and not self._sink.full:
            block = self._blocks.popleft()
            self._ready_upto = block.index
            # Blocks do not overlap, so only the first block may have ticks at or below the horizon.
            if is_first and block.first <= self.horizon:
                self._into.ticks(self._within(block.ticks_of(self.sid), upto))
            else:
                self._into.column(block.column(self.sid))
            is_first = False
        if self._blocks and not self._sink.full:
            self._into.ticks(self._within(self._blocks[0].ticks_of(self.sid), upto))
            self._ready_upto = upto

    def _let_go(self) -> None:
        super()._let_go()
        if self._reading_upto is None:
            self._blocks.clear()

    @property
    def _held(self) -> int:
        return super()._held + sum(block.size for block in self._blocks)

    def _within(self, ticks: list[Tick], upto: Tick) -> list[Tick]:
        return ticks[bisect_right(ticks, self.horizon) : bisect_right(ticks, upto)]

    def _take_ticks(self, ticks: Sequence[Tick], upto: Tick, now: int, *, imprecise: bool) -> None:
        if ticks and self._into.wants_events:
            if self._waits_for_memory(now):
                return
            most = min(max(self._ticks_most, self._lost_in_a_row), self._fetch_most)
            if len(ticks) > most and most < TICKS_MAX:  # the events are large, or may be large
                ticks = ticks[:most]
                upto = ticks[-1]
            matcher = self._matcher if imprecise else None
            self._begin(NearTicks(self.stream.pubend, self.horizon, ticks, upto, self._near, matcher), now)
            return
        if ticks:
            self._into.ticks(ticks)
        self._ready_upto = upto

    def _learn(self, fetch: TickFetch | RangeFetch, found: Sequence[Segment]) -> None:
        """Learns how large events are, and how far apart wanted ticks may be to be asked for in one range."""
        if not isinstance(fetch, NearTicks):
            super()._learn(fetch, found)
            return
        count = fetch.count
        if count:
            fitting = FETCH_BYTES * count // max(fetch.size, 1)
            self._ticks_most = max(1, min(fitting, 4 * self._ticks_most, TICKS_MAX))
        if 8 * fetch.others <= count:
            self._near = min(4 * self._near, NEAR_MOST)
        elif fetch.others > count:
            self._near = max(nearness(self.stream.pfs.grain), self._near // 4)
