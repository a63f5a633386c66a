"""A reader serves one subscription on one pubend from where it stands up to the head (protocol: readers).

It asks the PFS for the subscription's ticks and the network for their events; where the PFS knows
nothing (before `since`, below the chop point, for a subscription that is not durable) it asks for whole
ranges and filters them again. It never sends beyond the consumer's credit, and keeps in memory only what
one fetch brought. When it has reached the head, the constream takes over, in one step (T25).

What is lost comes to light a page or a fetch at a time, and is one gap: the reader keeps a gap open until an
event is to follow it, or it has reached the head. To all but the client that is a gap that was sent and is
still on its way: it is not settled, and whoever ends the session meets it again. It waits for nothing but what
the reader waits for, behind which nothing could follow anyway.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from gapless.core.ports import ReadResult
from gapless.core.stream.columns import ROW, EventBatch
from gapless.core.stream.intervals import Ranges
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import PubendId, Tick
from gapless.selectors.index import BatchMatcher
from gapless.selectors.masks import select as selected
from gapless_shb.core.consumers import Consumer
from gapless_shb.core.fetches import GapSegment, RangeFetch, Segment, TickFetch, Window, interleave, nearness
from gapless_shb.core.pages import Page
from gapless_shb.core.pfs import Pfs
from gapless_shb.core.positions import Position
from gapless_shb.core.shelf import Shelf
from gapless_shb.core.walks import Walk

BATCH = 2048
"""How many ticks a read of the PFS gathers, about."""


class Host(Protocol):
    """What a reader needs of the pubend it reads."""

    pubend: PubendId
    pfs: Pfs
    shelf: Shelf

    @property
    def head(self) -> Tick:
        """How far the constream is."""

    def read_pfs(self, reader: Reader, after: Tick, upto: Tick) -> None:
        """Reads PFS records; answered by `Reader.on_read`."""

    def behind(self, tick: Tick) -> Tick:
        """A position up to which everything is known, as it may be told."""

    def silent(self, position: Position) -> tuple[Tick, Tick]:
        """(lo, hi]: silence to every reader of a subscription, whatever the log still knows of it."""

    def fetch_for(self, reader: Reader, ranges: Ranges, now: int) -> None:
        """Asks the network for RAW knowledge of these ranges; from now on what arrives comes to `Reader.offer`."""


class Reader:
    """Where a consumer stands that is not at the head, and what it waits for."""

    def __init__(self, number: int, consumer: Consumer, position: Position, start: Tick, grain: Tick) -> None:
        self.number = number
        """Tells an answer to this reader from one to an earlier reader of the subscription."""
        self.consumer = consumer
        self.position = position
        self.horizon = start
        """The doubt horizon: the last tick the consumer was told about."""
        self._matcher = BatchMatcher()
        self._matcher.add(consumer.sid, consumer.subscription.filter)
        self._window = Window(grain)
        self._reading_upto: Tick | None = None
        self._walk: Walk | None = None
        self._scans = False
        """Whether a walk has found the subscription in so many blocks that reading all of them is faster."""
        self._waits = False
        """Whether it waits for the shelf, which wakes it."""
        self._fetch: TickFetch | RangeFetch | None = None
        self._ready: deque[Segment] = deque()
        self._ready_upto = start
        self._said = start
        self._gap: GapSegment | None = None
        """What was found to be lost, and is not told yet: more of it may follow."""

    # What happened.

    def wake(self) -> None:
        """What it waits for on the shelf may be there."""
        self._waits = False

    def offer(self, knowledge: Knowledge) -> None:
        """Knowledge arrived; some of it may be what was asked for."""
        if self._fetch is not None and knowledge.hi > self._fetch.start:
            self._fetch.offer(knowledge)

    def on_read(self, result: ReadResult, host: Host, now: int) -> None:
        """A block of its chain was read. What lies at or below the chop point *now* is unknown, not silence (T43)."""
        upto, self._reading_upto = self._reading_upto, None
        walk, self._walk = self._walk, None
        if result.error and upto is not None:
            self._scans = True  # the scan finds out how far
        if result.error or walk is None or result.first > self.horizon:
            return
        found = walk.on_records(result.records, BATCH)
        if found is not None:
            self._ask_ticks(found.ticks, found.upto, host, now, None)
        else:
            self._walk_on(walk, host)

    # What to do.

    @property
    def idle(self) -> bool:
        """Whether it waits for nothing and has nothing left to send."""
        return not self._is_busy and self._gap is None

    @property
    def _is_busy(self) -> bool:
        """Whether it waits for something, or for room to send what is ready."""
        return self._waits or self._fetch is not None or self._reading_upto is not None or bool(self._ready)

    @property
    def fetching(self) -> bool:
        """Whether it wants to be offered what arrives."""
        return self._fetch is not None

    def step(self, host: Host, now: int, wall: int) -> bool:
        """Goes on until it has sent something or must wait; returns whether there is more to do at once."""
        credit = self.consumer.credit_events
        while True:
            self._harvest(host)
            self._send(host, wall)
            if self._is_busy:
                return False
            self._advance(self._ready_upto)
            if self.horizon >= host.head or self.consumer.starved:
                self._say_where_it_is(host)
                return False
            if credit != self.consumer.credit_events:
                return True
            self._plan(host, now, wall)

    def _plan(self, host: Host, now: int, wall: int) -> None:
        unknown_upto = min(self._unknown_upto(host), host.head)
        if self.horizon < unknown_upto:
            fetch = RangeFetch(host.pubend, self.horizon, self._window.upto(self.horizon, unknown_upto), self._matcher)
            self._fetch = fetch
            host.fetch_for(self, fetch.ranges(), now)
        elif self.position.last_tick <= self.horizon:
            self._ready_upto = host.head
        elif (page := host.shelf.page(self.horizon)) is not None:
            self._take(page, host, now, wall)
        elif (silent_upto := host.shelf.silent_upto(self.horizon, host.head)) > self.horizon:
            self._ready_upto = silent_upto
        elif self.horizon < host.pfs.sealed_upto:
            self._read_pfs(host)
        else:
            matcher = self._matcher if host.pfs.imprecise else None
            self._ask_ticks(host.pfs.open_ticks(self.consumer.sid, self.horizon), host.head, host, now, matcher)

    def _take(self, page: Page, host: Host, now: int, wall: int) -> None:
        """Sends its share of a page, or waits for it."""
        sid = self.consumer.sid
        mask = page.wanted(sid, self.horizon)
        missing = page.missing(mask)
        if not missing:
            matching = page.matching(host.pubend, mask, self._matcher, self.consumer.subscription.filter)
            self._send_page(page, matching & ~page.expired(wall), host)
        elif mask & ~page.asked & ~page.have or (losses := page.losses(mask)) is None:
            self._waits = True
            host.shelf.ask(sid, page, mask, now)
        else:
            low, high = host.silent(self.position)
            lost = [loss for loss in losses if not low < loss[1] <= high]
            matching = page.matching(host.pubend, mask & page.have, self._matcher, self.consumer.subscription.filter)
            self._ready.extend(interleave(self.horizon, page.select(matching), lost))
            self._ready_upto = page.index

    def _send_page(self, page: Page, mask: int, host: Host) -> None:
        """Sends as much of the page as the credit allows; the rest is looked up again when there is more."""
        consumer = self.consumer
        while mask:
            if consumer.starved:
                return
            part, payload = mask, b""
            if mask.bit_count() <= consumer.credit_events:
                payload = page.payload(mask)
            if not payload or len(payload) > consumer.credit_bytes:
                part = lowest(mask, self._affordable(page.select(mask)))
                payload = page.part(part)
            self._deliver(host, part.bit_count(), payload, page.ticks[part.bit_length() - 1])
            mask ^= part
        self._ready_upto = page.index

    def _read_pfs(self, host: Host) -> None:
        pfs = host.pfs
        newest = pfs.newest(self.consumer.sid)
        if newest <= self.horizon:
            self._ready_upto = pfs.sealed_upto
        elif newest <= pfs.sealed_upto and pfs.spacing and not self._scans:
            self._walk_on(Walk(self.consumer.sid, self.horizon, newest, pfs.sealed_upto, pfs.spacing, pfs.grain), host)
        else:
            self._waits = True
            host.shelf.want_blocks(self.consumer.sid, self.horizon)

    def _walk_on(self, walk: Walk, host: Host) -> None:
        """Reads the chain's next block, or what lies ahead if the chain is not worth following."""
        if walk.span is None:
            self._scans = True
            self._read_pfs(host)
            return
        self._walk = walk
        self._reading_upto = walk.span[1]
        host.read_pfs(self, *walk.span)

    def _unknown_upto(self, host: Host) -> Tick:
        if not self.consumer.subscription.durable:
            return 1 << 63
        return max(self.position.since, host.pfs.chopped, host.shelf.unreadable_upto)

    def _ask_ticks(
        self, ticks: list[Tick], upto: Tick, host: Host, now: int, imprecise_for: BatchMatcher | None
    ) -> None:
        if not ticks:
            self._ready_upto = max(self._ready_upto, upto)
            return
        self._fetch = TickFetch(host.pubend, self.horizon, ticks, upto, nearness(host.pfs.grain), imprecise_for)
        host.fetch_for(self, self._fetch.ranges(), now)

    def _harvest(self, host: Host) -> None:
        fetch = self._fetch
        if fetch is None or not fetch.complete:
            return
        self._ready.extend(fetch.segments(host.silent(self.position)))
        self._ready_upto = fetch.upto
        if isinstance(fetch, RangeFetch):
            self._window.learn(fetch.size)
        self._fetch = None

    def _send(self, host: Host, wall: int) -> None:
        while self._ready:
            segment = self._ready[0]
            if isinstance(segment, GapSegment):
                self._keep_open(segment, host)
                self._ready.popleft()
                continue
            rest = self._send_events(host, unexpired(segment, wall))
            if rest is not None:
                self._ready[0] = rest
                return
            self._ready.popleft()

    def _keep_open(self, lost: GapSegment, host: Host) -> None:
        """Begins a gap, or makes the one that is open longer: nothing was sent between, and the reason is the same."""
        if self._gap is not None and self._gap.reason != lost.reason:
            self._send_gap(host)
        self._gap = lost.after(self._gap)
        self.position.sent = lost.end
        self._advance(lost.end)

    def _send_gap(self, host: Host) -> None:
        """Sends the gap that is open, if one is: it ends here."""
        if self._gap is None:
            return
        gap, self._gap = self._gap, None
        end = host.behind(gap.end)
        self.consumer.channel.gap(self.consumer.sid, host.pubend, gap.start, end, gap.reason)
        self._said = self.position.sent = end
        self._advance(end)

    def _send_events(self, host: Host, events: EventBatch) -> EventBatch | None:
        """Sends as many as the credit allows; returns the rest, or None when all are sent."""
        while len(events):
            count = self._affordable(events)
            if not count:
                return events
            part = events.slice(0, count)
            self._deliver(host, count, part.payload((1 << count) - 1), part.ticks[-1])
            events = events.slice(count, len(events))
        return None

    def _deliver(self, host: Host, count: int, payload: bytes, last: Tick) -> None:
        self._send_gap(host)
        self.consumer.spend(count, len(payload))
        self.consumer.channel.deliver(self.consumer.sid, host.pubend, payload)
        self._said = self.position.sent = last
        self._advance(last)

    def _affordable(self, events: EventBatch) -> int:
        """How many of the first events the credit covers; an event larger than all credit passes alone."""
        if self.consumer.starved:
            return 0
        most = min(len(events), self.consumer.credit_events, BATCH)
        room = self.consumer.credit_bytes
        for count, event in enumerate(events.events[:most]):
            room -= len(event) + ROW.size
            if room < 0:
                return max(count, 1)
        return most

    def _advance(self, tick: Tick) -> None:
        self.horizon = max(self.horizon, tick)
        self.position.pass_over(self.horizon)

    def _say_where_it_is(self, host: Host) -> None:
        """It can send nothing more now. An open gap goes out at the head, unless there is no room for an event."""
        if self._gap is not None and self.consumer.starved:
            return
        self._send_gap(host)
        if self.horizon > self._said:
            self._advance(host.behind(self.horizon))
            self._said = self.horizon
            self.consumer.channel.silence(host.pubend, self.horizon, [self.consumer.sid])


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
