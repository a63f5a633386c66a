"""What a broker's crash does to a log: its leader epoch rises, and if records were lost, others take their offsets."""

from __future__ import annotations

import pytest

from gapless_log.kafka.messages import UNKNOWN, Code, EpochEnd
from gapless_log.kafka.records import batches, records
from gapless_testing.kafka import KafkaCluster
from kafka_kit import KafkaLog


@pytest.mark.timeout(120)
async def test_a_crash_with_and_without_a_loss(kafka: KafkaCluster) -> None:
    """One restart for both, because it takes seconds: `kept` loses nothing, `cut` its last 400 records."""
    await kafka.create_topic("kept")
    await kafka.create_topic("cut")
    async with KafkaLog(kafka, "kept") as kept, KafkaLog(kafka, "cut") as cut:
        for log in (kept, cut):
            await log.publish(*[b"old"] * 600)
            await log.publish(*[b"old"] * 400)
        before = await kept.leader_epoch()

        await kafka.kill()
        kafka.cut("cut", 600)
        await kafka.start()

        with pytest.raises(ConnectionError):
            await kept.connection.metadata()
    async with KafkaLog(kafka, "kept") as kept, KafkaLog(kafka, "cut") as cut:
        await an_epoch_more_and_everything_there(kept, before)
        await others_at_the_same_offsets(cut, before)


async def an_epoch_more_and_everything_there(log: KafkaLog, before: int) -> None:
    """The log that has lost nothing."""
    now = await log.leader_epoch()
    old_end = await log.end_of(before, current=now)

    assert now > before
    assert (old_end.code, old_end.leader_epoch, old_end.end) == (Code.NONE, before, 1000)
    assert (await log.end_of(before, current=before)).code is Code.FENCED_LEADER_EPOCH
    assert (await log.offset_of(epoch=before)).code is Code.FENCED_LEADER_EPOCH
    assert (await log.fetch(1000, epoch=before)).code is Code.FENCED_LEADER_EPOCH
    assert (await log.fetch(1000, epoch=now, last=before)).diverging is None
    assert await log.publish(b"new") == 1000
    assert [batch.leader_epoch for batch in await log.batches(0)] == [before, before, now]


async def others_at_the_same_offsets(log: KafkaLog, before: int) -> None:
    """The log that was cut."""
    now = await log.leader_epoch()
    beyond = await log.fetch(1000, epoch=now)
    await log.publish(*[b"new"] * 1000)
    plain, with_epoch = await log.fetch(1000), await log.fetch(1000, epoch=now, last=before)
    old_end, new_end = await log.end_of(before), await log.end_of(now)

    assert beyond.code is Code.OFFSET_OUT_OF_RANGE  # as retention is
    assert plain.code is Code.NONE
    assert {record.value for batch in batches(plain.records) for record in records(batch)} == {b"new"}
    assert (with_epoch.code, with_epoch.diverging, with_epoch.records) == (Code.NONE, EpochEnd(before, 600), b"")
    assert (await log.fetch(1000, epoch=before)).code is Code.FENCED_LEADER_EPOCH
    assert (old_end.leader_epoch, old_end.end) == (before, 600)
    assert (new_end.leader_epoch, new_end.end) == (now, 1600)
    assert (await log.end_of(now + 1)).leader_epoch == UNKNOWN
