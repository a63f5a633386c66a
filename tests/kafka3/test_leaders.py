"""What a change of leaders does to who reads: nothing, or it has others take the offsets of what is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from gapless_log.kafka.messages import Code, EpochEnd, PartitionState
from gapless_log.kafka.records import batches, records
from gapless_log.kafka.requests import connect
from gapless_testing.kafka import KafkaCluster
from kafka_kit import ACCESS, KafkaLog

pytestmark = pytest.mark.timeout(240)

NODES = (1, 2, 3)


async def state(kafka: KafkaCluster, name: str) -> PartitionState:
    """Who leads partition 0, as any broker that runs knows it."""
    node = next(node for node in NODES if kafka.runs(node))
    connection = await connect(kafka.address(node), ACCESS)
    try:
        (topic,) = (await connection.metadata([name])).topics
        return topic.partitions[0]
    finally:
        await connection.close()


async def until(holds: Callable[[PartitionState], bool], kafka: KafkaCluster, name: str) -> PartitionState:
    """Waits until something holds of partition 0."""
    for _ in range(600):
        found = await state(kafka, name)
        if holds(found):
            return found
        await asyncio.sleep(0.1)
    raise AssertionError(f"in vain: {found}")


async def until_led_by(kafka: KafkaCluster, name: str, *nodes: int) -> int:
    """Waits for a leader among these brokers; returns it."""
    leader = (await until(lambda found: found.leader in nodes, kafka, name)).leader
    async with KafkaLog(kafka, name, leader) as log:
        await log.leader_epoch()  # it does lead
    return leader


async def until_in_sync(kafka: KafkaCluster, name: str, *nodes: int) -> None:
    """Waits until these brokers, and no others, have all of the log."""
    await until(lambda found: set(found.in_sync) == set(nodes), kafka, name)


async def test_who_does_not_lead_says_so(kafka: KafkaCluster) -> None:
    await kafka.create_topic("led")
    leader = (await state(kafka, "led")).leader
    follower = next(node for node in NODES if node != leader)

    async with KafkaLog(kafka, "led", follower) as log:
        assert (await log.offset_of(epoch=0)).code is Code.NOT_LEADER_OR_FOLLOWER
        assert (await log.end_of(0)).code is Code.NOT_LEADER_OR_FOLLOWER


async def test_a_leader_is_killed_and_nothing_is_lost(kafka: KafkaCluster) -> None:
    """Its epoch ends where the next one begins, and a reader goes on there."""
    await kafka.create_topic("safe")
    leader = (await state(kafka, "safe")).leader
    async with KafkaLog(kafka, "safe", leader) as log:
        before = await log.leader_epoch()
        await log.publish(*[b"old"] * 600)

    await kafka.kill(leader)
    other = await until_led_by(kafka, "safe", *(node for node in NODES if node != leader))
    async with KafkaLog(kafka, "safe", other) as log:
        now = await log.leader_epoch()
        assert await log.publish(*[b"new"] * 100) == 600

        assert now > before
        assert await log.values(0) == [b"old"] * 600 + [b"new"] * 100
        assert [batch.leader_epoch for batch in await log.batches(0)] == [before, now]
        assert ((await log.end_of(before)).end, (await log.end_of(now)).end) == (600, 700)
        assert (await log.fetch(600, epoch=now, last=before)).diverging is None
        assert (await log.fetch(600, epoch=before)).code is Code.FENCED_LEADER_EPOCH


async def test_an_unclean_election_gives_offsets_to_others(kafka: KafkaCluster) -> None:
    """Two copies; the follower dies at 600, the leader goes on to 1,000 and dies, and the follower is elected."""
    await kafka.create_topic("unsafe", replicas=2, min_insync_replicas=1, unclean_leader_election_enable=True)
    first = await state(kafka, "unsafe")
    leader = first.leader
    (follower,) = set(first.replicas) - {leader}
    async with KafkaLog(kafka, "unsafe", leader) as log:
        before = await log.leader_epoch()
        await log.publish(*[b"old"] * 600)
        await kafka.kill(follower)
        await until_in_sync(kafka, "unsafe", leader)
        epoch_alone = await log.leader_epoch()
        assert await log.publish(*[b"lost"] * 400) == 600
        read_up_to = (await log.batches(600))[-1]
        assert (read_up_to.last, read_up_to.leader_epoch) == (999, epoch_alone)

    await kafka.kill(leader)
    await kafka.restart(follower)
    assert await until_led_by(kafka, "unsafe", follower) == follower
    async with KafkaLog(kafka, "unsafe", follower) as log:
        now = await log.leader_epoch()
        assert await log.publish(*[b"new"] * 700) == 600
        plain, checked = await log.fetch(1000), await log.fetch(1000, epoch=now, last=epoch_alone)
        fenced, end = await log.fetch(1000, epoch=before), await log.end_of(epoch_alone)

    assert now > epoch_alone >= before
    assert plain.code is Code.NONE
    assert {record.value for batch in batches(plain.records) for record in records(batch)} == {b"new"}
    assert (checked.code, checked.diverging, checked.records) == (Code.NONE, EpochEnd(before, 600), b"")
    assert fenced.code is Code.FENCED_LEADER_EPOCH
    assert (end.leader_epoch, end.end) == (before, 600)

    await kafka.restart(leader)
    await until_in_sync(kafka, "unsafe", leader, follower)
    async with KafkaLog(kafka, "unsafe", follower) as log:
        assert await log.values(600) == [b"new"] * 700  # the old leader has cut itself, and brings nothing back
