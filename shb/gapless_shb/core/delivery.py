"""One step of the constream: events to whom they match, and into the PFS (protocol: constream).

The hot path of an SHB. Work is per filter and per subscription that matches, never per event of a
subscription: the payload of equal matches is joined once and shared by all who get it.
"""

from __future__ import annotations

from collections.abc import Iterable

from gapless.core.stream.columns import EventBatch
from gapless.core.stream.ticks import FOREVER, Tick
from gapless.selectors.index import BatchMatcher
from gapless_shb.core.consumers import Consumer
from gapless_shb.core.page_cache import PageCache
from gapless_shb.core.pages import Page, StepMasks
from gapless_shb.core.positions import SubscriptionPosition
from gapless_shb.core.pubend import ServedPubend


class LiveDelivery:
    """The events of (previous, head], on their way."""

    def __init__(self, stream: ServedPubend, batch: EventBatch, previous: Tick, wall: int) -> None:
        self._stream = stream
        self._batch = batch
        self._first = batch.ticks[0]
        self._previous = previous
        self._masks: dict[int, int] = {}
        """What matched each durable subscription."""
        self._page = Page(previous, batch.ticks, StepMasks(self._masks), batch)
        """For those who come by later."""
        self._fresh = ~self._page.expired(wall)
        """Expired events are matched and recorded like others, but not sent."""
        self._payloads: dict[int, bytes] = {}
        self.demoted: list[tuple[Consumer, SubscriptionPosition, Tick]] = []
        """Who cannot take what is due, and from where on a reader is to serve him (T26)."""

    def run(self, matcher: BatchMatcher, page_cache: PageCache) -> bool:
        """Matches, records and sends; returns whether the PFS has something to be made durable."""
        stream, ticks = self._stream, self._batch.ticks
        positions, live, floors = stream.positions, stream.live, stream.floors
        for mask, sids in self._batch.match(self._stream.pubend, matcher):
            for sid in sids:
                position = positions.get(sid)
                if position is None or position.since == FOREVER:
                    continue  # a joining subscription is its reader's business
                due = mask if position.since < self._first else mask & above(ticks, position.since)
                if not due:
                    continue
                if sid in stream.durable_sids:
                    self._remember(sid, position, due)
                consumer = live.get(sid)
                if consumer is not None:
                    floor = floors.get(sid, 0)
                    self._send(sid, consumer, position, due if floor < self._first else due & above(ticks, floor))
        if self._masks:
            stream.pfs.append(ticks, self._masks)
            page_cache.add_live(self._page)
        return bool(self._masks)

    def _remember(self, sid: int, position: SubscriptionPosition, mask: int) -> None:
        self._masks[sid] = mask
        stream, last = self._stream, self._batch.ticks[mask.bit_length() - 1]
        # Whoever had acknowledged it before this broker lost its power need not acknowledge it again.
        if sid not in stream.retention_floor.pinning and last > position.acked:
            stream.release(position)
            stream.retention_floor.put(sid, position)
        position.last_tick = last

    def _send(self, sid: int, consumer: Consumer, position: SubscriptionPosition, mask: int) -> None:
        """Sends what the credit allows; who cannot take it is served by a reader from here on (T26)."""
        mask &= self._fresh
        if not mask:
            # It is not sent anything, so it may never have anything to acknowledge this with.
            position.pass_over(self._stream.head)
            self._stream.touch(sid, position)
            return
        if self._stream.open_gaps and sid in self._stream.open_gaps:
            self._stream.send_gap(sid)
        payload = self._payloads.get(mask)
        if payload is None:
            payload = self._payloads[mask] = self._batch.payload(mask)
        if consumer.spend_all(mask.bit_count(), len(payload)):
            consumer.channel.deliver(sid, self._stream.pubend, payload)
            position.sent = self._batch.ticks[mask.bit_length() - 1]
        else:
            begin = max(self._previous, self._stream.floors.get(sid, 0))
            self.demoted.append((consumer, position, begin))


def above(ticks: Iterable[Tick], floor: Tick) -> int:
    """The ticks above `floor`, as a mask."""
    mask = 0
    for index, tick in enumerate(ticks):
        if tick > floor:
            mask |= 1 << index
    return mask
