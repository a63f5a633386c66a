"""The workload `kafka`: a topic that strangers write to, nodes that are gateways to it, and applications at them.

Strangers know nothing of gapless. They append records, and have transactions that are aborted or hang. Applications
publish to the topic through the first node, the only gateway that publishes, and consume it at all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gapless.core.wire.messages import InUse, StartAt
from gapless.errors import ConnectionClosedError, SubscriptionInUseError, SubscriptionTakenOverError, TokenAheadError
from gapless_log.kafka.records import Compression, NewRecord, encode
from gapless_sim.consumer import Consumer, Row
from gapless_sim.kafka_model import by_producer
from gapless_sim.kafka_network import TOPIC
from gapless_sim.observation import Oracle
from gapless_sim.options import SECOND
from gapless_sim.producer import KEY_BYTES, Outbox, Producer, Publication

if TYPE_CHECKING:
    from gapless.errors import GaplessError
    from gapless_sim.application import SimClient
    from gapless_sim.kafka_model import Partition
    from gapless_sim.kafka_network import SimKafka
    from gapless_sim.world import World

KINDS = "abc"
STRANGERS = 3
"""So many strangers have transactions."""

SOMETIMES = (
    "kafka.connection broke at a produce",
    "kafka.a produce is late",
    "kafka.published",
    "kafka.gap",
    "kafka.election",
    "kafka.unclean election",
    "kafka.token of what was cut off",
    "kafka.broker killed",
    "kafka.lagging",
    "kafka.aborted",
    "kafka.retention",
    "kafka.made anew",
    "kafka.partition added",
    "kafka.connections broke",
)


def kind_of(key: int) -> str:
    """The property `kind` of a record, which follows from its key."""
    return KINDS[key % len(KINDS)]


def wants(kind: str) -> Callable[[int], bool]:
    """What a subscription to a kind matches; "": everything."""
    return lambda key: not kind or kind_of(key) == kind


class KafkaApplication:
    """One client: its subscriptions, and what it publishes."""

    def __init__(self, workload: KafkaApplications, client: SimClient, number: int) -> None:
        self.workload = workload
        self.client = client
        self.rows: list[Row] = []
        self.outbox = Outbox(f"out-{number}", TOPIC)
        self.publishes = client.addresses == workload.gateways
        self.producer: Producer | None = None
        client.on_start = self.start

    def start(self, client: SimClient) -> None:
        """A process begins: it goes on with what its database has."""
        if self.publishes:
            self._produce()
        for row in self.rows:
            self.consume(row)

    def add(self, row: Row) -> None:
        """One more subscription."""
        self.rows.append(row)
        if self.client.running:
            self.consume(row)

    def consume(self, row: Row) -> None:
        """Consumes a subscription, as far as its database has come."""
        if self.client.running:
            consumer = Consumer(self.client, row, row.wanted(in_use=InUse.TAKEOVER))
            consumer.on_over = self._on_over

    def publish(self, more: int) -> None:
        """A few publications more."""
        for _ in range(more):
            key = self.workload.next_key()
            self.outbox.publications.append(Publication(key, TOPIC, {"kind": kind_of(key)}))
        if self.producer is not None and self.producer.alive and self.producer.waiting < 40:
            self.producer.publish(8)
            self.workload.world.sometimes("kafka.published")

    def finish(self) -> None:
        """What is left is published."""
        if not self.client.running:
            self.client.start()
        elif self.producer is not None and self.producer.alive:
            self.producer.publish(100)

    def _produce(self) -> None:
        if self.client.running:
            self.producer = Producer(self.client, self.outbox)
            self.producer.on_over = self._on_producer_over

    def _on_producer_over(self, _producer: Producer, error: GaplessError) -> None:
        """Fenced, rejected, or its log is gone: its application looks what was logged, and goes on."""
        if isinstance(error, ConnectionClosedError):
            return
        self.workload.world.after(SECOND, self.client.name, "produce", self._produce, life=self.client.life)

    def _on_over(self, consumer: Consumer, error: GaplessError) -> None:
        if isinstance(error, ConnectionClosedError):
            return
        row = consumer.row
        if isinstance(error, TokenAheadError) and any(
            partition.cuts for _, _, partition in self.workload.kafka.partitions()
        ):
            self.workload.world.sometimes("kafka.token of what was cut off")
            row.ended = True
            self.rows.remove(row)
            return
        if not isinstance(error, SubscriptionInUseError | SubscriptionTakenOverError):
            raise error
        self.workload.world.after(SECOND, self.client.name, "consume", self.consume, row, life=self.client.life)


class KafkaApplications(Oracle):
    """The applications of one world, and the strangers."""

    name = "kafka"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        assert world.kafka is not None
        self.kafka: SimKafka = world.kafka
        self.draws = world.choices.stream("workload/kafka")
        self._faults = world.choices.stream("workload/kafka/faults")
        self.gateways = [next(iter(world.brokers))]
        self.in_liveness = False
        self._keys = 0
        self._rows = 0
        self._is_unclean = self._faults.chance(0.2)
        """Whether the topic may lose the end of its log."""
        self._is_made_anew = self._faults.chance(0.15)
        self._has_retention = self._faults.chance(0.3)
        self.applications = [
            KafkaApplication(self, client, number) for number, client in enumerate(world.clients.values())
        ]
        world.observe.add(self)

    def next_key(self) -> int:
        """A key that no record had before."""
        self._keys += 1
        return self._keys

    def begin(self) -> None:
        """The topic is there, the processes start, strangers write, and things go wrong."""
        self._create()
        for application in self.applications:
            client = application.client
            self.world.after(self.draws.draw(2 * SECOND), client.name, "start", client.start)
        for at in range(self.world.options.subscriptions):
            self.world.after(self.draws.draw(1 + at * SECOND), "world", "subscribe", self._subscribe)
        self._plan()
        self._plan_fault()

    def begin_liveness(self) -> None:
        """Nothing goes wrong any more: everything is published and consumed."""
        self.in_liveness = True
        self.kafka.calm()
        self._finish()

    def settled(self) -> bool:
        """Whether every publication has its receipt."""
        return not self.unsettled()

    def unsettled(self) -> str:
        """Who has publications left."""
        for application in self.applications:
            producer = application.producer
            if not self.kafka.serves(application.client):
                continue
            if application.publishes and producer is not None and not producer.over:
                if not producer.open:
                    return f"publisher {producer.name} is not open"
                if producer.waiting or producer.next < len(application.outbox.publications):
                    return f"publisher {producer.name} has {producer.waiting} publications without a receipt"
        return ""

    def _finish(self) -> None:
        for application in self.applications:
            application.finish()
        self.world.after(SECOND, "world", "finish", self._finish)

    def _subscribe(self) -> None:
        if self.in_liveness:
            return
        self._rows += 1
        kind = self.draws.pick(("", *KINDS))
        application = self.draws.pick(self.applications)
        selector = f"kind = '{kind}'" if kind else ""
        start = self.draws.pick((StartAt.EARLIEST, StartAt.LATEST))
        row = Row(self._rows, application.client.name, f"s{self._rows}", (TOPIC,), selector, wants(kind), start)  # type: ignore[arg-type]
        application.add(row)

    # ------------------------------------------------------------------------------------ what is written

    def _plan(self) -> None:
        mean = int(SECOND / self.world.options.rate)
        self.world.after(self.draws.delay(mean // 4, mean // 2), "world", "operation", self._operate)

    def _operate(self) -> None:
        if self.in_liveness:
            return
        if self.draws.chance(0.5):
            self.draws.pick(self.applications).publish(self.draws.between(1, 4))
        else:
            self._write()
        self._plan()

    def _partition(self) -> Partition | None:
        found = [partition for _, _, partition in self.kafka.partitions()]
        return self.draws.pick(found) if found else None

    def _write(self) -> None:
        """A stranger appends a batch, or ends a transaction."""
        partition = self._partition()
        if partition is None:
            return
        producer = self.draws.draw(STRANGERS + 1)
        if producer and producer in partition.open and self.draws.chance(0.5):
            commits = self.draws.chance(0.5)
            partition.end_transaction(producer, commits=commits)
            self.world.hits["kafka.aborted"] += not commits
        else:
            keys = [self.next_key() for _ in range(self.draws.between(1, 5))]
            new = [
                NewRecord(1, None, key.to_bytes(KEY_BYTES, "big"), [("kind", kind_of(key).encode())]) for key in keys
            ]
            batch = encode(new, Compression.NONE)
            partition.append(by_producer(batch, producer) if producer else batch)
        self.kafka.changed()

    # ------------------------------------------------------------------------------------ what goes wrong

    def _plan_fault(self) -> None:
        self.world.after(self._faults.delay(SECOND // 4, SECOND), "kafka", "fault", self._fault)

    def _fault(self) -> None:
        if self.in_liveness:
            return
        partition = self._partition()
        happens: list[Callable[[], None]] = [self._break, self._kill, self._add_partition]
        if partition is not None:
            happens += [lambda: self._elect(partition), lambda: self._lag(partition), lambda: self._retain(partition)]
        if self._is_made_anew:
            happens.append(self._make_anew)
        self._faults.pick([lambda: None, *happens])()
        self._plan_fault()

    def _break(self) -> None:
        self.world.sometimes("kafka.connections broke")
        self.kafka.break_connections()

    def _kill(self) -> None:
        """A broker is gone for a while; the last one stays."""
        up = [broker for broker in self.kafka.cluster.brokers if broker.is_up]
        if len(up) > 1:
            broker = self._faults.pick(up)
            self.world.sometimes("kafka.broker killed")
            self.world.note("kafka", "kill", f"broker {broker.id}")
            self.kafka.kill(broker)
            self.world.after(self._faults.draw(3 * SECOND), "kafka", "start", self.kafka.start, broker)

    def _elect(self, partition: Partition) -> None:
        is_clean = not self._is_unclean or partition.copied is None
        self.world.sometimes("kafka.election" if is_clean else "kafka.unclean election")
        self.world.note("kafka", "election", "clean" if is_clean else f"cut from {partition.end} to {partition.copied}")
        self.kafka.elect(partition, is_clean=is_clean)

    def _lag(self, partition: Partition) -> None:
        """Followers fall behind; the leader goes on alone, if the topic may be elected unclean, or waits."""
        self.world.sometimes("kafka.lagging")
        partition.lag(waits=not self._is_unclean)
        if not self._is_unclean:
            self.world.after(self._faults.draw(2 * SECOND), "kafka", "copied", self._copied, partition)

    def _copied(self, partition: Partition) -> None:
        partition.copy()
        self.kafka.changed()

    def _retain(self, partition: Partition) -> None:
        """Retention removes what is old."""
        if self._has_retention and partition.stable > partition.start:
            self.world.sometimes("kafka.retention")
            partition.trim(partition.start + 1 + self._faults.draw(partition.stable - partition.start))
            self.kafka.changed()

    def _add_partition(self) -> None:
        topic = next(iter(self.kafka.cluster.topics.values()), None)
        if topic is not None and len(topic.partitions) < 3 and self._faults.chance(0.3):
            self.world.sometimes("kafka.partition added")
            self.kafka.cluster.add_partition(topic)
            self.kafka.spread()
            self.kafka.changed()

    def _make_anew(self) -> None:
        """The topic is deleted, and after a while there is another one of its name."""
        topic = next(iter(self.kafka.cluster.topics.values()), None)
        if topic is not None and self._faults.chance(0.3):
            self.world.sometimes("kafka.made anew")
            self.kafka.cluster.delete(topic)
            self.kafka.spread()
            self.kafka.changed()
            self.world.after(self._faults.draw(2 * SECOND), "kafka", "create", self._create)

    def _create(self) -> None:
        if not self.kafka.cluster.topics:
            self.kafka.cluster.create(TOPIC, self._faults.between(1, 2), {})
            self.kafka.spread()
            self.kafka.changed()
