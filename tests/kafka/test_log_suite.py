"""The suite of logs on a real Kafka."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from conformance.logs import KafkaHarness, partition_of, record_batch
from gapless.core.stream.ticks import Tick
from gapless_log.kafka import logs
from gapless_log.kafka.lineage import offset_of
from gapless_log.kafka.messages import Code
from gapless_log.kafka.requests import Connection, connect
from gapless_testing.kafka import KafkaCluster
from gapless_testing.log import LogHarness, LogSuite
from gapless_testing.log.harness import End
from kafka_kit import ACCESS, KafkaLog, add_partitions


class RealHarness(KafkaHarness):
    """A topic of one broker. What strangers do is done over connections of the test's own."""

    quiet = 0.06
    patience = 6.0  # a broker that is restarted takes ten seconds

    def __init__(self, kafka: KafkaCluster, name: str) -> None:
        super().__init__(name)
        self.kafka = kafka
        self.server = kafka.bootstrap
        self.partitions = 1

    async def dial(self, address: str) -> Connection:
        return await connect(address, ACCESS)

    def wall(self) -> int:
        return time.time_ns() // 1_000_000

    async def make(self) -> None:
        await self.kafka.create_topic(self.name, retention_ms=-1)

    async def append(self, log: str, bodies: Sequence[bytes]) -> None:
        await self._append(log, record_batch(self.wall(), bodies))

    async def append_at(self, log: str, wall: int, body: bytes) -> None:
        await self._append(log, record_batch(wall, [body]))

    async def _append(self, log: str, batch: bytes) -> None:
        async with KafkaLog(self.kafka, self.name) as topic:
            produced = await topic.connection.produce(topic.topic, partition_of(log), batch, 10_000)
        assert produced.code is Code.NONE, produced

    async def begin(self, log: str, bodies: Sequence[bytes]) -> End:
        async with KafkaLog(self.kafka, self.name) as topic:
            producer = topic.producer(transactional_id=self.name)
        await producer.start()
        await producer.begin_transaction()
        for body in bodies:
            await producer.send_and_wait(self.name, body, partition=partition_of(log))

        async def end(commits: bool) -> None:
            await (producer.commit_transaction() if commits else producer.abort_transaction())
            await producer.stop()

        return end

    async def remove(self, log: str, upto: Tick) -> None:
        await self.kafka.delete_records(self.name, offset_of(upto), partition_of(log))

    async def cut(self, log: str, after: Tick) -> None:
        await self.kafka.kill()
        self.kafka.cut(self.name, offset_of(after))
        await self.kafka.start()
        async with KafkaLog(self.kafka, self.name) as topic:
            await topic.leader_epoch()

    async def add(self) -> None:
        self.partitions += 1
        await add_partitions(self.kafka, self.name, self.partitions)

    async def delete(self) -> None:
        await self.kafka.delete_topic(self.name)


class TestKafka(LogSuite):
    test_a_log_that_goes_on_elsewhere_loses_nothing = None  # type: ignore[assignment]  # a restart takes ten seconds, and one is enough

    @pytest.fixture(autouse=True)
    def _soon(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A partition that was added, and a topic that is made, are found soon, and a broker waits no half second."""
        monkeypatch.setattr(logs, "WAIT_MS", 50)
        monkeypatch.setattr(logs, "METADATA_SECONDS", 0.2)
        monkeypatch.setattr(logs, "FIND_SECONDS", 0.1)
        monkeypatch.setattr(logs, "DAMAGED_SECONDS", 0.1)

    @pytest.fixture
    def harness(self, kafka: KafkaCluster, name: str) -> LogHarness:
        return RealHarness(kafka, f"suite-{name}")
