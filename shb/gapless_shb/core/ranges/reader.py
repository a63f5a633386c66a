"""Reads what one subscription matches in a range of a pubend, and changes nothing (protocol: ranges).

What is known of the range decides where its events come from, from the front on:

    up to `since`, the chop point, or what cannot be read   the whole range is fetched, unfiltered, and filtered
    what the pubend has lost, where events are counted      nothing, unless the shelf has it
    behind the subscription's last tick                     silence
    the shelf's pages, if they have all that is wanted      from memory: what was just delivered is there
    sealed blocks of the PFS                                read, and their ticks fetched
    the open block                                          at hand, and its ticks fetched

Nothing is dropped because it expired: a range that is read again must not have shrunk. It ends at the head, and goes on
when that moves, until it has reached the end of its range. What is handed out is bounded by the sink's room. What is
lost comes to light a fetch at a time, and is one gap: it is said when an event follows, or at the end of the range.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from gapless.core.ports import ReadResult
from gapless.core.stream.columns import EventBatch
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import PubendId, Tick
from gapless.selectors.index import BatchMatcher
from gapless_shb.core.blocks import Block, Column
from gapless_shb.core.constream import Constream
from gapless_shb.core.fetches import (
    GapSegment,
    RangeFetch,
    Segment,
    TickFetch,
    Window,
    nearness,
    refilter,
)
from gapless_shb.core.positions import Position
from gapless_shb.core.subscriptions import Subscription

TARGET_BYTES: Final = 1 << 20
"""The events of so many ticks are fetched at once that they have about so many bytes."""
TICKS_MAX: Final = 2048
TICKS_FIRST: Final = 256
"""As long as it is not known how large events are."""
NEAR_FIRST: Final = 16
"""Grains of the pubend."""
NEAR_MOST: Final = 1 << 42
READ_BYTES: Final = 256 << 10


class Sink(Protocol):
    """Who is told what is in the range, in order."""

    wants_events: bool
    """Whether the events are needed, and not their ticks alone."""

    def ticks(self, ticks: Sequence[Tick]) -> None:
        """These match, if `wants_events` is not set; how large they are is not known."""

    def column(self, column: Column) -> None:
        """The same, said of a whole block."""

    def events(self, events: EventBatch) -> EventBatch | None:
        """These match. Returns those there was no room for, or None."""

    def gap(self, start: Tick, end: Tick, reason: str) -> None:
        """Events in (start, end] may have been lost."""

    @property
    def full(self) -> bool:
        """Whether nothing more is wanted now."""


class NearTicks(TickFetch):
    """Wants exactly these ticks, and asks for those that are close to each other in one range."""

    def __init__(
        self, pubend: PubendId, start: Tick, ticks: Sequence[Tick], upto: Tick, near: Tick, *, imprecise: bool
    ) -> None:
        super().__init__(pubend, start, ticks, upto, near, None)
        self.imprecise = imprecise
        self.others = 0
        """How many events came along that were not wanted."""

    def offer(self, knowledge: Knowledge) -> None:
        """Takes what it wanted out of knowledge that arrived."""
        before = len(self._missing)
        super().offer(knowledge)
        if knowledge.reply:
            self.others += len(knowledge.data) - (before - len(self._missing))


class RangeReader:
    """A range of one subscription on one pubend, and how far it is read."""

    def __init__(
        self,
        stream: Constream,
        subscription: Subscription,
        lo: Tick,
        hi: Tick,
        sink: Sink,
        read: Callable[[Tick, Tick], None],
    ) -> None:
        """`read` reads PFS records; answered by `on_read`."""
        self.stream = stream
        self.sid = subscription.sid
        self.lo = lo
        self.horizon = lo
        """Everything of the range up to here has been said."""
        self.hi = hi
        self._sink = sink
        self._read = read
        self._matcher = BatchMatcher()
        self._matcher.add(self.sid, subscription.filter)
        self._filter = subscription.filter
        self._window = Window(stream.meta.grain)
        self._reading_upto: Tick | None = None
        self._unreadable_upto = 0
        self._blocks: deque[Block] = deque()
        """Blocks that were read, and not all used yet."""
        self._fetch: NearTicks | RangeFetch | None = None
        self._ready: deque[Segment] = deque()
        self._ready_upto = lo
        self._gap: GapSegment | None = None
        """What was found to be lost, and is not said yet: more of it may follow."""
        self._ticks_most = TICKS_FIRST
        self._near = NEAR_FIRST * stream.meta.grain

    @property
    def complete(self) -> bool:
        """Whether all of the range was said."""
        return self.horizon >= self.hi and self._gap is None

    # What happened.

    def on_knowledge(self, knowledge: Knowledge) -> None:
        """RAW knowledge of the pubend arrived; some of it may be what was asked for."""
        if self._fetch is not None and knowledge.hi > self._fetch.start:
            self._fetch.offer(knowledge)

    def on_read(self, result: ReadResult) -> None:
        """The PFS was read. What lies at or below its chop point *now* is unknown, not silence (T43)."""
        upto, self._reading_upto = self._reading_upto, None
        assert upto is not None
        if result.error:
            self._unreadable_upto = upto
        elif result.first <= self.horizon:
            self._blocks.extend(Block(index, data) for index, data in result.records)
            if not self._blocks:
                self._ready_upto = upto

    # What to do.

    def step(self, now: int) -> None:
        """Goes on until the range is complete, or it must wait: for an answer, for room, or for the head."""
        while True:
            self._harvest()
            self._hand_out()
            if self._ready or self._fetch is not None or self._reading_upto is not None:
                return
            self.horizon = max(self.horizon, self._ready_upto)
            head = min(self.stream.head, self.hi)
            if self.horizon >= self.hi:
                self._say_gap()
            if self.horizon >= head or self._sink.full:
                return
            self._plan(head, now)

    def _plan(self, head: Tick, now: int) -> None:
        """Decides what comes next of (horizon, head]."""
        stream, horizon = self.stream, self.horizon
        position = stream.positions[self.sid]
        low, silent_upto = self._silent(position)
        unknown_upto = min(max(position.since, stream.pfs.chopped, self._unreadable_upto), head)
        if low <= horizon < silent_upto:
            self._ready_upto = min(silent_upto, head)
        elif not self._sink.wants_events and horizon < (lost_upto := self._lost_upto(head)):
            self._ready_upto = lost_upto
        elif horizon < unknown_upto:
            fetch = RangeFetch(stream.pubend, horizon, self._window.upto(horizon, unknown_upto), self._matcher)
            self._fetch = fetch
            stream.turns.fetch(fetch.ranges(), now)
        elif position.last_tick <= horizon:
            self._ready_upto = head
        elif self._take_page(head) or self._take_blocks(head, now):
            return
        elif horizon < stream.pfs.sealed_upto:
            self._reading_upto = min(head, stream.pfs.sealed_upto)
            self._read(horizon, self._reading_upto)
        else:
            ticks = [tick for tick in stream.pfs.open_ticks(self.sid, horizon) if tick <= head]
            self._take_ticks(ticks, head, now, imprecise=stream.pfs.imprecise)

    def _lost_upto(self, head: Tick) -> Tick:
        """From the horizon up to here no event is left: what the PFS still names there will be a gap."""
        return min(self.stream.lost, self.stream.turns.shelf.first_event_behind(self.horizon), head)

    def _silent(self, position: Position) -> tuple[Tick, Tick]:
        """(lo, hi]: the subscription is done with it, and no event of it stands there."""
        self.stream.release(position)
        return position.silent()

    def _take_page(self, head: Tick) -> bool:
        """Takes what is in memory, if it is all that is wanted of a page."""
        shelf = self.stream.turns.shelf
        page = shelf.page(self.horizon)
        if page is None:
            silent_upto = min(shelf.silent_upto(self.horizon, head), head)
            self._ready_upto = max(self._ready_upto, silent_upto)
            return silent_upto > self.horizon
        if not self._sink.wants_events:
            return False
        mask = page.wanted(self.sid, self.horizon) & ((1 << bisect_right(page.ticks, head)) - 1)
        if page.missing(mask):
            return False
        mask = page.matching(self.stream.pubend, mask, self._matcher, self._filter)
        if mask:
            self._ready.append(page.select(mask))
        self._ready_upto = min(page.index, head)
        return True

    def _take_blocks(self, head: Tick, now: int) -> bool:
        """Takes what blocks tell that were read, or the first of them; returns whether there are any."""
        while self._blocks and self._blocks[0].index <= self.horizon:
            self._blocks.popleft()
        if not self._blocks:
            return False
        if self._sink.wants_events:
            self._fetch_blocks(head, now)
        else:
            self._count_blocks(head)
        return True

    def _fetch_blocks(self, head: Tick, now: int) -> None:
        ticks: list[Tick] = []
        covered, imprecise = self.horizon, False
        for block in self._blocks:
            if covered >= head or len(ticks) >= self._ticks_most:
                break
            ticks += self._within(block.ticks_of(self.sid), head)
            covered = min(block.index, head)
            imprecise = imprecise or block.imprecise
        self._take_ticks(ticks, covered, now, imprecise=imprecise)

    def _count_blocks(self, head: Tick) -> None:
        is_first = True
        while self._blocks and self._blocks[0].index <= head and not self._sink.full:
            block = self._blocks.popleft()
            self._ready_upto = block.index
            # A block that comes behind another one begins behind it: only the first may have ticks up to the horizon.
            if is_first and block.first <= self.horizon:
                self._sink.ticks(self._within(block.ticks_of(self.sid), head))
            else:
                self._sink.column(block.column(self.sid))
            is_first = False
        if self._blocks and not self._sink.full:
            self._sink.ticks(self._within(self._blocks[0].ticks_of(self.sid), head))
            self._ready_upto = head

    def _within(self, ticks: list[Tick], head: Tick) -> list[Tick]:
        return ticks[bisect_right(ticks, self.horizon) : bisect_right(ticks, head)]

    def _take_ticks(self, ticks: Sequence[Tick], upto: Tick, now: int, *, imprecise: bool) -> None:
        if ticks and self._sink.wants_events:
            if len(ticks) > self._ticks_most and self._ticks_most < TICKS_MAX:  # the events are large, or may be
                ticks = ticks[: self._ticks_most]
                upto = ticks[-1]
            self._fetch = NearTicks(self.stream.pubend, self.horizon, ticks, upto, self._near, imprecise=imprecise)
            self.stream.turns.fetch(self._fetch.ranges(), now)
            return
        if ticks:
            self._sink.ticks(ticks)
        self._ready_upto = upto

    def _harvest(self) -> None:
        """Takes what was fetched, if it is complete; what became silence meanwhile is no gap."""
        fetch = self._fetch
        if fetch is None or not fetch.complete:
            return
        self._fetch = None
        segments = fetch.segments(self._silent(self.stream.positions[self.sid]))
        if isinstance(fetch, RangeFetch):
            self._window.learn(fetch.size)
        else:
            self._learn(fetch, segments)
            if fetch.imprecise:
                pubend, matcher = self.stream.pubend, self._matcher
                segments = [s if isinstance(s, GapSegment) else refilter(pubend, s, matcher) for s in segments]
        self._ready.extend(segment for segment in segments if isinstance(segment, GapSegment) or len(segment))
        self._ready_upto = fetch.upto

    def _learn(self, fetch: NearTicks, segments: Sequence[Segment]) -> None:
        """How large events are, and how far apart wanted ticks may be to be asked for in one range."""
        batches = [segment for segment in segments if not isinstance(segment, GapSegment)]
        count = sum(map(len, batches))
        if count:
            fitting = TARGET_BYTES * count // max(sum(batch.size for batch in batches), 1)
            self._ticks_most = max(1, min(fitting, 4 * self._ticks_most, TICKS_MAX))
        if 8 * fetch.others <= count:
            self._near = min(4 * self._near, NEAR_MOST)
        elif fetch.others > count:
            self._near = max(nearness(self.stream.meta.grain), self._near // 4)

    def _hand_out(self) -> None:
        while self._ready:
            segment = self._ready[0]
            if isinstance(segment, GapSegment):
                if self._gap is not None and self._gap.reason != segment.reason:
                    self._say_gap()
                end = min(self.stream.behind(segment.end), self.hi)
                self._gap = GapSegment(max(segment.start, self.horizon), end, segment.reason).after(self._gap)
                self.horizon = max(self.horizon, self._gap.end)
                self._ready.popleft()
                continue
            if self._sink.full:
                return
            self._say_gap()
            rest = self._sink.events(segment)
            if rest is not None:
                if len(rest) < len(segment):
                    self.horizon = segment.ticks[len(segment) - len(rest) - 1]
                    self._ready[0] = rest
                return
            self.horizon = segment.ticks[-1]
            self._ready.popleft()

    def _say_gap(self) -> None:
        """Says the gap that is open, if one is: it ends here."""
        if self._gap is not None:
            self._sink.gap(self._gap.start, self._gap.end, self._gap.reason)
            self._gap = None
