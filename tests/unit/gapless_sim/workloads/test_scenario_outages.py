"""Scenarios of brokers that go down or away: all that they are about happens, and no promise breaks."""

from __future__ import annotations

import pytest

from gapless_sim.workloads.scenario_outages import SOMETIMES, TROUBLE, Outage, Steady
from gapless_sim.world.options import SECOND
from unit.gapless_sim.workloads.scenario_fixture import ScenarioFixture
from unit.gapless_sim.workloads.troubles import all_turns_of


@pytest.mark.parametrize("scenario", TROUBLE)
def test_all_of_its_turns_come_and_no_promise_breaks(scenario: str) -> None:
    all_turns_of(scenario, SOMETIMES)


def test_the_power_goes_while_something_is_promised() -> None:
    fixture = ScenarioFixture(Outage).play(10)

    assert fixture.broker.boots > 2
    assert fixture.ending.missing() == []
    assert sorted(fixture.log.keys) == sorted(fixture.publications())


def test_one_that_is_steady_stays_as_it_was() -> None:
    fixture = ScenarioFixture(Steady, duration=6 * SECOND).begin().rest(6)
    (consumer,) = fixture.state.staying.values()
    fixture.end()

    assert fixture.broker.boots == 2
    assert fixture.hits["end.one stayed as it was"] == 1
    assert not consumer.over
    assert fixture.ending.missing() == []
