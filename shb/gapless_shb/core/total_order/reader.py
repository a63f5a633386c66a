"""Readers of consumers in total order: they give what they find to the merge, not to the consumer.

Such a reader differs from others in what it may say of the consumer. What it has handed over may still wait for its
turn, so it neither moves the subscription's position nor tells silence: `delivery` does, when things leave.
"""

from __future__ import annotations

from typing import Protocol

from gapless.core.stream.columns import EventBatch
from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.messages import GapReason
from gapless_shb.core.catch_up.pages import Page
from gapless_shb.core.catch_up.readers import CatchUpReader, Reader
from gapless_shb.core.state.consumers import Consumer, InOrder


class Merging(InOrder, Protocol):
    """What a reader gives its findings to (`delivery.OrderedDelivery`)."""

    def is_full(self, pubend: PubendId) -> bool:
        """Whether a member has to wait for its turn."""

    def put(self, pubend: PubendId, events: EventBatch) -> EventBatch | None:
        """Takes as many events of a member as there is room for. Returns the rest, or None."""


class OrderedSink:
    """Gives one member's events to the merge of a consumer."""

    def __init__(self, ordered: Merging, consumer: Consumer, pubend: PubendId) -> None:
        self._ordered = ordered
        self._consumer = consumer
        self._pubend = pubend

    @property
    def full(self) -> bool:
        """Whether the member has to wait for its turn."""
        return self._ordered.is_full(self._pubend)

    def events(self, events: EventBatch) -> EventBatch | None:
        """Takes events that match. Returns those for which there is no room, or None.

        It takes some in any case: a gap that was given just now may have filled it.
        """
        rest = self._ordered.put(self._pubend, events)
        while rest is not None and not self.full:
            rest = self._ordered.put(self._pubend, rest)
        return rest

    def gap(self, start: Tick, end: Tick, reason: GapReason) -> None:
        """Takes a gap."""
        self._ordered.gap(self._pubend, start, end, reason)

    def moved(self) -> None:
        """More is known of the member."""
        self._ordered.touch()


class OrderedReader(CatchUpReader):
    """Serves a member of a group to a consumer in total order; see the module."""

    _sink: OrderedSink

    @property
    def is_blocked(self) -> bool:
        """Whether no event could be sent now, so that it must not become live."""
        return self._sink.full or self.consumer.starved

    def _send_page(self, page: Page, mask: int, upto: Tick) -> None:
        """Hands over its share of a page with the next pass of the loop, as what was fetched."""
        if mask:
            self._ready.append(page.select(mask))
        self._ready_upto = upto

    def _told(self, upto: Tick) -> None:
        self._advance(upto)

    def _advance(self, tick: Tick) -> None:
        if tick > self.horizon:
            self._sink.moved()
        Reader._advance(self, tick)  # noqa: SLF001 - without what a reader says of its consumer

    def _rest(self) -> None:
        """An open gap is handed over, unless something of this member waits that may still leave before it grows."""
        if not self._sink.full and self._gap is not None:
            self._close_gap()
            self._sink.moved()
