"""What an SHB has handed to its clients' links since it began, and what came back: counted by the batch."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence

from gapless.core.gauges import Gauge, Histogram
from gapless.core.stream.ticks import Tick
from gapless.core.wire.messages import GapReason
from gapless_shb.core.state import gauges

_SECOND = 1_000_000_000


class Counts:
    """The counters of an SHB. Whoever hands something over counts it here."""

    __slots__ = (
        "_catching_up",
        "_without_credit",
        "acknowledged",
        "age",
        "caught_up",
        "gaps",
        "live",
        "ranges",
        "redelivered",
        "silences",
    )

    def __init__(self) -> None:
        self.live = self.caught_up = self.ranges = 0
        """Events, by the way on which they went: to live consumers, by readers, and to reads of ranges."""
        self.redelivered = 0
        self.silences = 0
        self.gaps: dict[GapReason, int] = defaultdict(int)
        self.acknowledged = 0
        self.age = Histogram(gauges.EVENT_AGE)
        """How old events are when they go to live consumers."""
        self._without_credit = Histogram(gauges.WITHOUT_CREDIT)
        self._catching_up = Histogram(gauges.CATCH_UP)

    def on_read(self, ticks: Sequence[Tick], sent_before: Tick) -> None:
        """A reader has handed over these events; earlier consumers of the subscription were sent those up to there."""
        self.caught_up += len(ticks)
        self.redelivered += bisect_right(ticks, sent_before)

    def on_credit(self, since: int, now: int) -> None:
        """A consumer is granted credit that had none since then."""
        self._without_credit.observe((now - since) / _SECOND)

    def on_caught_up(self, since: int, now: int) -> None:
        """The consumer of a reader that began then is live."""
        self._catching_up.observe((now - since) / _SECOND)

    def gauges(self) -> Iterator[Gauge]:
        """Yields all of it."""
        for path, count in (("live", self.live), ("caught_up", self.caught_up), ("range", self.ranges)):
            yield gauges.DELIVERED.gauge(count, path)
        yield gauges.REDELIVERED.gauge(self.redelivered)
        yield gauges.SILENCES.gauge(self.silences)
        for reason, count in self.gaps.items():
            yield gauges.GAPS.gauge(count, reason.value)
        yield gauges.ACKNOWLEDGED.gauge(self.acknowledged)
        for histogram in (self.age, self._without_credit, self._catching_up):
            yield from histogram.gauges()
