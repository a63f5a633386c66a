"""The workload `kafka`: what it has strangers and applications do."""

from __future__ import annotations

from gapless_sim.recording.trace import Trace
from gapless_sim.workloads.kafka import KafkaApplications, kind_of, wants
from gapless_sim.world.choices import Choices
from gapless_sim.world.options import SECOND, Options
from gapless_sim.world.world_builder import build


def workload(nodes: int = 2) -> KafkaApplications:
    options = Options(1, workload="kafka", phbs=nodes, shbs=nodes, together=True, clients=3, subscriptions=4)
    return KafkaApplications(build(options, Choices(1), Trace()))


def test_a_subscription_wants_a_kind_or_all() -> None:
    assert [wants(kind_of(1))(key) for key in (1, 2, 4)] == [True, False, True]
    assert all(map(wants(""), range(5)))


def test_only_clients_of_the_publishing_gateway_publish() -> None:
    applications = workload().applications

    assert [each.publishes for each in applications] == [True, False, True]


def test_strangers_write_from_the_beginning_and_subscriptions_come() -> None:
    one = workload()

    one.begin()
    one.world.run_until(5 * SECOND)

    assert sum(partition.end for _, _, partition in one.kafka.partitions()) > 5
    assert sum(len(each.rows) for each in one.applications) == 4


def test_it_is_not_settled_before_every_publication_has_its_receipt() -> None:
    one = workload(1)
    for application in one.applications:
        application.client.start()

    assert one.unsettled() == "publisher out-0 is not open"
