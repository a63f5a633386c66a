"""Batches go in and come out as they are: whole or not at all, in every compression; and compaction leaves holes."""

from __future__ import annotations

import pytest

from gapless_log.kafka.messages import Api, Code, Produce
from gapless_log.kafka.records import Compression, NewRecord, batches, encode, records
from gapless_testing.kafka import KafkaCluster
from kafka_kit import KafkaLog

COMPRESSED = [each for each in Compression if each is not Compression.NONE]
VALUES = [b"number %d " % number * 20 for number in range(200)]


@pytest.mark.parametrize("compression", Compression)
async def test_what_we_write_comes_back(log: KafkaLog, compression: Compression) -> None:
    new = [NewRecord(1_000 + number, b"k", value, [("n", None), ("é", b"\0")]) for number, value in enumerate(VALUES)]
    produced = await log.connection.produce(log.topic, 0, encode(new, compression), 10_000)

    (batch,) = await log.batches(0)

    assert (produced.code, produced.offset, produced.first) == (Code.NONE, 0, 0)
    assert (batch.first, batch.last, batch.record_count) == (0, 199, 200)
    assert (batch.compression, batch.leader_epoch, batch.producer_id) == (compression, 0, -1)
    assert [(each.timestamp, each.key, each.value, list(each.headers)) for each in records(batch)] == [
        (each.timestamp, each.key, each.value, list(each.headers)) for each in new
    ]
    assert [each.offset for each in records(batch)] == list(range(200))


@pytest.mark.parametrize("compression", COMPRESSED)
async def test_what_kafka_compresses_is_read(kafka: KafkaCluster, name: str, compression: Compression) -> None:
    """A broker whose topic asks for it compresses anew, with Java's libraries."""
    await kafka.create_topic(name, compression_type=compression.name.lower())
    async with KafkaLog(kafka, name) as log:
        await log.publish(*VALUES)

        (batch,) = await log.batches(0)

        assert batch.compression is compression
        assert len(batch.raw) < sum(map(len, VALUES)) / 5
        assert await log.values(0) == VALUES


async def test_a_topic_may_stamp_records_itself(kafka: KafkaCluster, name: str) -> None:
    await kafka.create_topic(name, message_timestamp_type="LogAppendTime")
    async with KafkaLog(kafka, name) as log:
        await log.publish(b"a", b"b")

        (batch,) = await log.batches(0)

        assert batch.has_append_time
        assert {record.timestamp for record in records(batch)} == {batch.max_timestamp}
        assert batch.max_timestamp > 1_600_000_000_000


async def test_a_batch_that_is_too_large_is_refused_whole(kafka: KafkaCluster, name: str) -> None:
    await kafka.create_topic(name, max_message_bytes=1000)
    async with KafkaLog(kafka, name) as log:
        batch = encode([NewRecord(1, None, b"x" * 400, [])] * 3, Compression.NONE)
        produced = await log.connection.produce(log.topic, 0, batch, 10_000)

        assert produced.code is Code.MESSAGE_TOO_LARGE
        assert (await log.offset_of()).offset == 0


async def test_a_damaged_batch_is_refused(log: KafkaLog) -> None:
    batch = bytearray(encode([NewRecord(1, None, b"x" * 400, [])], Compression.NONE))
    batch[-5] ^= 1

    produced = await log.connection.produce(log.topic, 0, bytes(batch), 10_000)

    assert produced.code is Code.CORRUPT_MESSAGE
    assert (await log.offset_of()).offset == 0


async def test_a_kafka_that_knows_no_ids_when_it_is_written_to(log: KafkaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Produce, "api", Api("Produce", 0, (9,)))

    assert [await log.publish(b"a"), await log.publish(b"b")] == [0, 1]


async def test_a_fetch_returns_a_large_batch_whole(log: KafkaLog) -> None:
    """And the beginning of the one after it, which is left out."""
    await log.publish(*[b"x" * 5000] * 20)
    await log.publish(*[b"y" * 5000] * 20)

    fetched = (await log.fetch_at_most(1000)).records, (await log.fetch_at_most(150_000)).records

    assert [[batch.last for batch in batches(data)] for data in fetched] == [[19], [19]]
    assert [len(data) > 100_000 for data in fetched] == [True, True]


@pytest.mark.timeout(120)
async def test_compaction_leaves_a_hole_that_looks_like_silence(kafka: KafkaCluster, name: str) -> None:
    await kafka.create_topic(
        name, cleanup_policy="compact", min_cleanable_dirty_ratio=0.001, segment_ms=1, max_compaction_lag_ms=1
    )
    async with KafkaLog(kafka, name) as log:
        for number in range(6):
            await log.publish_at([(number * 1000 + each, b"%d" % number) for each in range(10)], key=b"the same")
        while (await log.batches(0))[0].last < 40:  # its cleaner goes round every 200 ms
            pass

        fetched = await log.fetch(0)

        assert (fetched.code, fetched.first) == (Code.NONE, 0)
        assert next(batches(fetched.records)).first >= 40
