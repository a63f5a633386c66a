"""A topic that is deleted and made again has the name, offsets and leader epochs of the old one: only its id tells."""

from __future__ import annotations

import pytest

from gapless_log.kafka.messages import (
    EARLIEST,
    NO_ID,
    UNKNOWN,
    Code,
    EpochAsked,
    EpochEnds,
    ListOffsets,
    OffsetWanted,
    Topic,
)
from gapless_log.kafka.records import Compression, NewRecord, encode
from gapless_testing.kafka import KafkaCluster
from kafka_kit import KafkaLog


@pytest.fixture
async def old(kafka: KafkaCluster, log: KafkaLog) -> Topic:
    """The topic that was; `log` is what has its name now, and more records."""
    await log.publish(*[b"old"] * 10)
    old = log.topic
    await kafka.delete_topic(old.name)
    await kafka.create_topic(old.name)
    log.topic = Topic(old.name, (await log.state()).id)
    await log.publish(*[b"new"] * 20)
    return old


async def test_the_new_topic_has_another_id(log: KafkaLog, old: Topic) -> None:
    assert log.topic.name == old.name
    assert log.topic.id not in (old.id, NO_ID)


async def test_a_fetch_by_the_old_id_is_refused(log: KafkaLog, old: Topic) -> None:
    new, log.topic = log.topic, old

    refused = [await log.fetch(offset) for offset in (0, 10, 15)]
    log.topic = new

    assert {fetched.code for fetched in refused} == {Code.UNKNOWN_TOPIC_ID}
    assert {fetched.records for fetched in refused} == {b""}
    assert await log.values(10) == [b"new"] * 20


async def test_metadata_by_the_old_id_knows_nothing(log: KafkaLog, old: Topic) -> None:
    (found,) = (await log.connection.metadata(ids=[old.id])).topics

    assert (found.code, found.id, found.partitions) == (Code.UNKNOWN_TOPIC_ID, old.id, ())


async def test_what_kafka_asks_by_name_answers_for_the_new_topic(log: KafkaLog, old: Topic) -> None:
    """That is Kafka's own behaviour: positions and leader epochs of the old one look good."""
    (end,) = await log.connection.ask(EpochEnds(old.name, (EpochAsked(0, UNKNOWN, 0),)))
    (first,) = await log.connection.ask(ListOffsets(old.name, (OffsetWanted(0, 0, EARLIEST),), is_committed=False))

    assert (end.code, end.leader_epoch, end.end) == (Code.NONE, 0, 20)
    assert (first.code, first.offset) == (Code.NONE, 0)


async def test_asked_for_the_old_topic_nothing_is_said_of_the_new_one(log: KafkaLog, old: Topic) -> None:
    log.topic = old

    assert (await log.end_of(0)).code is Code.UNKNOWN_TOPIC_ID
    assert (await log.offset_of(EARLIEST)).code is Code.UNKNOWN_TOPIC_ID
    assert (await log.connection.describe(old)).code is Code.UNKNOWN_TOPIC_ID


async def test_nothing_is_written_to_or_deleted_from_the_new_topic(log: KafkaLog, old: Topic) -> None:
    batch = encode([NewRecord(1, None, b"late", [])], Compression.NONE)
    produced = await log.connection.produce(old, 0, batch, 10_000)
    deleted = await log.connection.delete_records(old, 0, 5, 10_000)

    assert produced.code is Code.UNKNOWN_TOPIC_ID
    assert deleted.code is Code.UNKNOWN_TOPIC_ID
    assert ((await log.offset_of(EARLIEST)).offset, (await log.offset_of()).offset) == (0, 20)


async def test_a_name_and_the_id_of_another_topic(kafka: KafkaCluster, log: KafkaLog) -> None:
    await kafka.create_topic("another")
    log.topic = Topic("another", log.topic.id)

    assert (await log.end_of(0)).code is Code.INCONSISTENT_TOPIC_ID
