"""The oracles of pubends whose logs are Kafka's: each complains of what breaks its promise, and of nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from gapless.core.client import Gap, Silence
from gapless.core.network.facts import PubendMeta
from gapless.core.stream.columns import EMPTY, EventBatch, EventColumns
from gapless.core.stream.events import encode_event
from gapless.core.stream.knowledge import Knowledge
from gapless.core.wire.messages import StartAt
from gapless.core.wire.messages.subscribing import GapReason
from gapless_log.kafka.records import Compression, NewRecord, encode
from gapless_sim.choices import Choices
from gapless_sim.kafka_model import Partition
from gapless_sim.kafka_network import TOPIC, SimKafka
from gapless_sim.observation import Violation
from gapless_sim.options import SECOND, Options
from gapless_sim.oracles.kafka import KafkaLogs, KI2Told, KI4Settled, KI4Whole, KI6Published
from gapless_sim.producer import KEY_BYTES
from gapless_sim.trace import Trace
from gapless_sim.world import World


class Consumer:
    """As much of one as oracles look at."""

    lane = "c"
    attached = True
    wanted = SimpleNamespace(positions=None)
    client = SimpleNamespace(addresses=["node1"])

    def __init__(self, start: StartAt, wants: Any) -> None:
        self.row = SimpleNamespace(matches=wants, start=start)


class Rig:
    """A world with a topic, and what the oracles think of it."""

    def __init__(self) -> None:
        self.world = World(Options(1, workload="kafka"), Choices(1), Trace())
        self.kafka = self.world.kafka = SimKafka(self.world, "network")
        self.topic = self.kafka.cluster.create(TOPIC, 1, {})
        self.pubend = self.kafka.pubend_of(self.topic, 0)
        self.logs = KafkaLogs(self.kafka)

    @property
    def partition(self) -> Partition:
        return self.topic.partitions[0]

    def write(self, *keys: int, headers: tuple[tuple[str, bytes], ...] = ()) -> None:
        new = [
            NewRecord(1, None, key.to_bytes(KEY_BYTES, "big"), headers if not number else ())
            for number, key in enumerate(keys)
        ]
        self.partition.append(encode(new, Compression.NONE))
        self.kafka.changed()

    def mark(self, first: int, count: int, after: int, epoch: int = 1) -> tuple[tuple[str, bytes], ...]:
        fields = (1, self.kafka.tag_of(self.pubend), "p", epoch, first, count, 0, after, b"", False, epoch == 1)
        return (("gapless", msgspec.msgpack.encode(fields)),)

    def know(self, lo: int, hi: int, *events: tuple[int, int], lost: int = 0) -> Knowledge:
        bodies = [key.to_bytes(KEY_BYTES, "big") for _, key in events]
        columns = EventColumns.of([encode_event(TOPIC, {}, None, body) for body in bodies], map(len, bodies))
        data = EventBatch.of([tick for tick, _ in events], [columns]) if events else EMPTY
        return Knowledge(self.pubend, lo, hi, data, lost)

    def consumer(self, start: StartAt = StartAt.EARLIEST, wants: Any = lambda _key: True) -> Any:
        return Consumer(start, wants)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_what_the_log_has_is_right(rig: Rig) -> None:
    rig.write(1, 2)
    told = KI2Told(rig.world, rig.logs)

    told.known("node1", rig.know(0, 2, (1, 1), (2, 2)))
    rig.partition.trim(1)
    told.known("node1", rig.know(0, 2, (2, 2), lost=1))


@pytest.mark.parametrize(
    ("known", "what"),
    [
        ((0, 2, (1, 1)), "silence at 2"),
        ((0, 2, (1, 1), (2, 3)), "record 3 at 2"),
        ((0, 3, (1, 1), (2, 2)), "stable end is 2"),
    ],
)
def test_what_the_log_has_not_is_found(rig: Rig, known: tuple[Any, ...], what: str) -> None:
    rig.write(1, 2)

    with pytest.raises(Violation, match=f"KI2.*{what}"):
        KI2Told(rig.world, rig.logs).known("node1", rig.know(*known))


def test_more_is_called_lost_than_is(rig: Rig) -> None:
    rig.write(1, 2)

    with pytest.raises(Violation, match=r"everything up to 1 .* lost; the log begins at 0"):
        KI2Told(rig.world, rig.logs).known("node1", rig.know(0, 2, (2, 2), lost=1))


def test_a_twin_is_silence_and_a_batch_that_follows_is_none(rig: Rig) -> None:
    rig.write(1, 2, headers=rig.mark(1, 2, after=0))
    rig.write(3, headers=rig.mark(3, 1, after=0))
    rig.write(1, 2, headers=rig.mark(1, 2, after=0))
    told = KI2Told(rig.world, rig.logs)

    told.known("node1", rig.know(0, 5, (1, 1), (2, 2), (3, 3)))

    with pytest.raises(Violation, match="record 1 at 4"):
        told.known("node1", rig.know(3, 5, (4, 1), (5, 2)))


def test_a_consumer_passes_nothing_that_it_wants(rig: Rig) -> None:
    rig.write(1, 2, 3)
    whole, odd = KI4Whole(rig.world, rig.logs), rig.consumer(wants=lambda key: key % 2)
    whole.attached(odd, cast("Any", None), {rig.pubend: 1})

    whole.handed_out(odd, Silence(rig.pubend, 1, 2))
    assert whole.position(odd, rig.pubend) == 2

    with pytest.raises(Violation, match=r"passes record 3 at 3"):
        whole.handed_out(odd, Silence(rig.pubend, 2, 3))


def test_a_gap_has_a_cause(rig: Rig) -> None:
    rig.write(1, 2)
    rig.partition.trim(1)
    rig.kafka.changed()
    whole, consumer = KI4Whole(rig.world, rig.logs), rig.consumer()
    whole.attached(consumer, cast("Any", None), {rig.pubend: 0})

    whole.handed_out(consumer, Gap(rig.pubend, 0, 1, GapReason.RELEASED_EARLY.value))

    with pytest.raises(Violation, match="the log begins at 1"):
        whole.handed_out(consumer, Gap(rig.pubend, 1, 2, GapReason.RELEASED_EARLY.value))


def test_a_gap_says_that_the_log_has_lost_it(rig: Rig) -> None:
    """No gateway keeps anything, so whom it counts has nothing to do with it."""
    rig.write(1)
    whole, consumer = KI4Whole(rig.world, rig.logs), rig.consumer()
    whole.attached(consumer, cast("Any", None), {rig.pubend: 0})
    rig.kafka.cluster.delete(rig.topic)

    with pytest.raises(Violation, match="it is the log that has lost it"):
        whole.handed_out(consumer, Gap(rig.pubend, 0, 1, GapReason.RETIRED.value))


def test_a_partition_that_appears_later_begins_at_its_beginning(rig: Rig) -> None:
    """TK18."""
    rig.write(1)
    rig.kafka.cluster.add_partition(rig.topic)
    rig.kafka.changed()
    whole = KI4Whole(rig.world, rig.logs)
    whole.opened("node1", PubendMeta(rig.pubend, "node1", created=1), {})
    rig.world.run_until(SECOND)

    later = rig.kafka.pubend_of(rig.topic, 1)
    with pytest.raises(Violation, match="later than others of its topic, and begins it at 5"):
        whole.opened("node1", PubendMeta(later, "node1", created=5), {})


def test_latest_begins_where_the_gateway_says_and_earliest_at_the_beginning(rig: Rig) -> None:
    rig.write(1, 2)
    whole = KI4Whole(rig.world, rig.logs)
    whole.opened("node1", PubendMeta(rig.pubend, "node1", created=1), {})
    latest, earliest = rig.consumer(StartAt.LATEST), rig.consumer()
    for consumer in (latest, earliest):
        whole.attached(consumer, cast("Any", None), {})

    whole.handed_out(latest, Silence(rig.pubend, 0, 1))

    with pytest.raises(Violation, match="passes record 1"):
        whole.handed_out(earliest, Silence(rig.pubend, 0, 1))


def test_a_receipt_names_what_is_there(rig: Rig) -> None:
    rig.write(1, 2)
    published = KI6Published(rig.world, rig.logs)
    producer, one = cast("Any", SimpleNamespace(name="p")), cast("Any", SimpleNamespace(key=1))

    published.receipted(producer, one, rig.pubend, 1, durable=True)

    with pytest.raises(Violation, match=r"said to be at 2 .* there is 2"):
        published.receipted(producer, one, rig.pubend, 2, durable=True)
    with pytest.raises(Violation, match="no log of Kafka"):
        published.receipted(producer, one, "own@1", 1, durable=True)


@pytest.mark.parametrize(("keys", "what"), [((1, 1), "logged at"), ((2, 1), "publication 1 of p is logged behind 2")])
def test_each_publication_is_an_event_once_and_in_order(rig: Rig, keys: tuple[int, ...], what: str) -> None:
    rig.write(*keys)
    published = KI6Published(rig.world, rig.logs)
    published.published(cast("Any", SimpleNamespace(name="p")), [cast("Any", SimpleNamespace(key=key)) for key in keys])

    with pytest.raises(Violation, match=what):
        published.ended()


def test_it_is_not_settled_while_events_are_behind_somebody(rig: Rig) -> None:
    rig.write(1)
    whole, consumer = KI4Whole(rig.world, rig.logs), rig.consumer()
    whole.attached(consumer, cast("Any", None), {})
    client = SimpleNamespace(name="client1", addresses=["node1"], consumers={1: consumer})
    rig.world.clients["client1"] = cast("Any", client)
    settled = KI4Settled(rig.world, rig.logs, whole)

    assert not settled.settled()
    assert settled.unsettled() == f"c stands at 0 of {rig.pubend}, and 1 events are behind that"
