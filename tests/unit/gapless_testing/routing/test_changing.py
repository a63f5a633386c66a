"""The suite's tests of change notice who does not follow it."""

from __future__ import annotations

import pytest

from conformance import broken_by_change
from conformance.broken_routers import Breach, covers, noticed
from gapless_sim.hostile.router import HostileRouter
from gapless_testing.routing import ALL, BRANCH, CHAIN, DIAMOND, HUB, INNER, LEVELS, SEVEN
from gapless_testing.routing.breaches import Clause
from gapless_testing.routing.changing import ChangingTests as Suite
from gapless_testing.routing.changing import ways_round

BREACHES = [
    Breach(broken_by_change.NeedsEverybody, Suite.test_there_is_a_way_round_a_broker_that_is_gone, Clause.ANSWER),
    Breach(
        broken_by_change.TakesNumbersForAges,
        Suite.test_a_router_that_was_replaced_serves_as_soon_as_the_first,
        Clause.PUSH,
    ),
    Breach(broken_by_change.WaitsForTheRetired, Suite.test_who_is_retired_is_not_waited_for, Clause.MINIMA),
    Breach(broken_by_change.KeepsTheFirstMeta, Suite.test_a_sealed_pubend_is_told_and_released, Clause.ENROL),
    Breach(broken_by_change.CallsDamageSilence, Suite.test_what_was_given_up_as_damaged_is_no_silence, Clause.TRUTH),
    Breach(broken_by_change.DefersOpenings, Suite.test_openings_stay_in_order_whatever_comes_late, Clause.PLACE),
    Breach(broken_by_change.FailsForAFrame, Suite.test_what_does_not_parse_is_dropped, Clause.SEAM),
    Breach(broken_by_change.BelievesAnyTick, Suite.test_a_tick_that_cannot_be_ends_its_link, Clause.TRUTH),
]


@pytest.mark.parametrize("breach", BREACHES, ids=str)
def test_a_breach_is_noticed(breach: Breach) -> None:
    breach.check()


def test_every_test_can_fail() -> None:
    covers(BREACHES, Suite)


@pytest.mark.parametrize("breach", BREACHES, ids=str)
def test_a_router_that_follows_is_right(breach: Breach) -> None:
    assert noticed(breach.test, HostileRouter) == []


def test_who_can_be_done_without() -> None:
    found = {topology.name: list(ways_round(topology, topology.links)) for topology in ALL}

    assert found == {
        "alone": [],
        "pair": [],
        CHAIN.name: [],
        DIAMOND.name: ["i", "j"],
        LEVELS.name: ["i", "j", "k", "l"],
        INNER.name: ["i", "j", "k"],
        SEVEN.name: [],
        HUB.name: ["i"],
        BRANCH.name: ["k"],
    }
