"""What goes wrong in worlds of the workload `kafka`."""

from __future__ import annotations

import pytest

from gapless.core.stream.ticks import STEP
from gapless.spi import VolumeIdentity
from gapless_phb.core import rows
from gapless_sim.recording.trace import Trace
from gapless_sim.workloads.kafka import KafkaApplications
from gapless_sim.workloads.kafka_faults import KafkaFaults
from gapless_sim.world.choices import Choices
from gapless_sim.world.options import SECOND, Options
from gapless_sim.world.world_builder import build


@pytest.fixture
def workload() -> KafkaApplications:
    options = Options(1, workload="kafka", phbs=2, shbs=2, together=True, clients=4, subscriptions=4)
    one = KafkaApplications(build(options, Choices(1), Trace()))
    one.faults._create()
    for broker in one.world.brokers.values():
        broker.boot()
    one.world.run_until(5 * SECOND)
    return one


@pytest.fixture
def faults(workload: KafkaApplications) -> KafkaFaults:
    return workload.faults


def numbered_rows(workload: KafkaApplications, name: str) -> list[bytes]:
    volume = workload.world.brokers[name].disk.open(VolumeIdentity("", name))
    return [key for key, _ in volume.table(rows.Tables("phb").pubends).scan() if key >= rows.key(STEP)]


def test_a_gateway_that_forgets_keeps_its_own_pubends_and_what_its_shb_has(workload: KafkaApplications) -> None:
    broker = workload.world.brokers["node1"]
    broker.kill()
    assert numbered_rows(workload, "node1")
    broker.disk.kill()

    workload.faults._forget(broker)

    assert not numbered_rows(workload, "node1")
    broker.disk.kill()
    volume = broker.disk.open(VolumeIdentity("", "node1"))
    assert list(volume.table(rows.Tables("phb").pubends).scan())
    assert any(list(volume.table(name).scan()) for name in volume.table_names() if not name.startswith("phb."))


def test_another_gateway_takes_publishing_over_with_its_applications(workload: KafkaApplications) -> None:
    before = [each.outbox for each in workload.applications if each.publishes]

    workload.take_over()

    assert [each.outbox for each in workload.applications if each.publishes] == before
    workload.world.run_until(10 * SECOND)
    for broker in workload.world.brokers.values():
        (section,) = broker.loaded.config.role("phb")["model_kafka"]
        assert section["topics"][0]["publish"] == (broker.name == "node2")
        assert broker.running


def test_compaction_removes_what_lies_in_the_middle(workload: KafkaApplications, faults: KafkaFaults) -> None:
    (partition, *_) = (each for _, _, each in workload.kafka.partitions())
    for _ in range(3):
        workload._append(partition, 0)
    before = [batch.first for batch in partition.log]

    faults._compact(partition)

    assert [batch.first for batch in partition.log] == [before[0], before[-1]]
    assert [topic.settings["cleanup.policy"] for topic, _, _ in workload.kafka.partitions()][:1] == ["compact"]
    workload.kafka.calm()
    assert [topic.settings["cleanup.policy"] for topic, _, _ in workload.kafka.partitions()][:1] == ["delete"]


def test_a_transaction_that_hangs_is_aborted_in_the_end(workload: KafkaApplications, faults: KafkaFaults) -> None:
    (partition, *_) = (each for _, _, each in workload.kafka.partitions())
    faults._hang(partition)
    assert partition.open

    workload.world.run_until(30 * SECOND)

    assert not partition.open
    assert [any(counts for _, counts in partition.committed())] == [False]


def test_a_topic_is_made_anew_under_another_id(workload: KafkaApplications, faults: KafkaFaults) -> None:
    (before,) = workload.kafka.cluster.topics

    faults._make_anew()
    workload.world.run_until(10 * SECOND)

    (after,) = workload.kafka.cluster.topics
    assert after != before
