"""Scenarios of those who return: all that they are about happens, and no promise breaks."""

from __future__ import annotations

import pytest

from gapless_sim.workloads.scenario_returns import SOMETIMES, TROUBLE, Exchange, Usurper
from unit.gapless_sim.workloads.scenario_fixture import ScenarioFixture
from unit.gapless_sim.workloads.troubles import all_turns_of


@pytest.mark.parametrize("scenario", TROUBLE)
def test_all_of_its_turns_come_and_no_promise_breaks(scenario: str) -> None:
    all_turns_of(scenario, SOMETIMES)


def test_whose_subscription_is_gone_makes_a_new_one() -> None:
    fixture = ScenarioFixture(Exchange).play(20)

    assert fixture.hits["exchange.came back to nothing"]
    assert len(fixture.state.rows) > 2
    assert fixture.ending.missing() == []


def test_a_usurper_leaves_and_the_first_one_comes_back() -> None:
    fixture = ScenarioFixture(Usurper).begin().rest(20)
    fixture.world.network.heal_all()
    fixture.end()

    assert fixture.hits["usurper.took over unheard"]
    assert [row.name for row in fixture.state.rows] == ["usurper1"]
    assert fixture.ending.missing() == []
