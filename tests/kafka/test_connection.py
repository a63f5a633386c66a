"""A connection answers in order, waits for records, and ends with its broker."""

from __future__ import annotations

import asyncio
import socket

import pytest

from gapless_log.kafka.messages import Code, Fetch, FetchFrom
from gapless_log.kafka.records import batches
from gapless_log.kafka.requests import Access, connect
from kafka_kit import ACCESS, KafkaLog

LONG = 15_000


async def test_a_fetch_waits_for_a_record(log: KafkaLog) -> None:
    waiting = await connect(log.cluster.address(1), ACCESS)
    fetch = Fetch(
        (FetchFrom(log.topic.id, 0, 0, 0, -1, 1 << 20),),
        is_committed=True,
        wait_ms=LONG,
        bytes_min=1,
        bytes_max=1 << 20,
    )
    fetching = asyncio.ensure_future(waiting.fetch(fetch))

    await log.connection.metadata()
    was_done = fetching.done()
    await log.publish(b"a")
    (fetched,) = (await fetching).partitions
    await waiting.close()

    assert not was_done
    assert [batch.first for batch in batches(fetched.records)] == [0]


async def test_whatever_comes_after_a_fetch_that_waits_waits_too(log: KafkaLog) -> None:
    order = []

    async def fetch() -> None:
        await log.fetch(0, wait_ms=300)
        order.append("fetch")

    async def ask() -> None:
        await log.connection.metadata()
        order.append("metadata")

    await asyncio.gather(fetch(), ask())

    assert order == ["fetch", "metadata"]


async def test_a_fetch_that_is_cancelled_does_no_harm(log: KafkaLog) -> None:
    fetching = asyncio.ensure_future(log.fetch(0, wait_ms=300))
    await asyncio.sleep(0)
    fetching.cancel()

    metadata = await log.connection.metadata()

    assert [broker.address for broker in metadata.brokers] == [log.cluster.bootstrap]
    assert fetching.cancelled()


async def test_an_answer_that_takes_too_long_ends_the_connection(log: KafkaLog) -> None:
    hasty = await connect(log.cluster.address(1), Access(patience=0.2))
    start = FetchFrom(log.topic.id, 0, 0, 0, -1, 1 << 20)

    with pytest.raises(TimeoutError, match="has not answered to Fetch"):
        await hasty.fetch(Fetch((start,), is_committed=True, wait_ms=LONG, bytes_min=1, bytes_max=1 << 20))

    assert not hasty.is_open
    with pytest.raises(ConnectionError):
        await hasty.metadata()


async def test_several_logs_are_fetched_at_once(log: KafkaLog) -> None:
    await log.cluster.create_topic("two-partitions", partitions=2)
    async with KafkaLog(log.cluster, "two-partitions") as other:
        await log.publish(b"a")
        await other.publish(b"b", b"c")
        starts = [(log.topic.id, 0), (other.topic.id, 0), (other.topic.id, 1), (log.topic.id, 7)]
        froms = tuple(FetchFrom(topic_id, partition, 0, -1, -1, 1 << 20) for topic_id, partition in starts)
        answer = await log.connection.fetch(Fetch(froms, is_committed=True, wait_ms=0, bytes_min=1, bytes_max=1 << 20))

    found = {(each.topic_id, each.partition): (each.code, each.high_watermark) for each in answer.partitions}
    assert [found[start] for start in starts] == [
        (Code.NONE, 1),
        (Code.NONE, 2),
        (Code.NONE, 0),
        (Code.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]


async def test_where_nobody_listens(log: KafkaLog) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{sock.getsockname()[1]}"

        with pytest.raises(ConnectionError, match=f"cannot connect to Kafka at {address}"):
            await connect(address, ACCESS)
