"""One step of the constream: sends its events to matching consumers, and notes them in the PFS (protocol: constream).

This is the hot path of an SHB. The work is per filter and per matching subscription, never per event of a
subscription: subscriptions with equal matches share one payload, which is joined once.
"""

from __future__ import annotations

from gapless.core.stream.columns import EventBatch
from gapless.core.stream.ticks import FOREVER, Tick, wall_at
from gapless.core.traces import Matched
from gapless.selectors.index import BatchMatcher
from gapless_shb.core.catch_up.page_cache import PageCache
from gapless_shb.core.catch_up.pages import Page, StepMasks, above
from gapless_shb.core.state.consumers import Consumer, InOrder
from gapless_shb.core.state.positions import SubscriptionPosition
from gapless_shb.core.state.pubend import ServedPubend


class LiveDelivery:
    """The delivery of the events in (previous, head]."""

    def __init__(self, stream: ServedPubend, batch: EventBatch, previous: Tick) -> None:
        self._stream = stream
        self._batch = batch
        self._first = batch.ticks[0]
        self._previous = previous
        self._masks: dict[int, int] = {}
        """Which events matched each durable subscription."""
        self._fresh = 0
        """The events that have not expired. Expired events are matched and noted like others, but not sent."""
        self._payloads: dict[int, bytes] = {}
        self.demoted: list[tuple[Consumer, SubscriptionPosition, Tick]] = []
        """Consumers without credit for their events, and from where a reader has to serve each of them (T26)."""
        self._sent = 0
        """How many events went to consumers."""

    @property
    def traced(self) -> Matched:
        """What the node makes spans of, once this has run; at least one of the events is chosen for that."""
        stream, batch = self._stream, self._batch
        return Matched(stream.pubend, batch.at(stream.traced.places(batch.ticks)), len(batch), self._sent)

    def run(self, matcher: BatchMatcher, page_cache: PageCache, wall: int) -> bool:
        """Matches, notes and sends. Returns whether the PFS has something to make durable."""
        stream, ticks = self._stream, self._batch.ticks
        matches = self._batch.match(self._stream.pubend, matcher)
        if not matches:
            return False
        # The same events for readers that come here soon.
        page = Page(self._previous, ticks, StepMasks(self._masks), self._batch)
        self._fresh = ~page.expired(wall)
        sent = 0
        positions, live, floors = stream.positions, stream.live, stream.floors
        for mask, sids in matches:
            for sid in sids:
                position = positions.get(sid)
                if position is None or position.since == FOREVER:
                    continue  # a joining subscription is served by its own reader
                due = mask if position.since < self._first else mask & above(ticks, position.since)
                if not due:
                    continue
                if sid in stream.durable_sids:
                    self._remember(sid, position, due)
                consumer = live.get(sid)
                if consumer is not None:
                    floor = floors.get(sid, 0)
                    sent += self._send(
                        sid, consumer, position, due if floor < self._first else due & above(ticks, floor)
                    )
        self._sent = sent
        if sent:
            stream.counts.live += sent
            if stream.meta.timed:
                stream.counts.age.observe(max(0, wall - wall_at(self._first)) / 1000, len(ticks))
        if self._masks:
            stream.pfs.append(ticks, self._masks)
            page_cache.add_live(page)
        return bool(self._masks)

    def _remember(self, sid: int, position: SubscriptionPosition, mask: int) -> None:
        self._masks[sid] = mask
        stream, last = self._stream, self._batch.ticks[mask.bit_length() - 1]
        # If the application had acknowledged the event before this broker crashed, it need not do so again.
        if sid not in stream.retention_floor.pinning and last > position.acked:
            stream.release(position)
            stream.retention_floor.put(sid, position)
        position.last_tick = last

    def _send(self, sid: int, consumer: Consumer, position: SubscriptionPosition, mask: int) -> int:
        """Sends events, if the consumer's credit covers them; otherwise a reader has to serve it from here on (T26).

        Returns how many.
        """
        mask &= self._fresh
        if consumer.ordered is not None and self._stream.pubend in consumer.ordered:
            self._send_in_order(sid, consumer, consumer.ordered, position, mask)
            return 0
        if not mask:
            # All of them have expired, and without an event the client may never acknowledge up to here.
            position.pass_over(self._stream.head)
            self._stream.touch(sid, position)
            return 0
        if self._stream.open_gaps and sid in self._stream.open_gaps:
            self._stream.send_gap(sid)
        payload = self._payloads.get(mask)
        if payload is None:
            payload = self._payloads[mask] = self._batch.payload(mask)
        count = mask.bit_count()
        if consumer.spend_all(count, len(payload)):
            consumer.channel.deliver(sid, self._stream.pubend, payload)
            position.sent = self._batch.ticks[mask.bit_length() - 1]
            return count
        begin = max(self._previous, self._stream.floors.get(sid, 0))
        self.demoted.append((consumer, position, begin))
        return 0

    def _send_in_order(
        self, sid: int, consumer: Consumer, ordered: InOrder, position: SubscriptionPosition, mask: int
    ) -> None:
        """Gives events to the merge, if it has room for all of them; otherwise a reader has to, from here on."""
        if self._stream.open_gaps and sid in self._stream.open_gaps and mask:
            self._stream.send_gap(sid)
        if not mask:
            ordered.touch()
        elif not ordered.offer(self._stream.pubend, self._batch.select(mask)):
            self.demoted.append((consumer, position, max(self._previous, self._stream.floors.get(sid, 0))))
