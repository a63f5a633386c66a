"""Scenarios of trouble: they come to their end, all that they are about happens, and nothing is lost."""

from __future__ import annotations

import pytest

from gapless_sim.recording.trace import Trace
from gapless_sim.search.result import Result
from gapless_sim.search.run import run_seed
from gapless_sim.workloads import scenarios
from gapless_sim.workloads.scenario_state import Scenario
from gapless_sim.workloads.scenario_troubles import SOMETIMES, TROUBLE, Archive, Beacon
from gapless_sim.workloads.scenarios import Scenarios
from gapless_sim.world.choices import Choices
from gapless_sim.world.options import SCENARIOS, Options, about
from gapless_sim.world.world_builder import build
from unit.gapless_sim.workloads.scenario_fixture import ScenarioFixture


def run(scenario: str, seed: int, router: str = "hostile") -> Result:
    result = run_seed(about(Options(seed, router=router), scenario))
    assert result.violation is None, f"seed {seed}: {result.violation}"
    return result


@pytest.mark.parametrize("scenario", TROUBLE)
def test_all_of_its_turns_come_and_no_promise_breaks(scenario: str) -> None:
    missing = {assertion for assertion in SOMETIMES if assertion.startswith(f"scenario.{scenario}.")}
    assert missing
    for seed in range(40):
        missing -= run(scenario, seed).hits.keys()
        if not missing:
            return
    raise AssertionError(f"never happened: {sorted(missing)}")


@pytest.mark.parametrize("kind", [Beacon, Archive])
def test_everything_that_was_said_is_logged_once(kind: type[Scenario]) -> None:
    fixture = ScenarioFixture(kind, min_retain_seconds=3.0).play(15)

    assert fixture.ending.missing() == []
    assert fixture.publications()
    assert sorted(fixture.log.keys) == sorted(fixture.publications())


def test_a_run_about_a_scenario_tells_that_one() -> None:
    for name, kind in TROUBLE.items():
        options = about(Options(1, router="hostile"), name)
        told = Scenarios(build(options, Choices(1), Trace())).scenarios
        assert [type(scenario) for scenario in told] == [kind]


def test_every_scenario_that_options_know_is_there() -> None:
    assert SCENARIOS.keys() == scenarios.TROUBLE.keys()
    assert all(kind.kind == name for name, kind in scenarios.TROUBLE.items())
