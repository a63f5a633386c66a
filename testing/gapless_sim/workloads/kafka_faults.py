"""What goes wrong at Kafka's side, and with gateways, in worlds of the workload `kafka`.

About once a second something is drawn. What would leave the promise without a meaning is in some worlds only: logs that
lose their end, topics that are made anew, topics that compact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gapless.core.stream.ticks import STEP
from gapless.errors import StorageError
from gapless.spi import VolumeIdentity
from gapless_log.kafka.records import Compression, NewRecord, encode
from gapless_phb.core import rows
from gapless_sim.world.kafka_model import by_producer
from gapless_sim.world.kafka_network import TOPIC
from gapless_sim.world.options import SECOND
from gapless_sim.world.producer import KEY_BYTES

if TYPE_CHECKING:
    from gapless_sim.workloads.kafka import KafkaApplications
    from gapless_sim.world.broker import SimBroker
    from gapless_sim.world.kafka_model import Partition
    from gapless_sim.world.kafka_network import SimKafka
    from gapless_sim.world.world import World

HANGING = 1000
"""From here on the producers are numbered whose transactions hang."""
HANGS_MOST = 20 * SECOND
PARTITIONS_MOST = 3

SOMETIMES = (
    "kafka.connections broke",
    "kafka.broker killed",
    "kafka.broker restarted",
    "kafka.election",
    "kafka.unclean election",
    "kafka.lagging",
    "kafka.retention",
    "kafka.transaction hangs",
    "kafka.partition added",
    "kafka.made anew",
    "kafka.made anew while no gateway ran",
    "kafka.compacted",
    "kafka.gateway wiped",
    "kafka.node wiped",
    "kafka.publishing taken over",
    "kafka.rules changed",
)


def time_of(key: int) -> int:
    """The time that a stranger's record bears, in milliseconds since 1970: times of neighbours may go back."""
    return 1_700_000_000_000 + 1000 * key - 3000 * (key % 3)


class KafkaFaults:
    """All of it, in one world."""

    def __init__(self, workload: KafkaApplications) -> None:
        self.workload = workload
        self.world: World = workload.world
        self.kafka: SimKafka = workload.kafka
        self._draws = self.world.choices.stream("workload/kafka/faults")
        self._is_unclean = self._draws.chance(0.35)
        """Whether the topic may lose the end of its log."""
        self._is_made_anew = self._draws.chance(0.2)
        self._has_retention = self._draws.chance(0.3)
        self._compacts = self._draws.chance(0.1)
        self.may_lose_volumes = not self._is_made_anew
        """Whether gateways and nodes lose what they have.

        A gateway that has lost its rows does not know that it ever had a topic that is gone, and nobody tells those who
        are subscribed there. So not in worlds with both."""
        self._hanging = HANGING

    def begin(self) -> None:
        """The topic is there, and from now on things go wrong."""
        self._create()
        self._plan()

    def _plan(self) -> None:
        self.world.after(self._draws.delay(SECOND // 4, SECOND), "kafka", "fault", self._strike)

    def _strike(self) -> None:
        if self.workload.in_liveness:
            return
        found = [partition for _, _, partition in self.kafka.partitions()]
        happens: list[Callable[[], None]] = [lambda: None, self._break, self._kill, self._restart, self._add_partition]
        if found:
            partition = self._draws.pick(found)
            happens += [
                lambda: self._elect(partition),
                lambda: self._lag(partition),
                lambda: self._retain(partition),
                lambda: self._hang(partition),
            ]
            if self._compacts:
                happens.append(lambda: self._compact(partition))
            if self._is_unclean:
                happens += [lambda: self._cut(partition)] * 5
        if self._is_made_anew:
            happens += [self._make_anew] * 2
        if self.may_lose_volumes:
            happens += [self._wipe_gateway, self._wipe_node]
        if len(self.workload.gateways) > 1:
            happens.append(self._take_over)
        happens.append(self._change_rules)
        self._draws.pick(happens)()
        self._plan()

    # --------------------------------------------------------------------------------------- brokers and logs

    def _break(self) -> None:
        self.world.sometimes("kafka.connections broke")
        self.kafka.break_connections()

    def _kill(self) -> None:
        """A broker is gone for a while; the last one stays."""
        up = [broker for broker in self.kafka.cluster.brokers if broker.is_up]
        if len(up) > 1:
            broker = self._draws.pick(up)
            self.world.sometimes("kafka.broker killed")
            self.world.note("kafka", "kill", f"broker {broker.id}")
            self.kafka.kill(broker)
            self.world.after(self._draws.draw(3 * SECOND), "kafka", "start", self.kafka.start, broker)

    def _restart(self) -> None:
        broker = self._draws.pick([broker for broker in self.kafka.cluster.brokers if broker.is_up])
        self.world.sometimes("kafka.broker restarted")
        self.world.note("kafka", "restart", f"broker {broker.id}")
        self.kafka.restart(broker)

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
            self.world.after(self._draws.draw(2 * SECOND), "kafka", "copied", self._copied, partition)

    def _cut(self, partition: Partition) -> None:
        """The leader goes on alone for a while; then another one goes on without what only it had.

        Perhaps an application is away all that time: what it had matched it does not get any more.
        """
        partition.lag(waits=False)
        lasts = self._draws.draw(3 * SECOND)
        client = self._draws.pick(list(self.world.clients.values()))
        if self._draws.chance(0.7) and client.running:
            client.crash()
            self.world.after(lasts + self._draws.draw(SECOND), client.name, "start", client.start)
        self.world.after(lasts, "kafka", "elect", self._elect_unclean, partition)

    def _elect_unclean(self, partition: Partition) -> None:
        if not self.workload.in_liveness and any(each is partition for _, _, each in self.kafka.partitions()):
            self._elect(partition)

    def _copied(self, partition: Partition) -> None:
        partition.copy()
        self.kafka.changed()

    def _retain(self, partition: Partition) -> None:
        """Retention removes what is old, or somebody deletes it, in the middle of a batch."""
        if self._has_retention and partition.stable > partition.start:
            self.world.sometimes("kafka.retention")
            partition.trim(partition.start + 1 + self._draws.draw(partition.stable - partition.start))
            partition.retained = partition.start
            self.kafka.changed()

    def _hang(self, partition: Partition) -> None:
        """A stranger leaves a transaction open; after a while Kafka aborts it."""
        self.world.sometimes("kafka.transaction hangs")
        self._hanging += 1
        key = self.workload.next_key()
        batch = encode([NewRecord(time_of(key), None, key.to_bytes(KEY_BYTES, "big"), ())], Compression.NONE)
        partition.append(by_producer(batch, self._hanging))
        self.kafka.changed()
        self.world.after(self._draws.draw(HANGS_MOST), "kafka", "abort", self._abort, partition, self._hanging)

    def _abort(self, partition: Partition, producer: int) -> None:
        partition.end_transaction(producer, commits=False)
        self.kafka.changed()

    def _compact(self, partition: Partition) -> None:
        """Somebody turns compaction on, and it removes a batch from the middle."""
        decided = [at for at, batch in enumerate(partition.log) if batch.last < partition.stable][1:-1]
        plain = [at for at in decided if not partition.log[at].is_transactional]
        if plain:
            self.world.sometimes("kafka.compacted")
            next(iter(self.kafka.cluster.topics.values())).settings["cleanup.policy"] = "compact"
            partition.compact(self._draws.pick(plain))
            self.kafka.changed()

    # ------------------------------------------------------------------------------------------------ topics

    def _add_partition(self) -> None:
        topic = next(iter(self.kafka.cluster.topics.values()), None)
        if topic is not None and len(topic.partitions) < PARTITIONS_MOST and self._draws.chance(0.3):
            self.world.sometimes("kafka.partition added")
            self.kafka.cluster.add_partition(topic)
            self.kafka.spread()
            self.kafka.changed()

    def _make_anew(self) -> None:
        """The topic is deleted, and after a while there is another one of its name; perhaps nobody looks meanwhile."""
        topic = next(iter(self.kafka.cluster.topics.values()), None)
        if topic is None:
            return
        self.world.sometimes("kafka.made anew")
        self.world.note("kafka", "delete", topic.name)
        self.kafka.cluster.delete(topic)
        self.kafka.spread()
        self.kafka.changed()
        if self._draws.chance(0.5):
            self.world.sometimes("kafka.made anew while no gateway ran")
            for broker in self.world.brokers.values():
                broker.kill()
        self.world.after(self._draws.draw(2 * SECOND), "kafka", "create", self._create)

    def _create(self) -> None:
        if not self.kafka.cluster.topics:
            self.kafka.cluster.create(TOPIC, self._draws.between(1, 2), {})
            self.kafka.spread()
            self.kafka.changed()

    # ---------------------------------------------------------------------------------------------- gateways

    def _wipe_gateway(self) -> None:
        """A gateway loses what it knows of Kafka's logs; the SHB beside it keeps all that it has (R1)."""
        broker = self._draws.pick(list(self.workload.gateways.values()))
        if not broker.running or not self._draws.chance(0.5):
            return
        broker.kill()
        broker.disk.heal()
        try:
            self._forget(broker)
        except StorageError:
            return  # its disk fails
        self.world.sometimes("kafka.gateway wiped")
        self.world.note(broker.name, "wiped", "its rows of numbered logs are lost")
        self.world.observe.forgotten(broker)

    @staticmethod
    def _forget(broker: SimBroker) -> None:
        volume = broker.disk.open(VolumeIdentity("", broker.name))
        lowest = rows.key(STEP)
        for name in vars(rows.Tables("phb")).values():
            table = volume.table(name)
            for key in [key for key, _ in table.scan() if key >= lowest]:
                table.delete(key)
        volume.write()
        broker.disk.sync(volume, broker.disk.written)
        broker.disk.kill()

    def _wipe_node(self) -> None:
        """A node loses its volume: its subscriptions are made anew, from the tokens that applications have.

        Where SHBs are elsewhere, they would wait for the gateway's own pubends for ever.
        """
        broker = self._draws.pick([broker for broker in self.world.brokers.values() if "shb" in broker.roles])
        if broker.running and self._draws.chance(0.3):
            self.world.sometimes("kafka.node wiped")
            broker.kill()
            broker.replace_disk()

    def _take_over(self) -> None:
        """Another gateway is configured to publish: both are restarted, and applications go there."""
        if self._draws.chance(0.5):
            self.world.sometimes("kafka.publishing taken over")
            self.workload.take_over()

    def _change_rules(self) -> None:
        """Records become other events from now on: all gateways are restarted."""
        if self._draws.chance(0.3):
            self.world.sometimes("kafka.rules changed")
            self.workload.change_rules()
