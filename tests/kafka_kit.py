"""What the tests against a real Kafka share: a cluster or the reason why there is none, and one log of it at a time."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from typing_extensions import Self

from gapless_log.kafka.messages import (
    LATEST,
    NO_ID,
    UNKNOWN,
    Code,
    EpochAsked,
    EpochFound,
    Fetch,
    Fetched,
    FetchFrom,
    OffsetFound,
    OffsetWanted,
    Topic,
    TopicState,
)
from gapless_log.kafka.records import Batch, Compression, NewRecord, batches, encode, records
from gapless_log.kafka.requests import Access, Connection, connect
from gapless_testing.kafka import KafkaCluster
from gapless_testing.kafka_node import KafkaUnavailableError, Secured

ACCESS = Access(patience=20)
PASSWORD = "correct horse"
"""Alice's, in tests/kafka."""


@asynccontextmanager
async def running_kafka(
    directory: Path, brokers: Literal[1, 3], secured: Secured | None = None
) -> AsyncIterator[KafkaCluster]:
    """A cluster; where there can be none, its tests are skipped, but in CI they fail."""
    cluster = KafkaCluster(directory, brokers, secured=secured)
    try:
        await cluster.start()
    except KafkaUnavailableError as error:
        if "CI" in os.environ:
            raise
        pytest.skip(str(error))
    try:
        yield cluster
    finally:
        await cluster.kill_all()


class KafkaLog:
    """A partition of a topic, as its leader shows it, over a connection of its own that is open within the block."""

    def __init__(self, cluster: KafkaCluster, name: str, node: int = 1, partition: int = 0) -> None:
        self.cluster = cluster
        self.topic = Topic(name, NO_ID)
        self.node = node
        self.partition = partition
        self.connection: Connection

    async def __aenter__(self) -> Self:
        self.connection = await connect(self.cluster.address(self.node), ACCESS)
        self.topic = Topic(self.topic.name, (await self.state()).id)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.connection.close()

    async def state(self) -> TopicState:
        """What its broker knows of the name."""
        (found,) = (await self.connection.metadata([self.topic.name])).topics
        return found

    async def leader_epoch(self) -> int:
        """The current one, when its broker leads in it: a broker knows its metadata before it acts upon them."""
        while True:
            epoch = (await self.state()).partitions[self.partition].leader_epoch
            if (await self.end_of(epoch, current=epoch)).code is Code.NONE:
                return epoch

    async def publish(self, *values: bytes, compression: Compression = Compression.NONE) -> int:
        """Appends one batch of this moment; returns the offset of its first record."""
        now = time.time_ns() // 1_000_000  # if times lie far apart, the log begins a new segment, where a fetch ends
        return await self.publish_at([(now, value) for value in values], compression)

    async def publish_at(
        self, timed: Sequence[tuple[int, bytes]], compression: Compression = Compression.NONE, key: bytes | None = None
    ) -> int:
        """The same, with timestamps."""
        batch = encode([NewRecord(at, key, value, [("kind", b"test")]) for at, value in timed], compression)
        produced = await self.connection.produce(self.topic, self.partition, batch, 10_000)
        assert produced.code is Code.NONE, produced
        return produced.offset

    async def fetch(
        self, offset: int, *, epoch: int = UNKNOWN, last: int = UNKNOWN, is_committed: bool = True, wait_ms: int = 0
    ) -> Fetched:
        """What there is from an offset on."""
        return await self._fetch(
            FetchFrom(self.topic.id, self.partition, offset, epoch, last, 1 << 20), is_committed, wait_ms
        )

    async def fetch_at_most(self, bytes_max: int) -> Fetched:
        """What there is from the beginning on, not too much of it."""
        return await self._fetch(FetchFrom(self.topic.id, self.partition, 0, UNKNOWN, UNKNOWN, bytes_max), True, 0)

    async def _fetch(self, start: FetchFrom, is_committed: bool, wait_ms: int) -> Fetched:
        answer = await self.connection.fetch(Fetch((start,), is_committed, wait_ms, 1, 1 << 20))
        assert answer.code is Code.NONE
        (fetched,) = answer.partitions
        return fetched

    async def batches(self, offset: int, *, is_committed: bool = True) -> list[Batch]:
        """The batches of a fetch that is to succeed."""
        fetched = await self.fetch(offset, is_committed=is_committed)
        assert fetched.code is Code.NONE, fetched
        return list(batches(fetched.records))

    async def values(self, offset: int) -> list[bytes | None]:
        """The values of the records that such a fetch returns, from their beginning."""
        return [record.value for batch in await self.batches(offset) for record in records(batch)]

    async def offset_of(self, at: int = LATEST, *, epoch: int = UNKNOWN, is_committed: bool = False) -> OffsetFound:
        """An offset that is looked for."""
        wanted = OffsetWanted(self.partition, epoch, at)
        (found,) = await self.connection.list_offsets(self.topic, [wanted], is_committed=is_committed)
        return found

    async def end_of(self, epoch: int, *, current: int = UNKNOWN) -> EpochFound:
        """Where a leader epoch ends."""
        (found,) = await self.connection.epoch_ends(self.topic, [EpochAsked(self.partition, current, epoch)])
        return found

    def producer(self, **options: object) -> Any:
        """A producer of aiokafka's: a stranger, to us."""
        from aiokafka import AIOKafkaProducer

        return AIOKafkaProducer(bootstrap_servers=self.cluster.bootstrap, **options)


async def add_partitions(kafka: KafkaCluster, name: str, count: int) -> None:
    """From now on a topic has so many."""
    from aiokafka.admin import AIOKafkaAdminClient, NewPartitions

    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    await admin.start()
    try:
        await admin.create_partitions({name: NewPartitions(count)})
    finally:
        await admin.close()
