"""What happens to topics of a real Kafka, as subscriptions of a node are given it: made anew, compacted, widened."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

import gapless
from gapless_log.kafka.messages import NO_ID, Code, Metadata, TopicState
from gapless_log.kafka.requests import Connection
from gapless_phb.core.foreign_log.followed import END
from gapless_testing.kafka import KafkaCluster
from integration.broker_process import until
from kafka_front import alarms, consume, gateway, given, given_of, numbered, pubend_of, session_at, until_alarmed
from kafka_kit import KafkaLog, add_partitions

pytestmark = pytest.mark.timeout(60)

OLD = [b"old %d" % number for number in range(6)]
NEW = [b"new %d" % number for number in range(4)]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway looks soon for what may have changed."""
    monkeypatch.setattr("gapless_log.kafka.logs.FIND_SECONDS", 0.1)
    monkeypatch.setattr("gapless_log.kafka.logs.METADATA_SECONDS", 0.2)


async def made_anew(kafka: KafkaCluster, name: str) -> None:
    """The topic is deleted, and made again, with other records at the same offsets, and at the same leader epoch."""
    await kafka.delete_topic(name)
    await kafka.create_topic(name, retention_ms=-1)
    async with KafkaLog(kafka, name) as log:
        await log.publish(*NEW)


async def test_a_topic_made_anew_under_subscriptions_that_are_connected(kafka: KafkaCluster, log: KafkaLog) -> None:
    """Everybody gets all of the new one, and before that a gap: nobody knows whether there was more in the old one."""
    name, many = log.topic.name, [b"%d" % number for number in range(5000)]
    await log.publish(*many)
    async with gateway(kafka, name) as node, session_at(node) as (connection, session):
        old = await pubend_of(connection, name)
        async with (
            consume(session, name, "latest") as latest,
            consume(session, name, "behind", start="earliest", prefetch=1) as behind,
            consume(session, name, "none", start="earliest", selector="kind = 'other'") as none,
        ):
            first = await given(behind, old, 1)
            of_none = await given(none, old, 5000)
            await log.publish(*OLD)
            of_latest = await given(latest, old, 5006)
            await made_anew(kafka, name)
            new = await pubend_of(connection, name, old)
            latest_later = await given_of(latest, {old: END, new: 4})
            none_later = await given_of(none, {old: END, new: 4})
            of_behind = await given_of(behind, {old: END, new: 4})
        told = alarms(node, "log_gone")

    assert of_latest == numbered(5000, *OLD)
    assert latest_later == {old: [(5006, END, "lost by the log")], new: numbered(0, *NEW)}
    assert of_none == []
    (((none_at, *_),), _) = none_later.values()
    assert none_later == {old: [(none_at, END, "lost by the log")], new: []}
    assert 5000 <= none_at <= 5006
    start, *_ = gap = of_behind[old].pop()
    assert gap == (start, END, "released early")
    assert first + of_behind[old] == numbered(0, *many[:start])
    assert of_behind[new] == numbered(0, *NEW)
    assert told == [f"{old}: the Kafka topic {name}: it was deleted and made anew"]


async def test_a_topic_made_anew_under_a_subscription_that_is_absent(kafka: KafkaCluster, log: KafkaLog) -> None:
    name = log.topic.name
    await log.publish(*OLD)
    async with gateway(kafka, name) as node, session_at(node) as (connection, session):
        old = await pubend_of(connection, name)
        async with consume(session, name, "all", start="earliest") as before:
            first = await given(before, old, 2)
            await before.acknowledge()
        await made_anew(kafka, name)
        new = await pubend_of(connection, name, old)
        async with consume(session, name, "all") as again:
            rest = await given_of(again, {old: END, new: 4})
        async with consume(session, name, "late", start="earliest") as late:
            of_late = await given(late, new, 4)

    assert first == numbered(0, *OLD[:2])
    assert rest == {old: [(2, END, "released early")], new: numbered(0, *NEW)}
    assert of_late == numbered(0, *NEW)


async def test_a_topic_turned_to_compaction(kafka: KafkaCluster, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has lost in its middle is told to nobody, neither as silence nor as events; a new gateway refuses it."""
    monkeypatch.setattr("gapless_log.kafka.logs.SETTINGS_SECONDS", 0.5)
    await kafka.create_topic(
        name, min_cleanable_dirty_ratio=0.001, segment_ms=1, max_compaction_lag_ms=1, retention_ms=-1
    )
    async with KafkaLog(kafka, name) as log, gateway(kafka, name) as node, session_at(node) as (connection, session):
        pubend = await pubend_of(connection, name)
        for number in range(6):
            await log.publish_at([(number * 1000 + each, b"%d" % number) for each in range(10)], key=b"the same")
        async with consume(session, name, "all", start="earliest") as subscription:
            first = await given(subscription, pubend, 5)
            await subscription.acknowledge()
        await kafka.alter_topic(name, cleanup_policy="compact")
        while (await log.batches(0))[0].last < 40:
            pass
        told = await until_alarmed(node, "log_stands_still")
        async with gateway(kafka, name) as other, session_at(other) as (connection_there, session_there):
            refused = await until_alarmed(other, "log_stands_still")
            async with consume(session_there, name, "all", start="earliest") as nothing:
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(given(nothing, pubend, 1), 0.5)
            listed = [each.pubend for each in await connection_there.pubends()]

    assert first == numbered(0, *[b"0"] * 5)
    assert ["cleanup.policy is compact" in text for text in told + refused] == [True, True]
    assert pubend not in listed


async def test_a_partition_that_is_added_while_subscribed(kafka: KafkaCluster, log: KafkaLog) -> None:
    """Who was there before it gets all of it."""
    name = log.topic.name
    await log.publish(b"a")
    async with gateway(kafka, name) as node, session_at(node) as (connection, session):
        first = await pubend_of(connection, name)
        async with consume(session, name, "latest") as latest, consume(session, name, "away") as away:
            await given(away, first, 1)
            await away.acknowledge()
            await log.publish(b"b")
            of_first = await given(latest, first, 2)
            await add_partitions(kafka, name, 2)
            async with KafkaLog(kafka, name, partition=1) as added:
                await added.publish(b"c", b"d")
            second = await pubend_of(connection, f"{name}.1@")
            of_second = await given(latest, second, 2)
        await log.publish(b"e")
        async with consume(session, name, "away") as again:
            of_away = await given_of(again, {first: 3, second: 2})

    assert of_first == numbered(1, b"b")
    assert of_second == numbered(0, b"c", b"d")
    assert of_away == {first: numbered(1, b"b", b"e"), second: numbered(0, b"c", b"d")}


async def test_metadata_that_comes_late(kafka: KafkaCluster, log: KafkaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that has not heard of a topic, nor of its leader, costs nobody an event, and makes no gap."""
    name = log.topic.name
    ask, late = Connection.metadata, 0

    async def metadata(self: Connection, names: object = (), ids: object = ()) -> Metadata:
        nonlocal late
        answer = await ask(self, names, ids)  # type: ignore[arg-type]
        if late <= 0:
            return answer
        late -= 1
        if ids:
            unknown = [TopicState(Code.UNKNOWN_TOPIC_ID, "", each.id, ()) for each in answer.topics]
        else:
            unknown = [TopicState(Code.UNKNOWN_TOPIC_OR_PARTITION, each.name, NO_ID, ()) for each in answer.topics]
        return replace(answer, topics=tuple(unknown))

    monkeypatch.setattr(Connection, "metadata", metadata)
    late = 3
    await log.publish(b"a")
    async with gateway(kafka, name) as node, session_at(node) as (connection, session):
        pubend = await pubend_of(connection, name)
        async with consume(session, name, "all", start="earliest") as subscription:
            before = await given(subscription, pubend, 1)
            late = 20
            await log.publish(b"b")
            during = await given(subscription, pubend, 2)
            await until(lambda: not late, "news of the topic")
            await log.publish(b"c")
            after = await given(subscription, pubend, 3)
        gone, still = alarms(node, "log_gone"), alarms(node, "log_stands_still")

    assert before + during + after == numbered(0, b"a", b"b", b"c")
    assert gone == still == []
    assert isinstance(subscription.token, gapless.CheckpointToken)
