"""Where a log begins and ends, and stands at a time; what was deleted, and what lies beyond the end."""

from __future__ import annotations

from gapless_log.kafka.messages import EARLIEST, LATEST, UNKNOWN, Code
from gapless_log.kafka.records import Compression
from kafka_kit import KafkaLog


async def test_deleting_in_the_middle_of_a_batch(log: KafkaLog) -> None:
    """The log start moves to the record, and a fetch there returns the whole batch, what was deleted included."""
    await log.publish(*[b"%d" % number for number in range(100)])

    deleted = await log.connection.delete_records(log.topic, 0, 40, 10_000)
    before, at = await log.fetch(39), await log.fetch(40)
    first = await log.offset_of(EARLIEST, epoch=await log.leader_epoch())

    assert (deleted.code, deleted.first) == (Code.NONE, 40)
    assert before.code is Code.OFFSET_OUT_OF_RANGE
    assert (at.code, at.first) == (Code.NONE, 40)
    assert [(batch.first, batch.last) for batch in await log.batches(40)] == [(0, 99)]
    assert (first.code, first.offset, first.leader_epoch) == (Code.NONE, 40, 0)


async def test_deleting_beyond_the_end_is_refused(log: KafkaLog) -> None:
    await log.publish(b"a", b"b")

    deleted = await log.connection.delete_records(log.topic, 0, 3, 10_000)

    assert deleted.code is Code.OFFSET_OUT_OF_RANGE
    assert (await log.offset_of(EARLIEST)).offset == 0


async def test_beyond_the_end_is_the_same_error_as_before_the_beginning(log: KafkaLog) -> None:
    """So only the offsets in the answer to another question tell retention from a log that was cut."""
    await log.publish(b"a", b"b")

    at_the_end, beyond = await log.fetch(2), await log.fetch(3)

    assert (at_the_end.code, at_the_end.records, at_the_end.high_watermark) == (Code.NONE, b"", 2)
    assert beyond.code is Code.OFFSET_OUT_OF_RANGE


async def test_the_end_of_an_epoch_whose_records_are_deleted_is_the_log_start(log: KafkaLog) -> None:
    await log.publish(*[b"x"] * 10)
    await log.connection.delete_records(log.topic, 0, 10, 10_000)

    end = await log.end_of(0)

    assert (end.code, end.leader_epoch, end.end) == (Code.NONE, 0, 10)


async def test_a_time_finds_the_first_record_that_is_not_earlier(log: KafkaLog) -> None:
    """Timestamps are a producer's: they may go back."""
    for second in (1, 5, 2, 9, 3):
        await log.publish_at([(second * 1000, b"%d" % second)])

    found = [await log.offset_of(at) for at in (0, 1001, 3000, 5001, 9000)]
    late = await log.offset_of(9001)

    assert [each.offset for each in found] == [0, 1, 1, 3, 3]
    assert [each.timestamp for each in found] == [1000, 5000, 5000, 9000, 9000]
    assert (late.code, late.offset) == (Code.NONE, UNKNOWN)


async def test_a_time_is_found_within_a_batch(log: KafkaLog) -> None:
    await log.publish_at([(second * 1000, b"x") for second in range(50)], Compression.LZ4)

    assert (await log.offset_of(20_500)).offset == 21


async def test_a_fetch_ends_where_a_segment_does(log: KafkaLog) -> None:
    """However much it may return. Here a segment ends because records of 1970 and of today are not kept in one."""
    await log.publish_at([(1000, b"1970")])
    await log.publish(b"today")
    await log.publish(b"now")

    assert len(log.cluster.segments(log.topic.name)) == 2
    assert [batch.first for batch in await log.batches(0)] == [0]
    assert [batch.first for batch in await log.batches(1)] == [1, 2]


async def test_a_leader_epoch_that_the_broker_does_not_know(log: KafkaLog) -> None:
    """And one that is over, at a restart: `test_restart`."""
    await log.publish(b"a")

    assert (await log.offset_of(LATEST, epoch=7)).code is Code.UNKNOWN_LEADER_EPOCH
    assert (await log.end_of(0, current=7)).code is Code.UNKNOWN_LEADER_EPOCH
    assert (await log.fetch(0, epoch=7)).code is Code.UNKNOWN_LEADER_EPOCH
    assert (await log.fetch(0, epoch=0)).code is Code.NONE


async def test_the_end_of_an_epoch_that_is_still_to_come(log: KafkaLog) -> None:
    found = await log.end_of(9)

    assert (found.code, found.leader_epoch, found.end) == (Code.NONE, UNKNOWN, UNKNOWN)


async def test_the_settings_that_are_in_force(log: KafkaLog) -> None:
    await log.cluster.alter_topic(log.topic.name, retention_ms=12345)
    await log.cluster.alter_topic(log.topic.name, cleanup_policy="compact")

    settings = (await log.connection.describe(log.topic)).settings

    assert settings["retention.ms"] == "12345"
    assert settings["cleanup.policy"] == "compact"
    assert settings["max.message.bytes"] == "1048588"
