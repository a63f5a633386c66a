"""The suite's floods notice who keeps what it need not."""

from __future__ import annotations

import pytest

from conformance import broken_by_change
from conformance import broken_routers as broken
from conformance.broken_routers import Breach, covers, noticed
from gapless_sim.hostile.router import HostileRouter
from gapless_testing.routing.bounds import BoundsTests as Suite
from gapless_testing.routing.breaches import Clause

BREACHES = [
    Breach(broken.KeepsEverything, test, Clause.BOUNDED)
    for test in (
        Suite.test_events_flood_in_while_everybody_is_there,
        Suite.test_wants_flood_in_while_phbs_are_away,
        Suite.test_interest_changes_while_phbs_are_away,
        Suite.test_batches_flood_in_while_phbs_are_away,
    )
] + [
    Breach(broken_by_change.WorksInVain, Suite.test_an_idle_network_is_quiet, Clause.BOUNDED),
    Breach(broken.KeepsEverythingForEverybody, Suite.test_events_flood_in_while_shbs_are_away, Clause.BOUNDED),
    Breach(broken.KeepsEverythingForEverybody, Suite.test_events_flood_in_while_no_shb_asks_or_answers, Clause.BOUNDED),
    Breach(broken_by_change.SaysAllInOneFrame, Suite.test_events_flood_in_while_everybody_is_there, Clause.BOUNDED),
    Breach(broken_by_change.GoesOnTooEarly, Suite.test_events_flood_in_while_a_peer_does_not_read, Clause.BOUNDED),
    Breach(broken.IgnoresRoom, Suite.test_events_flood_in_while_a_peer_does_not_read, Clause.BOUNDED),
    Breach(broken.IgnoresRoom, Suite.test_batches_flood_in_while_phbs_do_not_read, Clause.BOUNDED),
]
ON_LINKS = BREACHES[-5:]


@pytest.mark.parametrize("breach", BREACHES, ids=str)
def test_a_breach_is_noticed(breach: Breach) -> None:
    breach.check()


def test_every_test_can_fail() -> None:
    covers(BREACHES, Suite)


@pytest.mark.parametrize("breach", ON_LINKS, ids=str)
def test_who_says_nothing_on_full_links_is_right(breach: Breach) -> None:
    assert noticed(breach.test, HostileRouter) == []
