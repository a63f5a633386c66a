"""The workload: every kind of scenario alone, all of them together, and the same again in any process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gapless_sim.faults import Faults
from gapless_sim.options import DiskFaults, NetworkFaults, ProcessFaults
from gapless_sim.workloads import PROBES as ALL_PROBES
from gapless_sim.workloads import WORKLOADS
from gapless_sim.workloads.scenario_book import Scenario
from gapless_sim.workloads.scenario_publishing import SCENARIOS as PUBLISHING
from gapless_sim.workloads.scenario_publishing import OrderService
from gapless_sim.workloads.scenario_reading import SCENARIOS as READING
from gapless_sim.workloads.scenarios import KINDS, PROBES, Scenarios
from unit.gapless_sim.workloads.staging import Stage


def digest_of(seed: int) -> str:
    """What a troubled run of the drawn scenarios comes to."""
    stage = Stage(
        *Stage(OrderService, seed=seed).scenarios._draw(),
        seed=seed,
        rate=20.0,
        network=NetworkFaults(resets=0.5),
        process=ProcessFaults(kill=0.3, client_crash=0.3),
        disk=DiskFaults(stall=0.01),
    )
    Faults(stage.world).begin()
    stage.begin().rest(8)
    return stage.trace.digest()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_every_scenario_comes_to_its_end(kind: type[Scenario]) -> None:
    stage = Stage(OrderService, kind, seed=11, rate=20.0).play()

    assert stage.ending.missing() == []
    assert sorted(stage.log.keys) == sorted(stage.letters())
    assert len(stage.letters()) > 50


def test_all_scenarios_are_told_in_one_world() -> None:
    stage = Stage(*KINDS, rate=40.0, max_retain_seconds=5.0).play(20)

    assert stage.ending.missing() == []
    assert sorted(stage.log.keys) == sorted(stage.letters())
    assert len(stage.book.rows) > len(KINDS)


def test_somebody_publishes_and_somebody_reads() -> None:
    for seed in range(20):
        kinds = [type(scenario) for scenario in Scenarios(Stage(OrderService, seed=seed).world).scenarios]
        assert kinds[0] in PUBLISHING
        assert kinds[1] in READING
        assert 3 <= len(kinds) <= 3 + Stage(OrderService).options.subscriptions


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
    assert set(PROBES) <= set(ALL_PROBES)
    assert len(set(PROBES)) == len(PROBES)
    assert len({kind.kind for kind in KINDS}) == len(KINDS)
