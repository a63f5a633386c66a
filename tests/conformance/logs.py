"""Harnesses for logs on Kafka: over the model of one, in virtual time, and what both that and a real one need."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from gapless.core.ports import LogAnswer
from gapless.core.stream.ticks import Tick
from gapless.spi import Logs
from gapless_log.kafka.lineage import offset_of
from gapless_log.kafka.logs import KafkaLogs
from gapless_log.kafka.messages import FetchAnswer, Fetched, Produced
from gapless_log.kafka.options import section_from
from gapless_log.kafka.records import Compression, NewRecord, encode
from gapless_log.kafka.requests import Connection
from gapless_sim.recording.trace import Trace
from gapless_sim.world.choices import Choices
from gapless_sim.world.kafka_model import Partition, Topic, by_producer
from gapless_sim.world.kafka_network import TOPIC, SimKafka
from gapless_sim.world.options import SECOND, Options
from gapless_sim.world.virtual_loop import VirtualLoop
from gapless_sim.world.world import World
from gapless_testing.log import LogHarness
from gapless_testing.log.harness import End

GONE_SECONDS = 1.0
"""After so long a topic that nobody knows is gone: a node waits a minute."""
WALL = 1_700_000_000_000
"""When time begins in the model."""


class KafkaHarness(LogHarness):
    """What the model and a real Kafka have in common: the plugin."""

    server: str

    def __init__(self, name: str) -> None:
        self.name = name

        self.is_spoilt = False
        self.loses_answer = False
        self.connections: list[Connection] = []

    async def dial(self, address: str) -> Connection:
        """Connects to a broker."""
        raise NotImplementedError

    async def connect(self, address: str) -> Connection:
        """Connects the plugin; what it is answered may be changed on its way."""
        connection = await self.dial(address)
        self.connections.append(connection)
        ask = connection.ask

        async def asked(request: Any) -> Any:
            answer = await ask(request)
            if self.loses_answer and isinstance(answer, Produced):
                self.loses_answer = False
                await connection.close()
                raise ConnectionError("the connection broke")
            if self.is_spoilt and isinstance(answer, FetchAnswer):
                return replace(answer, partitions=tuple(map(spoilt, answer.partitions)))
            return answer

        connection.ask = asked  # type: ignore[method-assign]
        return connection

    async def spoil(self, log: str, *, spoilt: bool) -> None:
        self.is_spoilt = spoilt

    async def lose_answer(self) -> None:
        self.loses_answer = True

    async def disconnect(self) -> None:
        for connection in self.connections:
            await connection.close()

    def open(self, known: Mapping[str, str], answer: Callable[[LogAnswer], None]) -> Logs:
        topic = {"name": self.name, "publish": True, "retention": "delete"}
        section = section_from({"servers": [self.server], "topics": [topic]})
        return KafkaLogs(section, known, self.connect, answer, self.wall, gone_seconds=GONE_SECONDS)

    def wall(self) -> int:
        """The present, in milliseconds since 1970."""
        raise NotImplementedError


def partition_of(log: str) -> int:
    """The number of the partition that is this log."""
    return int(log.rpartition("@")[0].rpartition(".")[2])


def record_batch(wall: int, bodies: Sequence[bytes]) -> bytes:
    """A batch of a stranger's records."""
    return encode([NewRecord(wall, None, body, [("kind", b"test")]) for body in bodies], Compression.NONE)


def spoilt(fetched: Fetched) -> Fetched:
    """The same, with a bit turned."""
    return replace(fetched, records=fetched.records[:-1] + b"?") if fetched.records else fetched


class WorldLoop(VirtualLoop):
    """A loop that runs by itself, and the world with it: when nothing is ready, the next thing happens there."""

    def __init__(self, world: World) -> None:
        super().__init__(lambda: world.now, lambda _: None)
        self._selector = _Selector(world)  # type: ignore[assignment]


class _Selector:
    """No file is ever ready; waiting lets time pass."""

    def __init__(self, world: World) -> None:
        self._world = world

    def select(self, timeout: float | None) -> list[Any]:
        """Carries out the next thing that happens in the world, if something does within the timeout."""
        if timeout is None:
            self._world.carry_out_one(self._world.now + SECOND)
        elif timeout > 0:
            self._world.carry_out_one(self._world.now + int(timeout * SECOND) + 1)
        return []


class ModelHarness(KafkaHarness):
    """A Kafka of three brokers, in virtual time: everything that can go wrong there can here."""

    server = "kafka-1:9092"
    quiet = 3.0  # of virtual time, as all the rest
    patience = 6.0

    def __init__(self) -> None:
        super().__init__(TOPIC)
        self.world = World(Options(1, workload="kafka"), Choices(1), Trace())
        self.kafka = SimKafka(self.world, "network")
        self.kafka.is_calm = True
        self.loop = WorldLoop(self.world)
        self.topic: Topic
        self._producers = 0

    def new_loop(self) -> asyncio.AbstractEventLoop:
        return self.loop

    def wall(self) -> int:
        return WALL + self.world.now // 1_000_000

    async def dial(self, address: str) -> Connection:
        return await self.kafka.connect("host", self.loop, address)

    def _changed(self) -> None:
        for broker in self.kafka.cluster.brokers:
            broker.learn()
        self.kafka.changed()

    def partition(self, log: str) -> Partition:
        """The partition that is this log."""
        return self.topic.partitions[partition_of(log)]

    async def make(self) -> None:
        self.topic = self.kafka.cluster.create(self.name, 1, {})
        self._changed()

    async def append(self, log: str, bodies: Sequence[bytes]) -> None:
        self.partition(log).append(record_batch(self.wall(), bodies))
        self.kafka.changed()
        await asyncio.sleep(0.001)

    async def append_at(self, log: str, wall: int, body: bytes) -> None:
        self.partition(log).append(record_batch(wall, [body]))
        self.kafka.changed()

    async def begin(self, log: str, bodies: Sequence[bytes]) -> End:
        self._producers += 1
        producer, partition = self._producers, self.partition(log)
        partition.append(by_producer(record_batch(self.wall(), bodies), producer))
        self.kafka.changed()

        async def end(commits: bool) -> None:
            partition.end_transaction(producer, commits=commits)
            self.kafka.changed()

        return end

    async def remove(self, log: str, upto: Tick) -> None:
        self.partition(log).trim(offset_of(upto))
        self.kafka.changed()

    async def cut(self, log: str, after: Tick) -> None:
        partition = self.partition(log)
        partition.copied = offset_of(after)
        self.kafka.elect(partition, is_clean=False)

    async def thin(self, log: str, after: Tick, upto: Tick) -> None:
        partition = self.partition(log)
        gone = [batch for batch in partition.log if offset_of(after) <= batch.first and batch.last < offset_of(upto)]
        for batch in gone:
            partition.compact(partition.log.index(batch))

    async def add(self) -> None:
        self.kafka.cluster.add_partition(self.topic)
        self._changed()

    async def hide(self, *, hidden: bool) -> None:
        self._changed()
        if hidden:
            self.kafka.cluster.brokers[self.topic.partitions[0].leader - 1].topics = ()
            self.kafka.changed()

    async def delete(self) -> None:
        self.kafka.cluster.delete(self.topic)
        self._changed()
