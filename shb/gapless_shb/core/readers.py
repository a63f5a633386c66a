"""A reader tells what one subscription matches on one pubend, from where it stands on (protocol: readers, ranges).

What is known decides where the events come from, from the front on:

    up to `since`, the chop point, or what cannot be read   the whole range is fetched, unfiltered, and filtered
    behind the subscription's last tick                     silence
    between them                                            the PFS names the ticks, and the network has their events

It hands out to a sink, no more than that has room for, and keeps in memory only what one fetch brought. `Reader` is
what all readers do; how they go through the PFS is told by those that serve a consumer (`CatchUpReader`), and by those
that read a range for an application which keeps the position itself (`gapless_shb.core.ranges.reader`).

What is lost comes to light a page or a fetch at a time, and is one gap: the reader keeps a gap open until an
event is to follow it, or it has come to its end. To all but the client that is a gap that was sent and is
still on its way: it is not done with, and whoever ends the session meets it again. It waits for nothing but what
the reader waits for, behind which nothing could follow anyway.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from gapless.core.ports import ReadResult
from gapless.core.stream.columns import EventBatch
from gapless.core.stream.intervals import Ranges
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import FOREVER, PubendId, Tick
from gapless.core.wire.messages import GapReason
from gapless.selectors.index import BatchMatcher
from gapless.selectors.masks import select as selected
from gapless_shb.core.blocks import Block
from gapless_shb.core.consumers import Consumer
from gapless_shb.core.fetches import GapSegment, RangeFetch, Segment, TickFetch, Window, interleave, nearness
from gapless_shb.core.page_cache import PageCache
from gapless_shb.core.pages import Page
from gapless_shb.core.pfs import Found
from gapless_shb.core.positions import SubscriptionPosition
from gapless_shb.core.pubend import ServedPubend
from gapless_shb.core.subscriptions import SubscriptionRecord

SPARSE: Final = 16
"""A chain is followed while it skips this many blocks at a time, on average, or more."""

BATCH = 2048
"""How many ticks a read of the PFS gathers, about."""


class Host(Protocol):
    """What readers need beside the pubend they read: the `Scheduler`."""

    stream: ServedPubend
    page_cache: PageCache

    def read_pfs(self, reader: CatchUpReader, after: Tick, upto: Tick) -> None:
        """Reads PFS records; answered by `CatchUpReader.on_read`."""

    def fetch(self, ranges: Ranges, now: int) -> None:
        """Asks the network for RAW knowledge of these ranges."""

    def fetch_for(self, reader: CatchUpReader, ranges: Ranges, now: int) -> None:
        """The same; from now on what arrives comes to `Reader.offer`."""


class Sink(Protocol):
    """Who is told what a reader finds, in order."""

    @property
    def full(self) -> bool:
        """Whether nothing more is wanted now."""

    def events(self, events: EventBatch) -> EventBatch | None:
        """These match. Takes one at least, unless it is full; returns those there was no room for, or None."""

    def gap(self, start: Tick, end: Tick, reason: GapReason) -> None:
        """Events in (start, end] may have been lost."""


class Reader(ABC):
    """How far a subscription is read on one pubend, and what is waited for. See the module."""

    def __init__(
        self,
        host: Host,
        subscription: SubscriptionRecord,
        position: SubscriptionPosition,
        start: Tick,
        end: Tick,
        sink: Sink,
    ) -> None:
        """Reads (start, end]; of the part above the head, as the head moves."""
        self.host = host
        self.stream = host.stream
        self.sid = subscription.sid
        self.position = position
        self.horizon = start
        """The doubt horizon: everything up to here has been told."""
        self.end = end
        self._sink = sink
        self._filter = subscription.filter
        self._matcher = BatchMatcher()
        self._matcher.add(self.sid, self._filter)
        self._window = Window(host.stream.pfs.grain)
        self._reading_upto: Tick | None = None
        self._unreadable_upto = 0
        self._fetch: TickFetch | RangeFetch | None = None
        self._ready: deque[Segment] = deque()
        self._ready_upto = start
        self._gap: GapSegment | None = None
        """What was found to be lost, and is not told yet: more of it may follow."""
        self._handed_out = False
        """Whether events were, in this step."""

    def offer(self, knowledge: Knowledge) -> None:
        """RAW knowledge arrived; some of it may be what was asked for."""
        if self._fetch is not None and knowledge.hi > self._fetch.start:
            self._fetch.offer(knowledge)

    def step(self, now: int, wall: int) -> bool:
        """Goes on until it has handed something out or must wait; returns whether there is more to do at once."""
        self._handed_out = False
        while True:
            self._harvest()
            self._hand_out(wall)
            if self._is_busy:
                return False
            self._advance(self._ready_upto)
            upto = min(self.stream.head, self.end)
            if self.horizon >= upto or self._sink.full:
                self._rest()
                return False
            if self._handed_out:
                return True
            self._plan(upto, now, wall)

    @property
    def _is_busy(self) -> bool:
        """Whether it waits for something, or for room for what is ready."""
        return self._fetch is not None or self._reading_upto is not None or bool(self._ready)

    # What comes next.

    def _plan(self, upto: Tick, now: int, wall: int) -> None:
        """Decides what comes next of (horizon, upto]."""
        unknown_upto = min(self._unknown_upto(), upto)
        if self.horizon < unknown_upto:
            window = self._window.upto(self.horizon, unknown_upto)
            self._begin(RangeFetch(self.stream.pubend, self.horizon, window, self._matcher), now)
        elif self.position.last_tick <= self.horizon:
            self._ready_upto = upto
        else:
            self._plan_known(upto, now, wall)

    @abstractmethod
    def _plan_known(self, upto: Tick, now: int, wall: int) -> None:
        """The same where the PFS, or what is in memory, says what there is."""

    def _unknown_upto(self) -> Tick:
        """Up to here the PFS does not tell what matched."""
        return max(self.position.since, self.stream.pfs.chopped, self._unreadable_upto)

    def _begin(self, fetch: TickFetch | RangeFetch, now: int) -> None:
        self._fetch = fetch
        self.host.fetch(fetch.ranges(), now)

    def _silent(self) -> tuple[Tick, Tick]:
        """(lo, hi]: the subscription is done with it, and no event of it stands there."""
        return self.stream.silent(self.position)

    # What has come.

    def _harvest(self) -> None:
        """Takes what was fetched, if it is complete; what became silence meanwhile is no gap."""
        fetch = self._fetch
        if fetch is None or not fetch.complete:
            return
        self._fetch = None
        self._ready.extend(fetch.segments(self._silent()))
        self._ready_upto = fetch.upto
        self._learn(fetch)

    def _learn(self, fetch: TickFetch | RangeFetch) -> None:
        if isinstance(fetch, RangeFetch):
            self._window.learn(fetch.size)

    def _hand_out(self, wall: int) -> None:
        while self._ready:
            segment = self._ready[0]
            if isinstance(segment, GapSegment):
                self._keep_open(segment)
            elif len(events := self._wanted(segment, wall)):
                rest = self._hand_over(events)
                if rest is not None:
                    self._ready[0] = rest
                    return
            self._ready.popleft()

    def _wanted(self, events: EventBatch, _wall: int) -> EventBatch:
        """Those of the events that are to be handed out now."""
        return events

    def _hand_over(self, events: EventBatch) -> EventBatch | None:
        """Gives the sink what it takes; returns the rest, or None when all is taken."""
        if self._sink.full:
            return events
        self._close_gap()
        rest = self._sink.events(events)
        self._handed_out = True
        self._told(events.ticks[len(events) - (0 if rest is None else len(rest)) - 1])
        return rest

    def _keep_open(self, lost: GapSegment) -> None:
        """Begins a gap, or makes the one that is open longer: nothing was told between, and the reason is the same."""
        if self._gap is not None and self._gap.reason != lost.reason:
            self._close_gap()
        self._gap = lost.after(self._gap)
        self._told(lost.end)

    def _close_gap(self) -> None:
        """Tells of the gap that is open, if one is: it ends here."""
        if self._gap is None:
            return
        gap, self._gap = self._gap, None
        end = min(self.stream.behind(gap.end), self.end)
        self._sink.gap(gap.start, end, gap.reason)
        self._told(end)

    def _told(self, upto: Tick) -> None:
        """The sink was told of an event here or of a gap up to here, or will be told of the gap before all else."""
        self._advance(upto)

    def _advance(self, tick: Tick) -> None:
        self.horizon = max(self.horizon, tick)

    def _rest(self) -> None:
        """It has come to the head or its end, or nothing more is wanted now."""
        if self.horizon >= self.end:
            self._close_gap()


class ConsumerSink:
    """A consumer that is sent what it has credit for."""

    def __init__(self, consumer: Consumer, pubend: PubendId) -> None:
        self._consumer = consumer
        self._pubend = pubend

    @property
    def full(self) -> bool:
        """Whether not even one event may be sent."""
        return self._consumer.starved

    def events(self, events: EventBatch) -> EventBatch | None:
        """Sends as many as the credit allows; returns the rest, or None when all are sent."""
        while count := self._consumer.affordable(events, BATCH):
            self.send(count, events.slice(0, count).payload((1 << count) - 1))
            if count == len(events):
                return None
            events = events.slice(count, len(events))
        return events

    def send(self, count: int, payload: bytes) -> None:
        """So many events, which the credit covers."""
        self._consumer.spend(count, len(payload))
        self._consumer.channel.deliver(self._consumer.sid, self._pubend, payload)

    def gap(self, start: Tick, end: Tick, reason: GapReason) -> None:
        """Says so."""
        self._consumer.channel.gap(self._consumer.sid, self._pubend, start, end, reason)


class CatchUpReader(Reader):
    """Serves a consumer that is not at the head. When it has reached that, the constream takes over, in one step (T25).

    It takes what the PFS names from the page cache's pages, which it shares with others, or follows the subscription's
    chain of blocks where that is sparse.
    """

    def __init__(
        self, host: Host, number: int, consumer: Consumer, position: SubscriptionPosition, start: Tick
    ) -> None:
        self._feed = ConsumerSink(consumer, host.stream.pubend)
        super().__init__(host, consumer.subscription, position, start, FOREVER, self._feed)
        self.number = number
        """Tells an answer to this reader from one to an earlier reader of the subscription."""
        self.consumer = consumer
        self._walk: ChainWalk | None = None
        self._scans = False
        """Whether a walk has found the subscription in so many blocks that reading all of them is faster."""
        self._waits = False
        """Whether it waits for the page cache, which wakes it."""
        self._said = start

    # What happened.

    def wake(self) -> None:
        """What it waits for on the page cache may be there."""
        self._waits = False

    def on_read(self, result: ReadResult, now: int) -> None:
        """A block of its chain was read. What lies at or below the chop point *now* is unknown, not silence (T43)."""
        upto, self._reading_upto = self._reading_upto, None
        walk, self._walk = self._walk, None
        if result.error and upto is not None:
            self._scans = True  # the scan finds out how far
        if result.error or walk is None or result.first > self.horizon:
            return
        found = walk.on_records(result.records, BATCH)
        if found is not None:
            self._ask_ticks(found.ticks, found.upto, now, None)
        else:
            self._walk_on(walk)

    # What to do.

    @property
    def idle(self) -> bool:
        """Whether it waits for nothing and has nothing left to send."""
        return not self._is_busy and self._gap is None

    @property
    def _is_busy(self) -> bool:
        return self._waits or super()._is_busy

    @property
    def fetching(self) -> bool:
        """Whether it wants to be offered what arrives."""
        return self._fetch is not None

    def _plan_known(self, upto: Tick, now: int, wall: int) -> None:
        pfs, page_cache = self.stream.pfs, self.host.page_cache
        if (page := page_cache.page(self.horizon)) is not None:
            self._take(page, now, wall)
        elif (silent_upto := page_cache.silent_upto(self.horizon, upto)) > self.horizon:
            self._ready_upto = silent_upto
        elif self.horizon < pfs.sealed_upto:
            self._read_pfs()
        else:
            matcher = self._matcher if pfs.imprecise else None
            self._ask_ticks(pfs.open_ticks(self.sid, self.horizon), upto, now, matcher)

    def _take(self, page: Page, now: int, wall: int) -> None:
        """Sends its share of a page, or waits for it."""
        mask = page.wanted(self.sid, self.horizon)
        missing = page.missing(mask)
        if not missing:
            matching = page.matching(self.stream.pubend, mask, self._matcher, self._filter)
            self._send_page(page, matching & ~page.expired(wall))
        elif mask & ~page.asked & ~page.have or (losses := page.losses(mask)) is None:
            self._waits = True
            self.host.page_cache.ask(self.sid, page, mask, now)
        else:
            low, high = self._silent()
            lost = [loss for loss in losses if not low < loss[1] <= high]
            matching = page.matching(self.stream.pubend, mask & page.have, self._matcher, self._filter)
            self._ready.extend(interleave(self.horizon, page.select(matching), lost))
            self._ready_upto = page.index

    def _send_page(self, page: Page, mask: int) -> None:
        """Sends as much of the page as the credit allows; the rest is looked up again when there is more."""
        consumer = self.consumer
        while mask:
            if consumer.starved:
                return
            part, payload = mask, b""
            if mask.bit_count() <= consumer.credit_events:
                payload = page.payload(mask)
            if not payload or len(payload) > consumer.credit_bytes:
                part = lowest(mask, consumer.affordable(page.select(mask), BATCH))
                payload = page.part(part)
            self._close_gap()
            self._feed.send(part.bit_count(), payload)
            self._handed_out = True
            self._told(page.ticks[part.bit_length() - 1])
            mask ^= part
        self._ready_upto = page.index

    def _read_pfs(self) -> None:
        pfs = self.stream.pfs
        newest = pfs.newest(self.sid)
        if newest <= self.horizon:
            self._ready_upto = pfs.sealed_upto
        elif newest <= pfs.sealed_upto and pfs.spacing and not self._scans:
            self._walk_on(ChainWalk(self.sid, self.horizon, newest, pfs.sealed_upto, pfs.spacing, pfs.grain))
        else:
            self._waits = True
            self.host.page_cache.want_blocks(self.sid, self.horizon)

    def _walk_on(self, walk: ChainWalk) -> None:
        """Reads the chain's next block, or what lies ahead if the chain is not worth following."""
        if walk.span is None:
            self._scans = True
            self._read_pfs()
            return
        self._walk = walk
        self._reading_upto = walk.span[1]
        self.host.read_pfs(self, *walk.span)

    def _unknown_upto(self) -> Tick:
        if not self.consumer.subscription.durable:
            return FOREVER
        return max(super()._unknown_upto(), self.host.page_cache.unreadable_upto)

    def _ask_ticks(self, ticks: list[Tick], upto: Tick, now: int, imprecise_for: BatchMatcher | None) -> None:
        if not ticks:
            self._ready_upto = max(self._ready_upto, upto)
            return
        near = nearness(self.stream.pfs.grain)
        self._begin(TickFetch(self.stream.pubend, self.horizon, ticks, upto, near, imprecise_for), now)

    def _begin(self, fetch: TickFetch | RangeFetch, now: int) -> None:
        self._fetch = fetch
        self.host.fetch_for(self, fetch.ranges(), now)

    def _wanted(self, events: EventBatch, wall: int) -> EventBatch:
        return unexpired(events, wall)

    def _told(self, upto: Tick) -> None:
        self._said = self.position.sent = upto
        super()._told(upto)

    def _advance(self, tick: Tick) -> None:
        super()._advance(tick)
        self.position.pass_over(self.horizon)

    def _rest(self) -> None:
        """It can send nothing more now. An open gap goes out at the head, unless there is no room for an event."""
        if self._gap is not None and self.consumer.starved:
            return
        self._close_gap()
        if self.horizon > self._said:
            self._advance(self.stream.behind(self.horizon))
            self._said = self.horizon
            self.consumer.channel.silence(self.stream.pubend, self.horizon, [self.sid])


def lowest(mask: int, count: int) -> int:
    """The lowest `count` bits of a mask that are set."""
    places = selected(range(mask.bit_length()), mask)
    return mask if len(places) <= count else mask & ((1 << places[count]) - 1)


def unexpired(events: EventBatch, wall: int) -> EventBatch:
    """The events that have not expired. Expiry acts only here and in the constream's deliveries."""
    mask = expired_mask(events, wall)
    return events if not mask else events.select(((1 << len(events)) - 1) & ~mask)


def expired_mask(events: EventBatch, wall: int) -> int:
    """The events whose expiration has come, as a mask."""
    mask = 0
    for index, header in enumerate(events.headers):
        if header.extras is not None and 0 < header.extras.expiration <= wall:
            mask |= 1 << index
    return mask


class ChainWalk:
    """Follows a subscription's chain of PFS blocks, from its newest back to where a reader stands (protocol: pfs).

    What a subscription was seldom part of is found by a read per block that it was in; a scan would read
    every block between. What it was often part of is found faster by the scan, and the walk says so.
    """

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
