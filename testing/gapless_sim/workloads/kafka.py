"""The workload `kafka`: a topic that strangers write to, nodes that are gateways to it, and applications at them.

Strangers know nothing of gapless. They append records, and have transactions that are aborted or hang. Applications
publish to the topic through one of the nodes, the only gateway that publishes at a time, and consume it at all of them.
Under the router `local` nodes are side by side, each with both roles; under others SHBs elsewhere have one gateway.
In the end, when all is consumed, strangers go on for a while: then it is looked at what nodes fetch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from gapless.core.wire.messages import InUse, StartAt
from gapless.errors import (
    ConnectionClosedError,
    SubscriptionInUseError,
    SubscriptionNotFoundError,
    SubscriptionTakenOverError,
    TokenAheadError,
)
from gapless_log.kafka.format import MARK
from gapless_log.kafka.records import Compression, NewRecord, encode, records
from gapless_sim.faults.reconfiguration import change_kafka_topic, take_only
from gapless_sim.recording.observation import Oracle
from gapless_sim.workloads import kafka_faults
from gapless_sim.workloads.kafka_faults import KafkaFaults, time_of
from gapless_sim.world.consumer import Consumer, Row
from gapless_sim.world.kafka_model import by_producer
from gapless_sim.world.kafka_network import PRODUCE_FATES, TOPIC
from gapless_sim.world.options import SECOND
from gapless_sim.world.producer import KEY_BYTES, Outbox, Producer, Publication
from gapless_sim.world.ranger import Ranger

if TYPE_CHECKING:
    from gapless.errors import GaplessError
    from gapless_sim.world.application import SimClient
    from gapless_sim.world.broker import SimBroker
    from gapless_sim.world.kafka_model import Partition
    from gapless_sim.world.kafka_network import SimKafka
    from gapless_sim.world.world import World

KINDS = "abc"
QUIET = 20
"""So many batches strangers write when all is consumed."""
QUIET_EVERY = SECOND // 20
STRANGERS = 3
"""So many strangers have transactions."""

SOMETIMES = (
    *(f"kafka.a produce {fate}" for fate in PRODUCE_FATES),
    *kafka_faults.SOMETIMES,
    "kafka.stale metadata",
    "kafka.published",
    "kafka.mirrored",
    "kafka.aborted",
    "kafka.committed",
    "kafka.gap",
    "kafka.token of what was cut off",
    "kafka.passed what was cut off",
    "kafka.made anew from a token",
    "kafka.records deleted",
    "kafka.read by ranges",
    "kafka.earliest asked",
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
        self.producer: Producer | None = None
        client.on_start = self.start

    @property
    def publishes(self) -> bool:
        """Whether the gateway that publishes is its node, or serves it."""
        return len(self.workload.gateways) == 1 or self.client.addresses == [self.workload.publishing]

    def start(self, client: SimClient) -> None:
        """A process begins: it goes on with what its database has."""
        self.produce()
        for row in self.rows:
            self.consume(row)

    def add(self, row: Row) -> None:
        """One more subscription."""
        self.rows.append(row)
        if self.client.running:
            self.consume(row)

    def consume(self, row: Row) -> None:
        """Consumes a subscription, or reads it by ranges, as far as its database has come."""
        if self.client.running and row in self.workload.by_ranges:
            ranger = Ranger(self.client, row, self.workload.reads)
            ranger.eager = self.workload.in_liveness
            ranger.on_over = self._on_over
        elif self.client.running:
            consumer = Consumer(self.client, row, row.wanted(in_use=InUse.TAKEOVER))
            consumer.on_over = self._on_over
            consumer.on_attached = self._on_attached

    def publish(self, more: int) -> None:
        """A few publications more."""
        for _ in range(more):
            key = self.workload.next_key()
            self.outbox.publications.append(Publication(key, TOPIC, {"kind": kind_of(key)}))
        if self.producer is not None and self.producer.alive and self.producer.waiting < 40:
            self.producer.publish(8)
            self.workload.world.sometimes("kafka.published")

    def ask_earliest(self) -> None:
        """Asks from where on there is something, as one does who reads everything once."""
        if self.client.running:
            number = self.client.core.ranges.earliest(None, self.client.monotonic())
            self.client.ask(number, lambda _: self.client.disown(number), lambda _: self.client.disown(number))

    def finish(self) -> None:
        """What is left is published."""
        if not self.client.running:
            self.client.start()
        elif self.producer is not None and self.producer.alive:
            self.producer.publish(100)

    def produce(self) -> None:
        """Opens its publisher, if there is one for it."""
        if self.client.running and self.publishes:
            self.producer = Producer(self.client, self.outbox)
            self.producer.on_over = self._on_producer_over

    def _on_producer_over(self, _producer: Producer, error: GaplessError) -> None:
        """Fenced, rejected, or its log is gone: its application looks what was logged, and goes on."""
        if isinstance(error, ConnectionClosedError):
            return
        self.workload.world.after(SECOND, self.client.name, "produce", self.produce, life=self.client.life)

    @staticmethod
    def _on_attached(consumer: Consumer) -> None:
        """A subscription that was made once more has a token of its own, which is kept at once."""
        token, core = consumer.row.token or consumer.row.start_token, consumer.core
        if token is not None and (token.sid, token.generation, token.seal) != (core.sid, core.generation, core.seal):
            consumer.commit()

    def _on_over(self, consumer: Consumer | Ranger, error: GaplessError) -> None:
        if isinstance(error, ConnectionClosedError):
            return
        row = consumer.row
        if isinstance(error, TokenAheadError) and self.workload.world.hits["kafka.unclean election"]:
            self.workload.world.sometimes("kafka.token of what was cut off")
            row.ended = True
            self.rows.remove(row)
            return
        if isinstance(error, SubscriptionNotFoundError) and self.workload.has_lost_volumes:
            self._begin_anew(row)
        elif not isinstance(error, SubscriptionInUseError | SubscriptionTakenOverError):
            raise error
        self.workload.world.after(SECOND, self.client.name, "consume", self.consume, row, life=self.client.life)

    def _begin_anew(self, row: Row) -> None:
        """Its node has lost its volume: the subscription is made once more, from where the database is."""
        if row.token is not None:
            self.workload.world.sometimes("kafka.made anew from a token")
        row.created, row.start_token, row.token = False, row.token, None


class KafkaApplications(Oracle):
    """The applications of one world, and the strangers."""

    name = "kafka"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        assert world.kafka is not None
        self.kafka: SimKafka = world.kafka
        self.draws = world.choices.stream("workload/kafka")
        self.reads = world.choices.stream("workload/kafka/ranges")
        self._reads_ranges = self.reads.chance(0.5)
        """Whether some subscriptions are read by ranges: then nobody can say what a node need not fetch (KI7)."""
        self.by_ranges: list[Row] = []
        """These subscriptions."""
        self.gateways = {name: broker for name, broker in world.brokers.items() if "phb" in broker.roles}
        self.publishing = next(iter(self.gateways))
        """The gateway that publishes."""
        self.kafka.publishing.add(self.publishing)
        if len(self.gateways) == 1 and self.draws.chance(0.4):  # one gateway alone may decide what a log keeps
            self.kafka.deleting.add(self.publishing)
        self._rules = "key"
        """The property that is the key of a record."""
        self._transactional = self.draws.pick((0.75, 0.1))
        """So many batches of strangers are in transactions: while one is open, nothing behind it is decided."""
        self._is_mirrored = self.draws.chance(0.3)
        """Whether somebody copies into this topic what was published to another one."""
        self.in_liveness = False
        self.has_lost_volumes = False
        self._keys = 0
        self._rows = 0
        self._quiet = -1
        """How many batches strangers have still to write in the end; -1: that has not begun."""
        self.faults = KafkaFaults(self)
        self.applications = [
            KafkaApplication(self, client, number) for number, client in enumerate(world.clients.values())
        ]
        for broker in self.gateways.values():
            self._configure(broker)
            if self.faults.may_lose_volumes:  # otherwise tokens would have positions at pubends that are lost
                take_only(broker, "own")
        world.observe.add(self)

    def _configure(self, broker: SimBroker) -> None:
        """From its next start on a gateway publishes or does not, and deletes or does not."""
        retention = "delete" if broker.name in self.kafka.deleting else "kafka"
        change_kafka_topic(broker, publish=broker.name == self.publishing, retention=retention, key=self._rules)

    def change_rules(self) -> None:
        """By other rules records become events from now on: all gateways are started anew."""
        self._rules = "id" if self._rules == "key" else "key"
        for broker in self.gateways.values():
            self._configure(broker)
            broker.kill()

    def take_over(self) -> None:
        """Another gateway publishes from now on: both are started anew, and the publishers are at the other one."""
        before = self.publishing
        self.publishing = next(name for name in self.gateways if name != before)
        self.kafka.publishing.add(self.publishing)
        for name in (before, self.publishing):
            self._configure(self.world.brokers[name])
            self.world.brokers[name].kill()
        left = [each for each in self.applications if each.client.addresses == [before]]
        come = [each for each in self.applications if each.publishes]
        for one, other in zip(left, come, strict=False):
            one.outbox, other.outbox = other.outbox, one.outbox
        for other in come:
            other.produce()

    def wiped(self, broker: SimBroker) -> None:
        """A node has lost its volume."""
        self.has_lost_volumes = True

    def next_key(self) -> int:
        """A key that no record had before."""
        self._keys += 1
        return self._keys

    def begin(self) -> None:
        """The topic is there, the processes start, strangers write, and things go wrong."""
        for application in self.applications:
            client = application.client
            self.world.after(self.draws.draw(2 * SECOND), client.name, "start", client.start)
        for at in range(self.world.options.subscriptions):
            self.world.after(self.draws.draw(1 + at * SECOND), "world", "subscribe", self._subscribe)
        self._plan()
        self.faults.begin()
        for _ in range(self.reads.between(0, 5)):
            self._write()  # before any gateway has found the topic

    def begin_liveness(self) -> None:
        """Nothing goes wrong any more: everything is published and consumed."""
        self.in_liveness = True
        for application in self.applications:
            readers: list[object] = [*application.client.consumers.values()]
            for reader in readers:
                if isinstance(reader, Ranger):
                    reader.begin_liveness()
        self.kafka.calm()
        self._finish()

    def settled(self) -> bool:
        """Whether every publication has its receipt; and then strangers have gone on for a while (KI7)."""
        if self.unsettled():
            return False
        if self._quiet < 0:
            self._quiet = QUIET
            self.kafka.begin_quiet()
            self._write_quietly()
        return not self._quiet

    def _write_quietly(self) -> None:
        partition = self._partition()
        if partition is not None and self._quiet:
            self._quiet -= 1
            self._append(partition, 0)
            self.world.after(QUIET_EVERY, "world", "write", self._write_quietly)
        else:
            self._quiet = 0

    def unsettled(self) -> str:
        """Who has publications left, or does not consume."""
        for application in self.applications:
            producer = application.producer
            if not self.kafka.serves(application.client):
                continue
            consumed = [consumer.row for consumer in application.client.consumers.values()]
            for row in application.rows:
                if row not in consumed:
                    return f"{application.client.name} does not consume {row.name}"
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
        if self._reads_ranges and self.reads.chance(0.4):
            self.world.sometimes("kafka.read by ranges")
            self.by_ranges.append(row)
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
        if self.reads.chance(0.1):
            self.reads.pick(self.applications).ask_earliest()
        self._plan()

    def _partition(self) -> Partition | None:
        found = [partition for _, _, partition in self.kafka.partitions()]
        return self.draws.pick(found) if found else None

    def _write(self) -> None:
        """A stranger appends a batch, or ends a transaction."""
        partition = self._partition()
        if partition is None:
            return
        producer = 1 + self.draws.draw(STRANGERS) if self.draws.chance(self._transactional) else 0
        open_ones = [each for each in sorted(partition.open) if each <= STRANGERS]
        if self._is_mirrored and self.draws.chance(0.2):
            self._mirror(partition)
        elif open_ones and self.draws.chance(0.4):
            commits = self.draws.chance(0.5)
            partition.end_transaction(self.draws.pick(open_ones), commits=commits)
            self.world.sometimes("kafka.committed" if commits else "kafka.aborted")
            self.kafka.changed()
        else:
            self._append(partition, producer)

    def _append(self, partition: Partition, producer: int) -> None:
        keys = [self.next_key() for _ in range(self.draws.between(1, 5))]
        batch = encode([_record(key) for key in keys], Compression.NONE)
        partition.append(by_producer(batch, producer) if producer else batch)
        self.kafka.changed()

    def _mirror(self, partition: Partition) -> None:
        """Copies what a publisher has published to another topic, marks and all: here it is a stranger's (TK16)."""
        for batch in reversed(partition.log):
            headers = [] if batch.is_control else records(batch)[0].headers
            if headers and headers[0][0] == MARK:
                mark = msgspec.msgpack.decode(headers[0][1] or b"")
                mark[1] = 1  # the tag of that topic
                mark[4] += mark[5]  # its next sequences
                copied = [_record(self.next_key()) for _ in range(mark[5])]
                marked = [(MARK, msgspec.msgpack.encode(mark)), *copied[0].headers]
                self.world.sometimes("kafka.mirrored")
                partition.append(encode([copied[0]._replace(headers=marked), *copied[1:]], Compression.NONE))
                self.kafka.changed()
                return


def _record(key: int) -> NewRecord:
    """A record of a stranger's."""
    return NewRecord(time_of(key), str(key).encode(), key.to_bytes(KEY_BYTES, "big"), [("kind", kind_of(key).encode())])
