"""Scenarios of brokers that go down or away: all that they are about happens, and no promise breaks."""

from __future__ import annotations

import pytest

from gapless_sim.options import SECOND
from gapless_sim.workloads.scenario_outages import PROBES, TROUBLE, Outage, Steady
from unit.gapless_sim.workloads.staging import Stage
from unit.gapless_sim.workloads.troubles import all_turns_of


@pytest.mark.parametrize("scenario", TROUBLE)
def test_all_of_its_turns_come_and_no_promise_breaks(scenario: str) -> None:
    all_turns_of(scenario, PROBES)


def test_the_power_goes_while_something_is_promised() -> None:
    stage = Stage(Outage).play(10)

    assert stage.broker.boots > 2
    assert stage.ending.missing() == []
    assert sorted(stage.log.keys) == sorted(stage.letters())


def test_one_that_is_steady_stays_as_it_was() -> None:
    stage = Stage(Steady, duration=6 * SECOND).begin().rest(6)
    (consumer,) = stage.book.staying.values()
    stage.end()

    assert stage.broker.boots == 2
    assert stage.probes["end.one stayed as it was"] == 1
    assert not consumer.over
    assert stage.ending.missing() == []
