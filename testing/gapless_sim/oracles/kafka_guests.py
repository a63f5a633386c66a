"""How a gateway behaves at Kafka: it fetches what it follows once, and is a guest (KI7, KI8)."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from gapless.core.wire.messages import AskBound, AskEarliest, ReadRange, Subscribe
from gapless_log.kafka.format import MARK
from gapless_log.kafka.messages import (
    DeleteRecords,
    DescribeTopic,
    EpochEnds,
    Fetch,
    ListOffsets,
    MetadataRequest,
    Produce,
)
from gapless_log.kafka.records import batches, records
from gapless_sim.oracles.kafka_logs import KafkaJudge
from gapless_sim.world.options import SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gapless.core.network.facts import Progress, PubendMeta, Want
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless_log.kafka.messages import FetchAnswer
    from gapless_sim.oracles.kafka_logs import KafkaLogs
    from gapless_sim.world.kafka_model import Partition
    from gapless_sim.world.kafka_network import SimKafka
    from gapless_sim.world.world import World

ONCE: Final = 1.1
"""So many times the bytes of the log a gateway may fetch to follow it."""
READING: Final = (Fetch, ListOffsets, EpochEnds, MetadataRequest, DescribeTopic)
"""The requests of who only reads; none of them makes a consumer group, or a topic."""
CAUGHT_UP: Final = 2 * SECOND
"""So long after it came everybody has caught up, while nothing goes wrong."""


class KI7Once(KafkaJudge):
    """While nothing goes wrong and everybody is caught up, each node fetches each record once, and nothing else (KI7).

    However many subscriptions it has. That is looked at in the end, when strangers go on writing for a while.
    """

    name = "KI7"

    def __init__(self, world: World, logs: KafkaLogs, kafka: SimKafka) -> None:
        super().__init__(world, logs)
        self._kafka = kafka
        self._ends: dict[tuple[bytes, int], tuple[Partition, int]] = {}
        """The partitions by topic and number, each with its end when the quiet time began."""
        self._fetched: Counter[str] = Counter()
        """So many bytes of what came since have been followed, by node."""
        self._done: dict[tuple[str, PubendId], Tick] = {}
        """How far each SHB is with each pubend."""
        self._behind = ""
        self._asked_at = -CAUGHT_UP
        """When somebody came last who has to catch up."""
        kafka.on_quiet.append(self._begin)
        kafka.on_fetched.append(self._on_fetched)

    def _begin(self) -> None:
        if self.world.now - self._asked_at < CAUGHT_UP:
            return
        if any(partition.compacted for _, _, partition in self._kafka.partitions()):
            return  # what is missing is asked for again and again
        for topic, number, partition in self._kafka.partitions():
            if partition.log:  # of another one an SHB may have to hear first
                self._ends[topic.id, number] = partition, partition.end

    def received(self, broker: str, session: int, message: Any) -> None:
        """Who comes back in the quiet time or just before, as its client found the broker late, catches up.

        That is no fault. Nor is it if somebody reads by ranges.
        """
        if isinstance(message, (Subscribe, ReadRange, AskBound, AskEarliest)):
            self._stop()

    def room(self, broker: str, session: int) -> None:
        """Whoever had to wait for room on its link catches up, too."""
        self._stop()

    def _stop(self) -> None:
        self._asked_at = self.world.now
        self._ends.clear()
        self._fetched.clear()

    def progressed(self, broker: str, progress: Progress) -> None:
        """An SHB has come further."""
        self._done[broker, progress.pubend] = progress.delivered

    def settled(self) -> bool:
        """Whether every SHB is caught up."""
        self._behind = ""
        hosts = [name for name, broker in self.world.brokers.items() if "shb" in broker.roles]
        for name, pubend in product(hosts, filter(self.logs.exists, self.logs.pubends)):
            truth = self.logs.truth(pubend)
            assert truth is not None
            if self._ends or self.logs.is_empty(pubend) or self.logs.has_holes(pubend):
                continue
            if self._done.get((name, pubend), 0) < truth.stable:
                self._behind = f"{name} is behind the end of {pubend}, {truth.stable}"
        return not self._behind

    def unsettled(self) -> str:
        """Which is not."""
        return self._behind

    def _on_fetched(self, node: str, fetch: Fetch, answer: FetchAnswer) -> None:
        if not self._ends:
            return
        known = [each for each in fetch.partitions if (each.topic_id, each.partition) in self._ends]
        if known and not fetch.wait_ms:
            places = [(each.partition, each.offset) for each in known]
            self.fail(f"{node} is caught up, and reads {places} besides what it follows")
        for each in answer.partitions:
            if (each.topic_id, each.partition) not in self._ends:
                continue
            _, end = self._ends[each.topic_id, each.partition]
            came = [batch for batch in batches(each.records) if batch.first >= end]
            self._fetched[node] += sum(len(batch.raw) for batch in came)
            if any(record.headers and record.headers[0][0] == MARK for batch in came for record in records(batch)):
                self._stop()  # a produce came late: to judge it, others that are marked may be read again
                return

    def ended(self) -> None:
        """Compares what was fetched with what was written."""
        written = sum(
            len(batch.raw)
            for partition, end in self._ends.values()
            for batch in (*partition.removed, *partition.log)
            if batch.first >= end
        )
        for node, fetched in self._fetched.items():
            if fetched > ONCE * written:
                self.fail(f"{node} has fetched {fetched:,} bytes, and only {written:,} were written")


class KI7Asked(KafkaJudge):
    """Nobody asks for what lies ahead of a log: nobody but the log itself could give it (KI7).

    A gateway that does not know the leader epoch in which an emptied log ended says that it ends in a later one.
    """

    name = "KI7"

    def __init__(self, world: World, logs: KafkaLogs) -> None:
        super().__init__(world, logs)
        self._opened: dict[PubendId, Tick] = {}
        """How far a log is decided, as gateways said when they opened it."""

    def opened(self, broker: str, meta: PubendMeta, members: Mapping[str, Tick]) -> None:
        """A gateway says how far a log is."""
        self._opened[meta.pubend] = max(meta.stable, self._opened.get(meta.pubend, 0))

    def asked(self, broker: str, want: Want) -> None:
        """A PHB is asked for ranges."""
        truth = self.logs.truth(want.pubend)
        if truth is None:
            return
        is_as_it_was = self.logs.exists(want.pubend) and not self.logs.cuts(want.pubend)
        stable = max(truth.stable, self._opened.get(want.pubend, 0))
        if is_as_it_was and want.ranges and want.ranges[-1][1] > stable:
            self.fail(f"{want.shb} asks for {want.ranges[-1]} of {want.pubend}, decided up to {stable} (TK22)")


class KI8Guest(KafkaJudge):
    """A gateway asks for what reading needs; only who is configured to publish writes, and to delete, deletes (KI8)."""

    name = "KI8"

    def __init__(self, world: World, logs: KafkaLogs, kafka: SimKafka) -> None:
        super().__init__(world, logs)
        self._kafka = kafka
        kafka.on_request.append(self._on_request)

    def _on_request(self, node: str, request: Any) -> None:
        if isinstance(request, Produce):
            if node not in self._kafka.publishing:
                self.fail(f"{node} writes to {request.topic.name}, and is not configured to publish there")
        elif isinstance(request, DeleteRecords):
            if node not in self._kafka.deleting:
                self.fail(f"{node} deletes records of {request.topic}, and is not configured to")
        elif not isinstance(request, READING):
            self.fail(f"{node} asks Kafka for {request!r}")
