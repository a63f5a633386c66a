"""A reader sends what one subscription matches on one pubend, from its position on (protocol: readers, ranges).

The range after its position decides where the events come from:

    up to `since`, the chop point, or an unreadable block    the whole range is fetched, unfiltered, and filtered here
    behind the subscription's last tick                      silence
    between them                                             the PFS has the ticks, and the network has their events

A reader gives its findings to a sink, never more than the sink has room for, and keeps in memory only the result of one
fetch. `Reader` is what all readers share. They differ in how they go through the PFS: `CatchUpReader` serves a
consumer; `gapless_shb.core.ranges.reader` reads a range for an application that keeps its position itself.

Lost ticks are found piece by piece, a page or a fetch at a time, and are sent as one gap. So a reader keeps a gap open
until an event follows it, or until the reader has reached its end. Meanwhile the gap counts as sent but not arrived:
the subscription is not done with it, and if the session ends, the next consumer meets it again. An open gap delays
nothing, because the reader waits only for something that has to be sent after the gap anyway.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol, runtime_checkable

from gapless.core.ports import ReadResult
from gapless.core.stream.columns import EventBatch
from gapless.core.stream.intervals import Ranges
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import FOREVER, PubendId, Tick
from gapless.core.wire.messages import GapReason
from gapless.selectors.index import BatchMatcher
from gapless.selectors.masks import select as selected
from gapless_shb.core.catch_up.fetches import SHORTEST, RangeFetch, TickFetch, Window, interleave, nearness
from gapless_shb.core.catch_up.page_cache import PageCache
from gapless_shb.core.catch_up.pages import Page, above
from gapless_shb.core.catch_up.scan import Scan, Scanned
from gapless_shb.core.pfs.blocks import Block
from gapless_shb.core.pfs.index import Found
from gapless_shb.core.state.broker_state import ALL_IS_SAID, HomeSays
from gapless_shb.core.state.consumers import Consumer
from gapless_shb.core.state.memory import FIRST_MOST, EventSizes, Memory
from gapless_shb.core.state.positions import SubscriptionPosition
from gapless_shb.core.state.pubend import ServedPubend
from gapless_shb.core.state.registry import SubscriptionRecord
from gapless_shb.core.state.segments import GapSegment, Segment, too_large

SPARSE: Final = 16
"""A chain of blocks is followed while it skips so many blocks at a time, on average, or more."""

BATCH = 2048
"""About how many ticks one read of the PFS gathers."""
BEYOND: Final = 2
"""A fetch may bring so many times as much as it was meant to, before a part of it is left to the next one."""


class ReaderContext(Protocol):
    """What readers need beside the pubend that they read; the `Scheduler` provides it."""

    stream: ServedPubend
    page_cache: PageCache
    memory: Memory
    sizes: EventSizes

    def read_pfs(self, reader: CatchUpReader, after: Tick, upto: Tick) -> None:
        """Reads PFS records; the answer goes to `CatchUpReader.on_read`."""

    def ask_home(self, reader: Reader, lo: Tick, hi: Tick, now: int) -> HomeSays | None:
        """Returns what the home of the subscription says of lost ticks in (lo, hi].

        None: the reader has to wait for that, and will be stepped.
        """

    def shared_scan(self) -> Scan | None:
        """Returns the scan that goes through what the PFS does not know; None if there is nobody to share it with."""

    def fetch(self, ranges: Ranges, now: int) -> None:
        """Asks the network for RAW knowledge of these ranges."""

    def step(self, sid: int, now: int, wall: int) -> None:
        """Has the reader of a subscription stepped."""

    def fetch_for(self, reader: CatchUpReader, ranges: Ranges, now: int) -> None:
        """Does the same; from now on knowledge that arrives is given to `Reader.offer`."""


class Sink(Protocol):
    """Receives what a reader finds, in order."""

    @property
    def full(self) -> bool:
        """Whether it takes nothing more now."""

    def events(self, events: EventBatch) -> EventBatch | None:
        """Takes events that match: at least one, unless it is full.

        Returns the events that it has no room for, or None. If it is not full then, the first one is too large for it.
        """

    def gap(self, start: Tick, end: Tick, reason: GapReason) -> None:
        """Takes a gap: events in (start, end] may have been lost."""


@runtime_checkable
class BringsReader(Protocol):
    """What serves a consumer with readers of its own kind."""

    def reader(self, context: ReaderContext, number: int, position: SubscriptionPosition, at: Tick) -> CatchUpReader:
        """Returns a reader for the consumer, from `at` on."""


class Reader(ABC):
    """How far a subscription is read on one pubend, and what the reader waits for; see the module."""

    def __init__(
        self,
        context: ReaderContext,
        subscription: SubscriptionRecord,
        position: SubscriptionPosition,
        start: Tick,
        end: Tick,
        sink: Sink,
    ) -> None:
        """Reads (start, end]. The part above the head is read as the head moves."""
        self.host = context
        self.stream = context.stream
        self.sid = subscription.sid
        self.position = position
        self.horizon = start
        """The doubt horizon: everything up to here was given to the sink."""
        self.end = end
        self._sink = sink
        self._filter = subscription.filter
        self.version = subscription.version
        """The version of that filter: the subscription may get another one."""
        self._matcher = BatchMatcher()
        self._matcher.add(self.sid, self._filter)
        # Who asks for too much is answered in full, and there may be many readers: the first guess is short.
        self._window = Window(context.stream.pfs.grain, SHORTEST)
        self._reading_upto: Tick | None = None
        self._unreadable_upto = 0
        self._fetch: TickFetch | RangeFetch | None = None
        self._harvested: RangeFetch | None = None
        """The last fetch: what has arrived of its range behind a hole is not asked for again."""
        self._ready: deque[Segment] = deque()
        self._ready_upto = start
        self._gap: GapSegment | None = None
        """A gap that was found and not sent yet, because it may become longer."""
        self._handed_out = False
        """Whether this step has given events to the sink."""
        self.examined = 0
        """How many events this step had to look at, because only their content says whether they match."""
        self._doubtful = False
        """Whether it waits to hear if ticks that its fetch found lost are a gap. What it found stays as it is then."""
        self._lost_in_a_row = 1
        """So many ticks are fetched at once in any case: more after each fetch of which nothing was left. To fetch what
        is lost as if it were large events would take for ever."""
        self._is_queued = False
        """Whether it waits until there is memory for its next fetch."""
        self._has_turn = False
        """Whether it has waited for that, and its turn has come."""
        self._counted = 0
        """How much of what it holds counts in the memory of the broker."""

    def offer(self, knowledge: Knowledge, cut: Ranges) -> None:
        """Takes RAW knowledge that has arrived; some of it may have been asked for.

        `cut`: where the log has lost what it had (`ServedPubend.cut`). What was noted there, and is not here yet, is a
        gap.
        """
        if self._doubtful:
            return
        if self._fetch is None:
            if self._harvested is not None:  # the sink is full: the rest of the answer comes while the first part waits
                self._harvested.offer(knowledge)
                self._harvested.bound(BEYOND * self.host.memory.fetch_bytes)
                self._count()
            return
        if isinstance(self._fetch, TickFetch):
            for lo, hi in cut:
                self._fetch.lose(lo, hi)
        if knowledge.hi > self._fetch.start:
            self._fetch.offer(knowledge)
            if self._fetch.held:
                self.host.memory.answered(self)
            self._fetch.bound(BEYOND * self.host.memory.fetch_bytes)
            self._count()

    def forget(self, lo: Tick, hi: Tick) -> Ranges:
        """The log has lost what it had in (lo, hi]: if all of it is read, that is unknown again.

        Returns what is missing then.
        """
        if self._harvested is not None:
            self._harvested.forget(lo, hi)
        if not isinstance(self._fetch, RangeFetch) or self._doubtful:
            return ()
        self._fetch.forget(lo, hi)
        return self._fetch.ranges()

    def step(self, now: int, wall: int) -> bool:
        """Goes on until it has sent something or must wait. Returns whether it can go on at once."""
        goes_on = self._step(now, wall)
        if not goes_on and self.host.memory.is_short and self._sink.full:
            self._let_go()
        self._count()
        return goes_on

    def on_memory(self, now: int, wall: int) -> None:
        """There is memory for its next fetch, unless it was closed meanwhile."""
        if self._is_queued:
            self._is_queued, self._has_turn = False, True
            self._go_on(now, wall)

    @abstractmethod
    def _go_on(self, now: int, wall: int) -> None:
        """Has itself stepped."""

    def close(self) -> None:
        """It is over, and holds nothing any more."""
        self._fetch, self._is_queued = None, False
        self.host.memory.forget(self)
        self._let_go()
        self._count()

    def _let_go(self) -> None:
        """Drops what could not be sent. It is read again when there is room for it."""
        self._ready.clear()
        self._ready_upto = self.horizon
        self._harvested = None

    @property
    def _held(self) -> int:
        """How many bytes it keeps in memory."""
        held = sum(segment.size for segment in self._ready if isinstance(segment, EventBatch))
        if self._harvested is not None:
            held += self._harvested.held
        return held if self._fetch is None else held + self._fetch.held

    def _count(self) -> None:
        """Counts what it holds now in the memory of the broker."""
        held = self._held
        self.host.memory.readers += held - self._counted
        self._counted = held

    def _step(self, now: int, wall: int) -> bool:
        self._handed_out, self.examined = False, 0
        while True:
            self._harvest(now)
            self._hand_out(wall)
            if self._is_busy:
                return False
            self._advance(self._ready_upto)
            upto = min(self.stream.head, self.end)
            if self.horizon >= upto or self._sink.full:
                self._rest()
                return False
            if self._handed_out or self.examined:
                return True
            self._plan(upto, now, wall)

    @property
    def _is_busy(self) -> bool:
        """Whether it waits for an answer, for memory, or for room in the sink."""
        return self._fetch is not None or self._reading_upto is not None or self._is_queued or bool(self._ready)

    # What comes next.

    def _plan(self, upto: Tick, now: int, wall: int) -> None:
        """Decides how to read the next part of (horizon, upto]."""
        unknown_upto = min(self._unknown_upto(), upto)
        if self.horizon < unknown_upto:
            self._plan_unknown(unknown_upto, now, wall)
        # The PFS has matched nothing further on, so all of it is silence, and nothing is read.
        elif self.position.last_tick <= self.horizon:
            self._ready_upto = upto
        else:
            self._plan_known(upto, now, wall)

    def _plan_unknown(self, unknown_upto: Tick, now: int, _wall: int) -> None:
        """Fetches all events of the next part of (horizon, unknown_upto]."""
        if self._waits_for_memory(now):
            return
        window = self._window.upto(self.horizon, unknown_upto)
        fetch = RangeFetch(self.stream.pubend, self.horizon, window, self._matcher)
        if self._harvested is not None:
            fetch.go_on_from(self._harvested)
            self._harvested = None
        self._begin(fetch, now)

    @abstractmethod
    def _plan_known(self, upto: Tick, now: int, wall: int) -> None:
        """Decides the same for a part that the PFS, or the page cache, knows."""

    def _unknown_upto(self) -> Tick:
        """Returns up to where the PFS does not know what matched."""
        return max(self.position.since, self.stream.pfs.chopped, self._unreadable_upto)

    @property
    def _fetch_most(self) -> int:
        """How many events to fetch at once."""
        return max(self._lost_in_a_row, self.host.sizes.fitting(self.host.memory.fetch_bytes))

    @property
    def _event_bytes(self) -> int:
        """About how many bytes the next event has."""
        return self.host.sizes.one or self.host.memory.first_bytes

    def _waits_for_memory(self, now: int) -> bool:
        """Whether the next fetch has to wait until there is memory for an event. Then it is planned anew."""
        self._is_queued = not self.host.memory.may_fetch(self, self._event_bytes, now, in_turn=self._has_turn)
        self._has_turn &= not self._is_queued
        return self._is_queued

    def _begin(self, fetch: TickFetch | RangeFetch, now: int) -> None:
        self._set_fetch(fetch, now)
        self.host.fetch(fetch.ranges(), now)

    def _set_fetch(self, fetch: TickFetch | RangeFetch, now: int) -> None:
        """What it asks for counts from now on."""
        self._fetch, self._has_turn = fetch, False
        memory, one = self.host.memory, self._event_bytes
        most = max(one, memory.fetch_bytes)
        memory.ask(self, min(most, one * fetch.wanted) if isinstance(fetch, TickFetch) else most, now)

    def _silent(self) -> tuple[Tick, Tick]:
        """Returns (lo, hi]: the subscription is done with these ticks, so none of them is a gap."""
        return self.stream.silent(self.position)

    # What has come.

    def _harvest(self, now: int) -> None:
        """Takes the result of a complete fetch. Lost ticks that have become silence meanwhile are no gap."""
        fetch = self._fetch
        if fetch is None or not fetch.complete:
            return
        self.examined += fetch.examines
        segments = fetch.segments((self._silent(),))
        gap = next((segment for segment in segments if isinstance(segment, GapSegment)), None)
        said = ALL_IS_SAID if gap is None else self.host.ask_home(self, gap.start, fetch.upto, now)
        self._doubtful = said is None
        if said is None:
            return
        if said is not ALL_IS_SAID:
            assert isinstance(fetch, RangeFetch), "the PFS here knows nothing of a guest"
            # Of what lies above that its home has said nothing yet.
            fetch.end_at(said.upto)
            segments = fetch.segments((self._silent(), *said.silent))
        self._fetch = None
        self.host.memory.answered(self)
        self._harvested = fetch if isinstance(fetch, RangeFetch) else None
        self._ready.extend(segments)
        self._ready_upto = fetch.upto
        if isinstance(fetch, TickFetch):
            self._lost_in_a_row = 1 if fetch.count else min(4 * self._lost_in_a_row, FIRST_MOST)
        self._learn(fetch, segments)
        if isinstance(fetch, RangeFetch):
            fetch.let_go()

    def _learn(self, fetch: TickFetch | RangeFetch, _found: Sequence[Segment]) -> None:
        """Notes what a fetch has shown, beside what it found for the sink."""
        if isinstance(fetch, RangeFetch):
            fetch.teach(self._window, self.host.memory.fetch_bytes)

    def _hand_out(self, wall: int) -> None:
        while self._ready:
            segment = self._ready[0]
            if isinstance(segment, GapSegment):
                self._keep_open(segment)
            elif len(events := self._wanted(segment, wall)):
                rest = self._hand_over(events)
                if rest is not None:
                    self._ready[0] = rest
                    if self._sink.full:
                        return
                    self._keep_open(too_large(rest.ticks[0]))
                    self._ready[0] = rest.slice(1, len(rest))
                    continue
            self._ready.popleft()

    def _wanted(self, events: EventBatch, _wall: int) -> EventBatch:
        """Returns the events that have to be sent now."""
        return events

    def _hand_over(self, events: EventBatch) -> EventBatch | None:
        """Gives the sink as many events as it takes. Returns the rest, or None if it took all."""
        if self._sink.full:
            return events
        self._close_gap()
        rest = self._sink.events(events)
        self._handed_out = True
        if taken := len(events) - (0 if rest is None else len(rest)):
            self._told(events.ticks[taken - 1])
        return rest

    def _keep_open(self, lost: GapSegment) -> None:
        """Opens a gap, or extends the open one if the reason is the same: no event was sent between."""
        if lost.reason is GapReason.RELEASED_EARLY:
            lost = GapSegment(lost.start, lost.end, self.stream.why_lost(lost.reason))
        if lost.reason is GapReason.DAMAGED:
            lost = GapSegment(lost.start, lost.end, self.stream.why_damaged(lost.start, lost.end))
        if self._gap is not None and self._gap.reason != lost.reason:
            self._close_gap()
        self._gap = lost.after(self._gap)
        self._told(lost.end)

    def _close_gap(self) -> None:
        """Sends the open gap, if there is one: it ends here."""
        if self._gap is None:
            return
        gap, self._gap = self._gap, None
        # A position for clients must not look like a lost event, but a range must not end beyond its own end.
        end = min(self.stream.client_position(gap.end), self.end)
        self._sink.gap(gap.start, end, gap.reason)
        self._told(end)

    def _told(self, upto: Tick) -> None:
        """Notes that the sink has everything up to here; an open gap will be sent before anything else."""
        self._advance(upto)

    def _advance(self, tick: Tick) -> None:
        self.horizon = max(self.horizon, tick)

    def _rest(self) -> None:
        """Nothing more can be read now: the reader is at the head, or at its end, or the sink is full."""
        if self.horizon >= self.end:
            self._close_gap()


class ConsumerSink:
    """A sink that sends to a consumer as much as its credit allows."""

    def __init__(self, consumer: Consumer, pubend: PubendId, position: SubscriptionPosition) -> None:
        self._consumer = consumer
        self._pubend = pubend
        self._position = position
        self._counts = consumer.channel.counts

    @property
    def full(self) -> bool:
        """Whether not even one event may be sent now."""
        return self._consumer.starved

    def events(self, events: EventBatch) -> EventBatch | None:
        """Sends as many events as the credit allows, up to one that is too large. Returns the rest, or None."""
        while count := self._consumer.affordable(events, BATCH):
            payload = events.slice(0, count).payload((1 << count) - 1)
            if self._consumer.is_too_large(payload):
                return events
            self._consumer.send(self._pubend, count, payload)
            self._counts.on_read(events.ticks[:count], self._position.sent_before)
            if count == len(events):
                return None
            events = events.slice(count, len(events))
        return events

    def gap(self, start: Tick, end: Tick, reason: GapReason) -> None:
        """Sends a gap; it costs no credit."""
        self._consumer.channel.gap(self._consumer.sid, self._pubend, start, end, reason)


class CatchUpReader(Reader):
    """Serves a consumer that is behind the head. At the head the constream takes over, in the same step (T25).

    The reader takes the ticks that the PFS has from pages of the page cache, which it shares with other readers. If the
    subscription is in few blocks only, it follows the subscription's chain of blocks instead.
    """

    def __init__(
        self,
        context: ReaderContext,
        number: int,
        consumer: Consumer,
        position: SubscriptionPosition,
        start: Tick,
        sink: Sink,
    ) -> None:
        super().__init__(context, consumer.subscription, position, start, FOREVER, sink)
        self.number = number
        """Distinguishes an answer to this reader from an answer to an earlier reader of the subscription."""
        self.consumer = consumer
        self.began: int | None = None
        """When it had its first turn."""
        self._counts = consumer.channel.counts
        self._walk: ChainWalk | None = None
        self._scans = False
        """Whether a walk has shown that the subscription is in so many blocks that reading all of them is faster."""
        self._waits = False
        """Whether it waits for the page cache, which will wake it."""
        self._walked: Found | None = None
        """What a walk has found and was not asked for yet."""
        self._said = start

    # What happened.

    def _go_on(self, now: int, wall: int) -> None:
        self.host.step(self.sid, now, wall)

    def wake(self) -> None:
        """The page cache may have what the reader waits for."""
        self._waits = False

    def on_read(self, result: ReadResult, now: int) -> None:
        """A block of the chain was read. Ticks at or below the chop point *now* are unknown, not silence (T43)."""
        upto, self._reading_upto = self._reading_upto, None
        walk, self._walk = self._walk, None
        if result.error and upto is not None:
            self._scans = True  # the scan will show how much cannot be read
        if result.error or walk is None or result.first > self.horizon:
            return
        found = walk.on_records(result.records, BATCH)
        if found is not None:
            self._ask_walked(found, now)
        else:
            self._walk_on(walk)

    # What to do.

    @property
    def idle(self) -> bool:
        """Whether it waits for nothing and has nothing left to send."""
        return not self._is_busy and self._gap is None

    @property
    def is_blocked(self) -> bool:
        """Whether no event could be sent now, so that it must not become live."""
        return self._sink.full

    @property
    def settled(self) -> Tick:
        """Everything up to here was given to the sink; an open gap was not yet."""
        return self.horizon if self._gap is None else self._gap.start

    @property
    def _is_busy(self) -> bool:
        return self._waits or super()._is_busy

    @property
    def fetching(self) -> bool:
        """Whether arriving knowledge has to be offered to it."""
        rest = self._harvested
        return self._fetch is not None or (rest is not None and rest.upto < rest.end)

    def _plan_unknown(self, unknown_upto: Tick, now: int, wall: int) -> None:
        """Takes it from the scan, if there are others to share it with and nothing is lost."""
        scan = self.host.shared_scan()
        if scan is None:
            super()._plan_unknown(unknown_upto, now, wall)
        elif (part := scan.part(self.horizon)) is not None:
            self._take_scanned(scan, part, unknown_upto, wall)
        elif scan.want(self.sid, self._filter, self.horizon, unknown_upto):
            self._waits = True
        else:
            super()._plan_unknown(unknown_upto, now, wall)

    def _take_scanned(self, scan: Scan, part: Scanned, unknown_upto: Tick, wall: int) -> None:
        upto, page = min(part.upto, unknown_upto), part.page
        self._harvested = None  # it lies behind
        if page is None:
            self._ready_upto = upto
            return
        mask, examined = scan.mask_of(self.sid, self._filter, self._matcher, part)
        self.examined += examined
        mask &= above(page.ticks, self.horizon) & ~above(page.ticks, upto)
        if self.consumer.subscription.durable:
            self.position.found_before(self.horizon, upto, selected(page.ticks, mask), whole=True)
        self._send_page(page, mask & ~page.expired(wall), upto)

    def _plan_known(self, upto: Tick, now: int, wall: int) -> None:
        pfs, page_cache = self.stream.pfs, self.host.page_cache
        if (page := page_cache.page(self.horizon)) is not None:
            self._take(page, now, wall)
        elif (silent_upto := page_cache.silent_upto(self.horizon, upto)) > self.horizon:
            self._ready_upto = silent_upto
        elif self._walked is not None and self.horizon < self._walked.upto:
            self._ask_walked(self._walked, now)
        elif self.horizon < pfs.closed_upto:
            self._read_pfs()
        else:
            matcher = self._matcher if pfs.imprecise else None
            ticks = pfs.open_ticks(self.sid, self.horizon)
            most = self._fetch_most
            self._ask_ticks(ticks[:most], upto if len(ticks) <= most else ticks[most - 1], now, matcher)

    def _take(self, page: Page, now: int, wall: int) -> None:
        """Sends its share of a page, or waits for the page's events."""
        mask = page.wanted(self.sid, self.horizon)
        missing = page.missing(mask)
        if not missing:
            self.examined += mask.bit_count() if page.masks.imprecise else 0
            matching = page.matching(self.stream.pubend, mask, self._matcher, self._filter)
            self._send_page(page, matching & ~page.expired(wall), page.index)
        elif mask & ~page.asked & ~page.have or (losses := page.losses(mask)) is None:
            self._waits = True
            self.host.page_cache.ask(self.sid, page, mask, now)
        else:
            low, high = self._silent()
            # What the subscription is done with is no gap, whatever has become of it.
            lost = [loss for loss in losses if not low < loss[1] <= high]
            matching = page.matching(self.stream.pubend, mask & page.have, self._matcher, self._filter)
            self._ready.extend(interleave(self.horizon, page.select(matching), lost))
            self._ready_upto = page.index

    def _send_page(self, page: Page, mask: int, upto: Tick) -> None:
        """Sends as much of the page as the credit allows. The rest is looked up again when there is more credit.

        `upto`: when all of that is sent, the reader has come so far.
        """
        consumer = self.consumer
        while mask:
            if consumer.starved:
                return
            part, payload = mask, b""
            # Subscriptions with the same mask share the joined payload; only a part for little credit is joined alone.
            if mask.bit_count() <= consumer.credit_events:
                payload = page.payload(mask)
            if not payload or len(payload) > min(consumer.credit_bytes, consumer.payload_max, consumer.channel.share):
                count = consumer.affordable(page.select(mask), BATCH)
                if not count:
                    return
                part = lowest(mask, count)
                payload = page.part(part)
            mask ^= part
            if consumer.is_too_large(payload):
                self._keep_open(too_large(page.ticks[part.bit_length() - 1]))
                continue
            self._close_gap()
            consumer.send(self.stream.pubend, part.bit_count(), payload)
            if self.horizon < self.position.sent_before:
                self._counts.on_read(selected(page.ticks, part), self.position.sent_before)
            else:
                self._counts.caught_up += part.bit_count()
            self._handed_out = True
            self._told(page.ticks[part.bit_length() - 1])
        self._ready_upto = upto

    def _read_pfs(self) -> None:
        pfs = self.stream.pfs
        newest = pfs.newest(self.sid)
        if newest <= self.horizon:
            self._ready_upto = pfs.closed_upto
        elif newest <= pfs.closed_upto and pfs.spacing and not self._scans:
            self._walk_on(ChainWalk(self.sid, self.horizon, newest, pfs.closed_upto, pfs.spacing, pfs.grain))
        else:
            self._waits = True
            self.host.page_cache.want_blocks(self.sid, self.horizon)

    def _walk_on(self, walk: ChainWalk) -> None:
        """Reads the chain's next block; changes to a scan if the chain is not worth following."""
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

    def _ask_walked(self, found: Found, now: int) -> None:
        """Asks for the first events that a walk has found; the others are asked for afterwards."""
        ticks = found.ticks[bisect_right(found.ticks, self.horizon) :]
        if ticks and self._waits_for_memory(now):
            self._walked = found
            return
        most = self._fetch_most
        self._walked = found if len(ticks) > most else None
        self._ask_ticks(ticks[:most], found.upto if len(ticks) <= most else ticks[most - 1], now, None)

    def _ask_ticks(self, ticks: list[Tick], upto: Tick, now: int, imprecise_for: BatchMatcher | None) -> None:
        if not ticks:
            self._ready_upto = max(self._ready_upto, upto)
            return
        if self._waits_for_memory(now):
            return
        near = nearness(self.stream.pfs.grain)
        self._begin(TickFetch(self.stream.pubend, self.horizon, ticks, upto, near, imprecise_for), now)

    def _begin(self, fetch: TickFetch | RangeFetch, now: int) -> None:
        self._set_fetch(fetch, now)
        self.host.fetch_for(self, fetch.ranges(), now)

    def _learn(self, fetch: TickFetch | RangeFetch, found: Sequence[Segment]) -> None:
        super()._learn(fetch, found)
        if isinstance(fetch, RangeFetch) and self.consumer.subscription.durable:
            events = EventBatch.concatenate([each for each in found if isinstance(each, EventBatch)])
            whole = not any(isinstance(each, GapSegment) for each in found)
            self.position.found_before(fetch.start, fetch.upto, events.ticks, whole=whole)

    def _wanted(self, events: EventBatch, wall: int) -> EventBatch:
        return unexpired(events, wall)

    def _told(self, upto: Tick) -> None:
        self._said = self.position.sent = upto
        super()._told(upto)

    def _advance(self, tick: Tick) -> None:
        super()._advance(tick)
        self.position.pass_over(self.horizon)

    def _rest(self) -> None:
        """Sends the open gap and the silence up to the head.

        A gap waits while there is no credit for an event after it.
        """
        if self._gap is not None and self.consumer.starved:
            return
        self._close_gap()
        if self.horizon > self._said:
            self._advance(self.stream.client_position(self.horizon))
            self._said = self.horizon
            self.consumer.channel.silence(self.stream.pubend, self.horizon, [self.sid])


def lowest(mask: int, count: int) -> int:
    """Returns the lowest `count` set bits of a mask."""
    places = selected(range(mask.bit_length()), mask)
    return mask if len(places) <= count else mask & ((1 << places[count]) - 1)


def unexpired(events: EventBatch, wall: int) -> EventBatch:
    """Returns the events that have not expired. Expiry acts here and in the constream's deliveries, nowhere else."""
    mask = expired_mask(events, wall)
    return events if not mask else events.select(((1 << len(events)) - 1) & ~mask)


def expired_mask(events: EventBatch, wall: int) -> int:
    """Returns the events whose expiration time has come, as a mask."""
    mask = 0
    if not events.has_extras:
        return mask
    for index, header in enumerate(events.headers):
        if header.extras is not None and 0 < header.extras.expiration <= wall:
            mask |= 1 << index
    return mask


class ChainWalk:
    """Follows a subscription's chain of PFS blocks, from the newest back to a reader's position (protocol: pfs).

    For a subscription that is in few blocks a walk is faster: it reads only those. A scan reads every block between.
    For a subscription that is in many blocks the scan is faster, and then the walk ends with `span` None.
    """

    def __init__(self, sid: int, after: Tick, newest: Tick, upto: Tick, spacing: Tick, grain: Tick) -> None:
        """`spacing`, `grain`: those of the PFS."""
        self.span: tuple[Tick, Tick] | None = (newest - 1, newest)
        """The next read, (after, upto]; None if a scan finds the rest faster."""
        self._sid = sid
        self._after = after
        self._newest = newest
        self._upto = upto
        """Ticks up to here that the chain does not have are silence."""
        self._near = SPARSE * spacing
        self._grain = grain
        self._hops = 0
        self._kept: deque[tuple[Tick, list[Tick]]] = deque()
        """Blocks and their ticks; the oldest block is first."""
        self._count = 0

    def on_records(self, records: Sequence[tuple[int, bytes]], limit: int) -> Found | None:
        """Takes the answer to a read of `span`. Returns the result when the chain has come to its end.

        About `limit` ticks are kept, the oldest ones (T12). Raises ValueError if a block cannot be decoded.
        """
        block, self.span = self._block(records), None
        if block is None or block.imprecise:
            return None  # a scan goes on from here: it can filter what the block does not tell
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
        """Returns the newest block in the span with the subscription; None if the read ended before the span."""
        assert self.span is not None
        if not records or records[-1][0] < self.span[1]:
            return None  # the span ends at a block, so the read was cut off before it
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
