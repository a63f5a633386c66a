"""A network of two hundred brokers under `knowledge`: what is published comes everywhere where it is wanted.

It is the suite's network without its judge, with latencies and processors. How long it takes is not asserted.
"""

from __future__ import annotations

import pytest

from conformance.test_knowledge import KnowledgeHarness
from gapless.core.network.facts import BrokerId
from gapless_testing.routing.clients import columns
from gapless_testing.routing.faults import MS
from gapless_testing.routing.network import Pace
from gapless_testing.routing.topology import PHB, SHB, Topology
from gapless_testing.routing.world import FILTERS, RouterWorld

BROKERS, BRANCHES = 200, 14
WIDE = Pace(latency=5 * MS, spread=MS, judged=False, frame_time=20_000, byte_time=5.0, frames_max=200)
WANTED = FILTERS[0]
"""All fish, and nothing else is published; no other filter takes any of it."""


def large() -> tuple[Topology, dict[BrokerId, int]]:
    """A tree of single brokers, fourteen on each: PHBs at the top and on the first branch, SHBs at half of the rim.

    And when each starts: those at the rim before the others, so that each says once whom it reaches.
    """
    names = [f"n{number}" for number in range(BROKERS)]
    above = {names[number]: names[(number - 1) // BRANCHES] for number in range(1, BROKERS)}
    hung_on = {*above.values()}
    rim = [name for name in names if name not in hung_on]
    brokers = dict.fromkeys(names, frozenset[str]())
    brokers |= dict.fromkeys(names[:2], frozenset({PHB})) | dict.fromkeys(rim[::2], frozenset({SHB}))
    starts = {name: 200 * MS if name == names[0] else 100 * MS for name in names if name in hung_on}
    return Topology("large", brokers, tuple((up, name) for name, up in above.items())), starts


@pytest.mark.timeout(180)
def test_what_is_published_comes_to_all_of_two_hundred_brokers() -> None:
    topology, starts = large()
    world = RouterWorld(KnowledgeHarness(), topology, 1, busy=False, pace=WIDE)
    for client in world.clients:
        client.stopped = True
    world.start(starts)
    for _ in range(80):
        world.run(0.1)
        for pubend in (pubend for pubend in world.pubends if pubend.host.up):
            pubend.publish(columns("fish", 3, 1))
    world.run(2)

    assert (len(topology.brokers), len(world.shbs)) == (BROKERS, 93)
    counted = 0
    for pubend in world.pubends:
        assert len(pubend.ticks) > 70
        for shb in (shb for shb in world.shbs if pubend.pubend in shb.streams):
            following = shb.streams[pubend.pubend]
            due = [tick for tick in pubend.ticks if tick > following.start] if shb.filters == {1: WANTED} else []
            assert following.head >= pubend.ticks[-1], shb.shb
            assert following.received == due, shb.shb
            counted += len(due) > 0
    assert counted > 16, "most of those that want fish were counted while there was some"
