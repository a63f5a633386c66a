"""How gateways behave at Kafka: each oracle complains of what breaks its promise, and of nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from gapless.core.network.facts import Progress
from gapless_log.kafka.messages import (
    UNKNOWN,
    Code,
    DeleteRecords,
    Fetch,
    FetchAnswer,
    Fetched,
    FetchFrom,
    MetadataRequest,
    Produce,
)
from gapless_log.kafka.messages import Topic as TopicName
from gapless_sim.oracles.kafka_guests import KI7Once, KI8Guest
from gapless_sim.recording.observation import Violation
from gapless_sim.world.kafka_network import TOPIC
from unit.gapless_sim.oracles.kafka_rig import Rig


@pytest.fixture
def rig() -> Rig:
    return Rig()


def fetch(rig: Rig, wait_ms: int) -> Fetch:
    start = FetchFrom(rig.topic.id, 0, 0, UNKNOWN, UNKNOWN, 1 << 20)
    return Fetch((start,), is_committed=True, wait_ms=wait_ms, bytes_min=1, bytes_max=1 << 20)


def answer(rig: Rig, first: int) -> FetchAnswer:
    raw = b"".join(batch.raw for batch in rig.partition.log if batch.first >= first)
    fetched = Fetched(rig.topic.id, 0, Code.NONE, 0, 0, 0, (), None, leader=None, records=raw)
    return FetchAnswer(Code.NONE, (fetched,))


def test_following_twice_is_found(rig: Rig) -> None:
    rig.write(1)
    once = KI7Once(rig.world, rig.logs, rig.kafka)
    rig.kafka.begin_quiet()
    rig.write(2)
    for _ in range(2):
        once._on_fetched("node1", fetch(rig, 500), answer(rig, 0))

    with pytest.raises(Violation, match=r"KI7: node1 has fetched .* bytes, and only"):
        once.ended()


def test_reading_although_one_is_caught_up_is_found(rig: Rig) -> None:
    rig.write(1)
    once = KI7Once(rig.world, rig.logs, rig.kafka)
    rig.kafka.begin_quiet()

    with pytest.raises(Violation, match=r"KI7: node1 is caught up, and reads \[\(0, 0\)\]"):
        once._on_fetched("node1", fetch(rig, 0), answer(rig, 0))


def test_it_waits_until_every_node_is_caught_up(rig: Rig) -> None:
    rig.write(1)
    rig.world.brokers["node1"] = cast("Any", SimpleNamespace(roles={"phb", "shb"}))
    once = KI7Once(rig.world, rig.logs, rig.kafka)
    assert not once.settled()
    assert once.unsettled() == f"node1 is behind the end of {rig.pubend}, 1"

    once.progressed("node1", Progress("shb", rig.pubend, 0, 1))

    assert once.settled()


def test_only_who_is_configured_to_publishes_and_deletes(rig: Rig) -> None:
    KI8Guest(rig.world, rig.logs, rig.kafka)
    topic = TopicName(TOPIC, rig.topic.id)
    produce, delete = Produce(topic, 0, b"", 1), DeleteRecords(TOPIC, 0, 1, 1)
    rig.kafka.publishing.add("node1")
    rig.kafka.deleting.add("node1")
    for request in (produce, delete, fetch(rig, 0), MetadataRequest((), ())):
        rig.request("node1", request)

    for request, what in ((produce, "writes to"), (delete, "deletes records of")):
        with pytest.raises(Violation, match=f"KI8: node2 {what} {TOPIC}"):
            rig.request("node2", request)


def test_a_gateway_joins_no_group_and_configures_nothing(rig: Rig) -> None:
    KI8Guest(rig.world, rig.logs, rig.kafka)

    with pytest.raises(Violation, match="KI8: node1 asks Kafka for 'JoinGroup'"):
        rig.request("node1", "JoinGroup")
