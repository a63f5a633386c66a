"""The workload of scenarios: each comes to its end, and in it happens what it is for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gapless_sim.search.run import run_seed
from gapless_sim.workloads import scenario_outages, scenario_returns, scenario_troubles, scenarios
from gapless_sim.workloads.scenario_operators import Operator
from gapless_sim.workloads.scenario_publishers import LATER, Meters, OrderService, SplitBrain, Visitors, Workers
from gapless_sim.workloads.scenario_publishers import SCENARIOS as PUBLISHING
from gapless_sim.workloads.scenario_readers import SCENARIOS as READING
from gapless_sim.workloads.scenario_readers import Dashboard, Odd, Projection, Quiet, Report
from gapless_sim.workloads.scenario_sharers import ConcurrentRemoval, Flicker, Rivals, Standby
from gapless_sim.workloads.scenario_starts import Audit, Courier, Crowd
from gapless_sim.workloads.scenario_state import Scenario
from gapless_sim.workloads.scenarios import KINDS, SOMETIMES, TROUBLE, Scenarios
from gapless_sim.world.options import SCENARIOS, SECOND, DiskFaults, Options, about
from unit.gapless_sim.workloads.scenario_fixture import ScenarioFixture, play_until

SLOW_DISK = DiskFaults(sync_time=SECOND // 4)
WITH: dict[type[Scenario], tuple[tuple[type[Scenario], ...], Mapping[str, Any]]] = {
    OrderService: ((OrderService,), {"disk": SLOW_DISK}),
    SplitBrain: ((SplitBrain,), {"rate": 20.0}),
    Meters: ((Meters,), {}),
    Workers: ((Workers,), {"rate": 20.0}),
    Visitors: ((Visitors,), {"disk": SLOW_DISK, "publisher_expiry_seconds": 0.5}),
    Projection: ((OrderService, Projection), {"rate": 20.0}),
    # Without memory at its SHB, which may still have what the PHB has given up.
    Report: ((OrderService, Report), {"rate": 20.0, "max_retain_seconds": 2.0, "catchup_bytes": 0}),
    Dashboard: ((OrderService, Dashboard), {}),
    Quiet: ((OrderService, Quiet), {"rate": 20.0}),
    Odd: ((OrderService, Odd), {"rate": 20.0}),
    Standby: ((OrderService, Standby), {"rate": 20.0}),
    Rivals: ((OrderService, Rivals), {}),
    Flicker: ((OrderService, Flicker), {"rate": 20.0}),
    ConcurrentRemoval: ((OrderService, ConcurrentRemoval), {"rate": 20.0}),
    Audit: ((OrderService, Projection, Audit), {"rate": 20.0}),
    Crowd: ((Crowd,), {"rate": 20.0}),
    Courier: ((Courier, OrderService), {"rate": 20.0}),
    Operator: ((OrderService, Operator, Report, Odd), {"rate": 20.0}),
}
"""Whom a kind of scenario needs beside itself, and under which options all that it is about happens."""

RARE = {
    "scenario.standby.lost it to the other",
    "scenario.courier.latest was behind the receipt",
    "scenario.courier.lost to early release",
    "scenario.operator.saw nothing",
    "scenario.workers.uncertain",
    "scenario.visitors.cut off with publications unanswered",
}
"""What needs other options, or a coincidence."""


OF_TROUBLE = (*scenario_troubles.SOMETIMES, *scenario_outages.SOMETIMES, *scenario_returns.SOMETIMES)


def promised(kind: str, *, trouble: bool) -> set[str]:
    """What should happen sometimes in a scenario of a kind. There is a crowd of either sort."""
    names = OF_TROUBLE if trouble else set(SOMETIMES) - set(OF_TROUBLE)
    return {name for name in names if name.startswith(f"scenario.{kind}.")} - RARE


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", [*KINDS, *LATER], ids=lambda kind: kind.kind)
def test_every_scenario_comes_to_its_end_and_all_its_turns_come(kind: type[Scenario]) -> None:
    kinds, options = WITH[kind]
    turns = {name.removeprefix("scenario.") for name in promised(kind.kind, trouble=False)}
    assert turns

    for fixture in play_until(*turns, kinds=kinds, **options):
        logged = sorted(fixture.log.keys)
        assert logged == sorted(fixture.publications()) or kind in (Workers, Visitors)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("scenario", TROUBLE)
def test_all_turns_of_a_trouble_come_and_no_promise_breaks(scenario: str) -> None:
    missing = promised(scenario, trouble=True)
    assert missing
    router = "local" if SCENARIOS[scenario]["shbs"] == 1 else "hostile"
    for seed in range(40):
        result = run_seed(about(Options(seed, router=router), scenario))
        assert result.violation is None, f"seed {seed}: {result.violation}"
        missing -= result.hits.keys()
        if not missing:
            return
    raise AssertionError(f"never happened: {sorted(missing)}")


def test_all_scenarios_run_in_one_world() -> None:
    fixture = ScenarioFixture(*KINDS, rate=40.0, max_retain_seconds=5.0).play(20)

    assert fixture.ending.missing() == []
    assert sorted(fixture.log.keys) == sorted(fixture.publications())


def test_somebody_publishes_and_somebody_reads() -> None:
    for seed in range(20):
        kinds = [type(scenario) for scenario in Scenarios(ScenarioFixture(OrderService, seed=seed).world).scenarios]
        assert kinds[0] in PUBLISHING
        assert kinds[1] in READING
        assert 3 <= len(kinds) <= 3 + ScenarioFixture(OrderService).options.subscriptions


def test_every_scenario_that_options_know_is_there() -> None:
    assert SCENARIOS.keys() == scenarios.TROUBLE.keys()
    assert all(kind.kind == name for name, kind in scenarios.TROUBLE.items())
