"""What happens to records of a real Kafka, as subscriptions of a node are given it: retention, transactions, sizes."""

from __future__ import annotations

import asyncio
import time

import pytest

import gapless
from gapless_log.kafka.messages import EARLIEST
from gapless_testing.kafka import KafkaCluster
from integration.broker_process import until
from kafka_front import alarms, consume, gateway, given, numbered, pubend_of, session_at, until_alarmed, until_lost
from kafka_kit import KafkaLog

pytestmark = pytest.mark.timeout(60)

BODIES = [b"%d" % number for number in range(30)]


async def test_retention_past_a_subscription_is_a_gap_exact_to_the_offset(kafka: KafkaCluster, name: str) -> None:
    """For who was there and is away, for who comes with a token to a node that knows nothing, and for nobody else."""
    await kafka.create_topic(name, retention_ms=-1, segment_ms=1)
    now = time.time_ns() // 1_000_000
    async with KafkaLog(kafka, name) as log:
        for first, at in ((0, now - 7_200_000), (10, now - 3_600_000), (20, now)):
            await log.publish_at([(at, body) for body in BODIES[first : first + 10]])
        async with gateway(kafka, name) as node, session_at(node) as (connection, session):
            pubend = await pubend_of(connection, name)
            async with consume(session, name, "away", start="earliest") as away:
                first_five = await given(away, pubend, 5)
                token = away.token
                await away.acknowledge()
            async with consume(session, name, "there", start="earliest") as there:
                everything = await given(there, pubend, 30)
                await kafka.alter_topic(name, retention_ms=1_800_000)
                while (await log.fetch(29)).first < 20:  # what is too old is looked for once a second
                    pass
                await log.publish(b"30")
                everything += await given(there, pubend, 31)
            async with consume(session, name, "away") as away:
                of_away = await given(away, pubend, 31)
            async with gateway(kafka, name) as other, session_at(other) as (its, there):
                await pubend_of(its, name)
                async with consume(there, name, "away", start=token) as away:
                    of_other = await given(away, pubend, 31)
                async with consume(there, name, "late", start="earliest") as late:
                    of_late = await given(late, pubend, 31)

    rest = numbered(20, *BODIES[20:], b"30")
    assert first_five == numbered(0, *BODIES[:5])
    assert everything == numbered(0, *BODIES, b"30")
    assert of_away == of_other == [(5, 20, "released early"), *rest]
    assert of_late == rest


async def test_records_deleted_in_the_middle_of_a_batch_are_a_gap(kafka: KafkaCluster, log: KafkaLog) -> None:
    """Kafka still sends the whole batch: nothing below the place is delivered, and everything above it is."""
    name = log.topic.name
    await log.publish(*BODIES[:10])
    async with gateway(kafka, name) as node, session_at(node) as (connection, session):
        pubend = await pubend_of(connection, name)
        async with consume(session, name, "away", start="earliest") as away:
            first = await given(away, pubend, 2)
            await away.acknowledge()
        async with consume(session, name, "done", start="earliest") as done:
            await given(done, pubend, 7)
            await done.acknowledge()
        await kafka.delete_records(name, 4)
        await until_lost(connection, pubend, 4)
        async with consume(session, name, "away") as away, consume(session, name, "done") as done:
            of_away, of_done = await given(away, pubend, 10), await given(done, pubend, 10)
        async with consume(session, name, "late", start="earliest") as late:
            of_late = await given(late, pubend, 10)

    assert first == numbered(0, *BODIES[:2])
    assert of_away == [(2, 4, "released early"), *numbered(4, *BODIES[4:10])]
    assert of_done == numbered(7, *BODIES[7:10])
    assert of_late == numbered(4, *BODIES[4:10])


async def test_a_gateway_deletes_what_every_subscription_is_done_with_and_nothing_else(
    kafka: KafkaCluster, log: KafkaLog
) -> None:
    """Also in the middle of a batch."""
    name = log.topic.name
    topic = {"name": name, "retention": "delete"}
    async with gateway(kafka, topic, sections={"shb": {"checkpoint_seconds": 0.05}}) as node:
        async with session_at(node) as (connection, session):
            pubend = await pubend_of(connection, name)
            async with consume(session, name, "slow"):
                pass
            async with consume(session, name, "quick") as quick, consume(session, name, "slow") as slow:
                await log.publish(*BODIES[:10])
                of_quick = await given(quick, pubend, 10)
                await quick.acknowledge()
                of_slow = await given(slow, pubend, 4)
                await slow.acknowledge()
            while (await log.offset_of(EARLIEST)).offset == 0:
                pass
            first = (await log.offset_of(EARLIEST)).offset
            async with consume(session, name, "slow") as slow:
                of_slow += await given(slow, pubend, 10)
            async with consume(session, name, "late", start="earliest") as late:
                of_late = await given(late, pubend, 10)

    assert first == 4
    assert of_quick == of_slow == numbered(0, *BODIES[:10])
    assert of_late == numbered(4, *BODIES[4:10])


async def test_transactions_that_are_aborted_or_hang(
    kafka: KafkaCluster, log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of an aborted one is delivered, nothing behind an open one, and an alarm names whose it is."""
    monkeypatch.setattr("gapless_log.kafka.logs.STUCK_SECONDS", 0.5)
    name = log.topic.name
    async with (
        gateway(kafka, name) as node,
        session_at(node) as (connection, session),
        log.producer(transactional_id=name) as producer,
    ):
        pubend = await pubend_of(connection, name)
        async with consume(session, name, "all") as subscription:
            await log.publish(b"0")
            for value, commits in ((b"void", False), (b"1", True)):
                await producer.begin_transaction()
                await producer.send_and_wait(name, value, partition=0)
                await (producer.commit_transaction() if commits else producer.abort_transaction())
            decided = await given(subscription, pubend, 5)
            await producer.begin_transaction()
            await producer.send_and_wait(name, b"2", partition=0)
            await log.publish(b"3")
            told = await until_alarmed(node, "log_stands_still")
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(given(subscription, pubend, 6), 0.3)
            (open_one, _) = await log.batches(5, is_committed=False)
            await producer.commit_transaction()
            rest = await given(subscription, pubend, 8)
            await until(lambda: not alarms(node, "log_stands_still"), "the end of the alarm")
        async with consume(session, name, "late", start="earliest") as late:
            again = await given(late, pubend, 8)

    assert decided == [(1, b"0"), (4, b"1")]
    assert rest == [(6, b"2"), (7, b"3")]
    assert again == decided + rest
    whose = f"a transaction of producer id {open_one.producer_id}"
    assert told == [f"{pubend}: {whose} is open at offset 5: nothing behind it is decided"]


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
async def test_what_a_stranger_compresses_is_consumed(kafka: KafkaCluster, log: KafkaLog, compression: str) -> None:
    name, bodies = log.topic.name, [b"%d " % number * 200 for number in range(40)]
    async with (
        gateway(kafka, {"name": name, "types": {"number": "int"}}) as node,
        session_at(node) as (connection, session),
        log.producer(compression_type=compression, linger_ms=50) as producer,
    ):
        pubend = await pubend_of(connection, name)
        async with consume(session, name, "all", selector="number >= 10") as subscription:
            sent = [
                await producer.send(name, body, partition=0, headers=[("number", b"%d" % number)])
                for number, body in enumerate(bodies)
            ]
            await asyncio.gather(*sent)
            selected = await given(subscription, pubend, 40)
        async with consume(session, name, "late", start="earliest") as late:
            everything = await given(late, pubend, 40)
        (batch, *_) = await log.batches(0)

    assert batch.compression.name.lower() == compression
    assert selected == numbered(10, *bodies[10:])
    assert everything == numbered(0, *bodies)


async def test_an_event_that_the_topic_does_not_take_is_refused(kafka: KafkaCluster, name: str) -> None:
    """At once, and alone: what its publisher sends next is taken."""
    await kafka.create_topic(name, max_message_bytes=100_000)
    topic = {"name": name, "publish": True}
    async with gateway(kafka, topic) as node, session_at(node) as (connection, session):
        pubend = await pubend_of(connection, name)
        publisher = session.publisher(name, name="loader")
        receipts = [await publisher.send(b"0")]
        with pytest.raises(gapless.PublishRejectedError, match="95,000"):
            await publisher.send(b"x" * 100_000)
        receipts.append(await publisher.send(b"y" * 90_000))
        async with consume(session, name, "all", start="earliest") as subscription:
            items = await given(subscription, pubend, 2)

    assert items == [(receipts[0].tick, b"0"), (receipts[1].tick, b"y" * 90_000)]


async def test_a_record_that_fits_into_no_frame_is_a_gap_for_who_wants_it(kafka: KafkaCluster, log: KafkaLog) -> None:
    """Everybody goes on behind it, an alarm says where it is, and a node that takes larger frames delivers it."""
    name, large = log.topic.name, b"x" * 300_000
    small = {"limits": {"max_frame_bytes": 100_000, "max_event_bytes": 50_000}}
    async with gateway(kafka, name, sections=small) as node, session_at(node) as (connection, session):
        pubend = await pubend_of(connection, name)
        warned = alarms(node, "event_too_large")
        async with consume(session, name, "away"), consume(session, name, "other", selector="kind = 'other'"):
            pass
        async with consume(session, name, "there") as there:
            for bodies in ([b"0"], [b"1", large, b"3"], [large], [b"y" * 40_000] * 5):
                await log.publish(*bodies)
            of_there = await given(there, pubend, 10)
        token = gapless.CheckpointToken.parse(str(there.token))
        async with (
            consume(session, name, "away") as away,
            consume(session, name, "other", selector="kind = 'other'") as other,
        ):
            of_away, of_other = await given(away, pubend, 10), await given(other, pubend, 10)
        async with consume(session, name, "late", start="earliest") as late:
            of_late = await given(late, pubend, 10)
        told = alarms(node, "event_too_large")
    async with gateway(kafka, name) as node, session_at(node) as (connection, session):
        await pubend_of(connection, name)
        async with consume(session, name, "late", start="earliest") as late:
            everything = await given(late, pubend, 10)
        unalarmed = alarms(node, "event_too_large")

    gaps = [(2, 3, "too large to deliver"), (4, 5, "too large to deliver")]
    rest = numbered(5, *[b"y" * 40_000] * 5)
    assert of_there == [*numbered(0, b"0", b"1"), gaps[0], *numbered(3, b"3"), gaps[1], *rest]
    assert of_away == of_late == of_there
    assert of_other == []
    assert everything == numbered(0, b"0", b"1", large, b"3", large, *[b"y" * 40_000] * 5)
    assert token.ticks == {pubend: 10}
    assert "it takes records of 996,158 bytes, and a frame carries" in warned[0]
    assert f"{pubend}: the record at offset 4 makes an event of 300," in told[0]
    assert unalarmed == []
