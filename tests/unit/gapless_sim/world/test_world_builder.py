from __future__ import annotations

import pytest

from gapless_sim.recording.trace import Trace
from gapless_sim.world.choices import Choices
from gapless_sim.world.options import ClockFaults, Options
from gapless_sim.world.world_builder import build, roles_of


@pytest.mark.parametrize(
    ("options", "roles"),
    [
        (Options(1), {"node1": ("phb", "shb")}),
        (
            Options(1, phbs=2, shbs=1, together=False),
            {"phb1": ("phb",), "phb2": ("phb",), "shb1": ("shb",)},
        ),
        (Options(1, phbs=2, shbs=1), {"node1": ("phb", "shb"), "node2": ("phb",)}),
        (Options(1, phbs=1, shbs=2), {"node1": ("phb", "shb"), "node2": ("shb",)}),
    ],
)
def test_the_nodes_of_a_world(options: Options, roles: dict[str, tuple[str, ...]]) -> None:
    assert roles_of(options) == roles


def test_clients_are_spread_over_the_hosts_of_subscriptions() -> None:
    world = build(Options(1, router="hostile", phbs=1, shbs=2, together=False, clients=3), Choices(1), Trace())

    assert [client.addresses for client in world.clients.values()] == [["shb1"], ["shb2"], ["shb1"]]


def test_workloads_beside_one_another_have_clients_of_their_own() -> None:
    options = Options(1, router="hostile", phbs=1, shbs=2, together=False, clients=2, beside=("transforms",))
    world = build(options, Choices(1), Trace())
    names = {workload: [client.name for client in clients] for workload, clients in world.clients_of.items()}

    assert names == {"churn": ["client1", "client2"], "transforms": ["transforms1", "transforms2"]}
    assert [*world.clients] == [name for theirs in names.values() for name in theirs]
    assert [world.number("row"), world.number("row"), world.number("publication")] == [1, 2, 1]


def test_clocks_differ_as_far_as_they_may() -> None:
    options = Options(
        2, router="hostile", phbs=2, shbs=2, together=False, clock=ClockFaults(drift_ppm=100, offset_ms=50)
    )
    clocks = [broker.node_clock for broker in build(options, Choices(2), Trace()).brokers.values()]

    assert len({clock.drift_ppm for clock in clocks}) > 1
    assert all(abs(clock.drift_ppm) <= 100 for clock in clocks)
    assert all(
        abs(clock.wall(0) - build(Options(1), Choices(1), Trace()).brokers["node1"].node_clock.wall(0)) <= 50
        for clock in clocks
    )


def test_the_policy_gets_into_the_configuration() -> None:
    world = build(Options(1, pubends=2, max_retain_seconds=5.0, min_retain_seconds=3.0), Choices(1), Trace())
    (pubends,) = world.brokers["node1"].loaded.config.role("phb")["pubends"]

    assert pubends["count"] == 2
    assert pubends["max_retain_seconds"] == 5.0
    assert pubends["min_retain_seconds"] == 3.0


def test_limits_of_bytes_leases_and_other_policies_do_too() -> None:
    options = Options(1, max_retain_bytes=500, subscription_expiry_seconds=2.0)
    config = build(options, Choices(1), Trace()).brokers["node1"].loaded.config
    greedy = build(Options(1, release_policy="greedy"), Choices(1), Trace()).brokers["node1"].loaded.config

    assert config.role("phb")["pubends"][0]["max_retain_bytes"] == 500
    assert config.role("shb")["subscription_expiry_seconds"] == 2.0
    assert greedy.role("phb")["pubends"][0]["release"] == {"plugin": "greedy"}
