"""Scenarios of those who return: all that they are about happens, and no promise breaks."""

from __future__ import annotations

import pytest

from gapless_sim.workloads.scenario_returning import PROBES, TROUBLE, Exchange, Usurper
from unit.gapless_sim.workloads.staging import Stage
from unit.gapless_sim.workloads.troubles import all_turns_of


@pytest.mark.parametrize("scenario", TROUBLE)
def test_all_of_its_turns_come_and_no_promise_breaks(scenario: str) -> None:
    all_turns_of(scenario, PROBES)


def test_whose_subscription_is_gone_makes_a_new_one() -> None:
    stage = Stage(Exchange).play(20)

    assert stage.probes["exchange.came back to nothing"]
    assert len(stage.book.rows) > 2
    assert stage.ending.missing() == []


def test_a_usurper_leaves_and_the_first_one_comes_back() -> None:
    stage = Stage(Usurper).begin().rest(20)
    stage.world.network.heal_all()
    stage.end()

    assert stage.probes["usurper.took over unheard"]
    assert [row.name for row in stage.book.rows] == ["usurper1"]
    assert stage.ending.missing() == []
