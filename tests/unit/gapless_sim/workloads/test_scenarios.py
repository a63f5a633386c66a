"""The workload: every kind of scenario alone, all of them together, and the same again in any process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gapless_sim.faults.schedule import Faults
from gapless_sim.workloads import SOMETIMES as ALL_SOMETIMES
from gapless_sim.workloads import WORKLOADS
from gapless_sim.workloads.scenario_publishers import SCENARIOS as PUBLISHING
from gapless_sim.workloads.scenario_publishers import OrderService
from gapless_sim.workloads.scenario_readers import SCENARIOS as READING
from gapless_sim.workloads.scenario_state import Scenario
from gapless_sim.workloads.scenarios import KINDS, SOMETIMES, Scenarios
from gapless_sim.world.options import DiskFaults, NetworkFaults, ProcessFaults
from unit.gapless_sim.workloads.scenario_fixture import ScenarioFixture


def digest_of(seed: int) -> str:
    """What a troubled run of the drawn scenarios comes to."""
    fixture = ScenarioFixture(
        *ScenarioFixture(OrderService, seed=seed).scenarios._draw(),
        seed=seed,
        rate=20.0,
        network=NetworkFaults(resets=0.5),
        process=ProcessFaults(kill=0.3, client_crash=0.3),
        disk=DiskFaults(stall=0.01),
    )
    Faults(fixture.world).begin()
    fixture.begin().rest(8)
    return fixture.trace.digest()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_every_scenario_comes_to_its_end(kind: type[Scenario]) -> None:
    fixture = ScenarioFixture(OrderService, kind, seed=11, rate=20.0).play()

    assert fixture.ending.missing() == []
    assert sorted(fixture.log.keys) == sorted(fixture.publications())
    assert len(fixture.publications()) > 50


def test_all_scenarios_run_in_one_world() -> None:
    fixture = ScenarioFixture(*KINDS, rate=40.0, max_retain_seconds=5.0).play(20)

    assert fixture.ending.missing() == []
    assert sorted(fixture.log.keys) == sorted(fixture.publications())
    assert len(fixture.state.rows) > len(KINDS)


def test_somebody_publishes_and_somebody_reads() -> None:
    for seed in range(20):
        kinds = [type(scenario) for scenario in Scenarios(ScenarioFixture(OrderService, seed=seed).world).scenarios]
        assert kinds[0] in PUBLISHING
        assert kinds[1] in READING
        assert 3 <= len(kinds) <= 3 + ScenarioFixture(OrderService).options.subscriptions


def test_a_seed_makes_the_same_run_again_in_any_process() -> None:
    first, again, other = digest_of(5), digest_of(5), digest_of(6)
    script = "from unit.gapless_sim.workloads.test_scenarios import digest_of; print(digest_of(5))"
    environment = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": os.pathsep.join(sys.path)}
    elsewhere = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )

    assert first == again == elsewhere.stdout.strip()
    assert first != other


def test_it_is_registered() -> None:
    assert WORKLOADS["scenarios"] is Scenarios
    assert set(SOMETIMES) <= set(ALL_SOMETIMES)
    assert len(set(SOMETIMES)) == len(SOMETIMES)
    assert len({kind.kind for kind in KINDS}) == len(KINDS)
