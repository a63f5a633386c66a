"""The suite's random schedules notice each broken promise."""

from __future__ import annotations

import pytest

from conformance import broken_by_change
from conformance import broken_routers as broken
from conformance.broken_routers import Breach, covers
from gapless_testing.routing.breaches import Clause
from gapless_testing.routing.safety import SafetyTests as Suite

BREACHES = [
    Breach(broken.InventsSilence, Suite.test_nothing_goes_wrong, Clause.TRUTH),
    Breach(broken.LosesEvents, Suite.test_nothing_goes_wrong, Clause.TRUTH),
    Breach(broken.HidesLoss, Suite.test_nothing_goes_wrong, Clause.TRUTH),
    Breach(broken.ReleasesTooMuch, Suite.test_nothing_goes_wrong, Clause.MINIMA),
    Breach(broken.ReleasesUnheard, Suite.test_nothing_goes_wrong, Clause.MINIMA),
    Breach(broken.ReleasesFall, Suite.test_nothing_goes_wrong, Clause.MINIMA),
    Breach(broken.NeverReleases, Suite.test_nothing_goes_wrong, Clause.MINIMA),
    Breach(broken.SeesTooSoon, Suite.test_nothing_goes_wrong, Clause.ENROL),
    Breach(broken.FiltersTooSoon, Suite.test_nothing_goes_wrong, Clause.ENROL),
    Breach(broken.AnswersTwice, Suite.test_nothing_goes_wrong, Clause.PLACE),
    Breach(broken.AnswersAhead, Suite.test_nothing_goes_wrong, Clause.PLACE),
    Breach(broken.ChangesBatches, Suite.test_nothing_goes_wrong, Clause.PLACE),
    Breach(broken.NeverLogs, Suite.test_nothing_goes_wrong, Clause.PLACE),
    Breach(broken.KeepsHolds, Suite.test_nothing_goes_wrong, Clause.HOLD),
    Breach(broken.AnswersHoldsItself, Suite.test_nothing_goes_wrong, Clause.HOLD),
    Breach(broken.Chatters, Suite.test_nothing_goes_wrong, Clause.BOUNDED),
    Breach(broken.NeverSleeps, Suite.test_nothing_goes_wrong, Clause.BOUNDED),
    Breach(broken_by_change.NeverAsks, Suite.test_links_go_wrong, Clause.ANSWER),
    Breach(broken.FiltersWithoutHeaders, Suite.test_interest_changes, Clause.TRUTH),
    Breach(broken.FiltersByAHole, Suite.test_interest_changes, Clause.TRUTH),
    Breach(broken_by_change.FiltersByAHoleOnLinks, Suite.test_interest_changes_while_links_go_wrong, Clause.TRUTH),
    Breach(broken.MissesItsState, Suite.test_routers_vanish, Clause.ANSWER),
    Breach(broken.MissesItsState, Suite.test_brokers_crash, Clause.ANSWER),
    Breach(broken.MissesItsState, Suite.test_everything_goes_wrong, Clause.ANSWER),
]


@pytest.mark.parametrize("breach", BREACHES, ids=str)
def test_a_breach_is_noticed(breach: Breach) -> None:
    breach.check()


def test_every_test_can_fail() -> None:
    covers(BREACHES, Suite)
