"""What must hold whatever goes wrong: truth, minima, enrolment, placing (C1, C4, C5, C9); and that it heals (C2, C7).

Every test lives through random schedules in every network that the harness names. A `Contract` looks on
and raises in the step in which it is broken; when the faults end, everybody must get everything.
"""

from __future__ import annotations

from gapless_testing.routing.faults import MS, SECOND, RoutingFaults
from gapless_testing.routing.harness import RouterFixtures, RouterHarness
from gapless_testing.routing.service import linked
from gapless_testing.routing.topology import Topology
from gapless_testing.routing.world import live_through

BAD_LINKS = RoutingFaults(loss=0.1, duplicates=0.1, jitter=150 * MS, cut_every=5 * SECOND)
RESTLESS = RoutingFaults(change_every=500 * MS, jitter=20 * MS)
CHANGING_ON_BAD_LINKS = RoutingFaults(
    loss=0.05, duplicates=0.05, jitter=100 * MS, cut_every=8 * SECOND, change_every=500 * MS
)
VANISHING = RoutingFaults(vanish_every=2 * SECOND, change_every=2 * SECOND, jitter=5 * MS)
CRASHING = RoutingFaults(crash_every=4 * SECOND, change_every=3 * SECOND, jitter=5 * MS)
EVERYTHING = RoutingFaults(0.05, 0.05, 100 * MS, 8 * SECOND, 6 * SECOND, 6 * SECOND, 1 * SECOND, late=0.02)


def live_through_all(harness: RouterHarness, faults: RoutingFaults, *topologies: Topology) -> None:
    """Lives through these faults in every network, or in these, several times."""
    for topology in topologies or harness.topologies:
        for seed in range(harness.seeds):
            live_through(harness, topology, seed, faults)


class SafetyTests(RouterFixtures):
    """C1, C2, C4, C5, C7 and C9 under random schedules."""

    def test_nothing_goes_wrong(self, harness: RouterHarness) -> None:
        """Events, wants, holds, publishers: everything at once, and all of it well."""
        live_through_all(harness, RoutingFaults())

    def test_links_go_wrong(self, harness: RouterHarness) -> None:
        """Links go down and come back; they lose, repeat and reorder too."""
        live_through_all(harness, BAD_LINKS, *linked(harness))

    def test_interest_changes(self, harness: RouterHarness) -> None:
        """Subscriptions come and go all the time: no silence is filtered by another interest than its stamp says."""
        live_through_all(harness, RESTLESS)

    def test_interest_changes_while_links_go_wrong(self, harness: RouterHarness) -> None:
        """Changes are lost and overtaken: none may be applied over a hole."""
        live_through_all(harness, CHANGING_ON_BAD_LINKS, *linked(harness))

    def test_routers_vanish(self, harness: RouterHarness) -> None:
        """A router is replaced by one that knows nothing: that costs time, and nothing else."""
        live_through_all(harness, VANISHING)

    def test_brokers_crash(self, harness: RouterHarness) -> None:
        """A broker is gone for a while, and comes back with what was durable."""
        live_through_all(harness, CRASHING)

    def test_everything_goes_wrong(self, harness: RouterHarness) -> None:
        """All of it together."""
        live_through_all(harness, EVERYTHING)
