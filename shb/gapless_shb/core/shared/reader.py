"""Readers of shared subscriptions: they give what they find to the window.

Below the frontier such a reader asks for the events that nobody has settled, by their ticks, and for nothing else: what
matched is known, whatever the filter is now, and the rest is settled. From the frontier on it reads as any other.
"""

from __future__ import annotations

from bisect import bisect_right

from gapless.core.stream.ticks import Tick
from gapless_shb.core.catch_up.readers import ReaderContext
from gapless_shb.core.shared.window import Window
from gapless_shb.core.state.consumers import Consumer
from gapless_shb.core.state.positions import SubscriptionPosition
from gapless_shb.core.total_order.reader import Merging, OrderedReader, OrderedSink


class SharedReader(OrderedReader):
    """See the module."""

    def __init__(
        self,
        context: ReaderContext,
        number: int,
        consumer: Consumer,
        position: SubscriptionPosition,
        start: Tick,
        shared: Merging,
        window: Window,
    ) -> None:
        super().__init__(context, number, consumer, position, start, OrderedSink(shared, consumer, window.pubend))
        self._unsettled = window

    def _plan(self, upto: Tick, now: int, wall: int) -> None:
        below = min(self._unsettled.frontier, upto)
        if self.horizon >= below:
            super()._plan(upto, now, wall)
            return
        missing = self._unsettled.missing(self.horizon, self._fetch_most)
        ticks = missing[: bisect_right(missing, below)]
        self._ask_ticks(ticks, ticks[-1] if ticks else below, now, None)
