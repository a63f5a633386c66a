"""What publishers have logged at one pubend, and what was refused, since the broker began: counted by the batch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from gapless.core.gauges import Gauge, Histogram
from gapless.core.network.facts import Verdict
from gapless.core.stream.ticks import PubendId
from gapless_phb.core import gauges
from gapless_phb.core.publishers.table import PendingBatch

_SECOND = 1_000_000_000


class Published:
    """The counters of one pubend."""

    __slots__ = ("_bytes", "_events", "_rejected", "_seconds")

    def __init__(self, seconds: Histogram) -> None:
        """`seconds`: of all pubends of the broker, how long batches take until their receipts may leave."""
        self._events = self._bytes = 0
        self._rejected: dict[Verdict, int] = defaultdict(int)
        self._seconds = seconds

    def on_logged(self, batch: PendingBatch, now: int) -> None:
        """A batch is logged, durably: it is no repetition."""
        self._events += batch.count
        self._bytes += batch.columns.size
        self._seconds.observe((now - batch.came) / _SECOND)

    def on_answer(self, verdict: Verdict) -> None:
        """A batch was answered at once. The answer of one that is logged already is no refusal."""
        if verdict is not Verdict.OK:
            self._rejected[verdict] += 1

    def gauges(self, pubend: PubendId) -> Iterator[Gauge]:
        """Yields what was counted."""
        yield gauges.PUBLISHED_EVENTS.gauge(self._events, pubend)
        yield gauges.PUBLISHED_BYTES.gauge(self._bytes, pubend)
        for verdict, count in self._rejected.items():
            yield gauges.REJECTED_BATCHES.gauge(count, pubend, verdict.value)
