"""The plugin over three brokers: a leader that is killed costs nothing, and a cut is told by every gateway alike."""

from __future__ import annotations

import pytest

from gapless_testing.kafka import KafkaCluster
from kafka3.test_leaders import NODES, state, until_in_sync, until_led_by
from kafka_kit import KafkaLog
from log_host import events_of, host_of, place

pytestmark = pytest.mark.timeout(240)


async def test_a_leader_is_killed_and_every_record_comes_once(kafka: KafkaCluster) -> None:
    await kafka.create_topic("followed")
    leader = (await state(kafka, "followed")).leader
    async with host_of(kafka, "followed") as host:
        found = await host.found()
        async with KafkaLog(kafka, "followed", leader) as log:
            await log.publish(*[b"old"] * 600)
        await kafka.kill(leader)
        other = await until_led_by(kafka, "followed", *(node for node in NODES if node != leader))
        async with KafkaLog(kafka, "followed", other) as log:
            now = await log.leader_epoch()
            await log.publish(*[b"new"] * 100)
        events = await host.behind(found.log, 700)
        back = await host.read(found.log, 590, host.reached(found.log))

    assert events == [(f"0/{n}", b"old") for n in range(1, 601)] + [(f"{now}/{n}", b"new") for n in range(601, 701)]
    assert events_of(host.logs[found.log], back.pieces) == events[590:]
    assert [tuple(map(place, void)) for void in host.logs[found.log].voids] == [("0/600", f"{now}/600")]
    assert found.warnings == ()


async def test_an_unclean_election_is_a_void_to_who_was_there_and_to_who_comes_later(kafka: KafkaCluster) -> None:
    await kafka.create_topic("cut", replicas=2, min_insync_replicas=1, unclean_leader_election_enable=True)
    first = await state(kafka, "cut")
    leader = first.leader
    (follower,) = set(first.replicas) - {leader}
    async with host_of(kafka, "cut") as host:
        found = await host.found()
        async with KafkaLog(kafka, "cut", leader) as log:
            await log.publish(*[b"old"] * 600)
            await kafka.kill(follower)
            await until_in_sync(kafka, "cut", leader)
            await log.publish(*[b"lost"] * 400)
        await host.behind(found.log, 1000)
        stood = host.reached(found.log)
        await kafka.kill(leader)
        await kafka.restart(follower)
        await until_led_by(kafka, "cut", follower)
        async with KafkaLog(kafka, "cut", follower) as log:
            now = await log.leader_epoch()
            await log.publish(*[b"new"] * 700)
        events = await host.behind(found.log, 1700)
        async with host_of(kafka, "cut") as later:
            other = await later.found()
            back = await later.read(found.log, stood, other.decided)

    assert events[1000:] == [(f"{now}/{600 + n}", b"new") for n in range(1, 701)]
    assert host.logs[found.log].voids == other.voids
    assert any(lo < stood <= hi for lo, hi in other.voids)
    assert events_of(other, back.pieces) == events[1000:]
    assert len(found.warnings) == 3
