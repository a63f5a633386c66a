"""The links of a tree: dead ones, cut ones, stalled and slow ones, and what the link layer does about them."""

from __future__ import annotations

import pytest

from gapless_sim.faults.link_faults import REDIAL
from gapless_sim.faults.schedule import Faults
from gapless_sim.oracles.reachability import Reach
from gapless_sim.world.options import MILLISECOND, NetworkFaults
from gapless_sim.world.topology import pair_of
from unit.gapless_sim.oracles.model_fixture import ModelFixture
from unit.gapless_sim.worlds import Small

CELLS = "phb1:phb ib1+ib2<phb1 shb1:shb<ib1"


def tree(cells: str = CELLS, **network: float) -> Small:
    """A small network that runs, of which one client consumes and the other one publishes."""
    faults = NetworkFaults(bytewise=0.0, **network)  # type: ignore[arg-type]
    return Small(router="knowledge", topology="tree", cells=cells, clients=2, network=faults).begin()


def links(small: Small) -> set[tuple[str, str]]:
    return {pair_of(*(end.name for end in link.ends)) for link in small.world.network.links_up()}


def delivers(small: Small) -> bool:
    """Whether an event that is published now arrives."""
    before = len(small.told)
    small.publish(1)
    small.rest(8)
    return len(small.told) > before


def test_no_link_dies_without_which_a_path_would_be_missing() -> None:
    small = tree()
    layer = small.world.network.layer
    assert layer is not None

    assert layer.kill(("ib1", "phb1"))
    assert not layer.kill(("ib2", "phb1"))
    assert not layer.kill(("ib1", "phb1"))  # dead already
    assert list(layer.dead) == [("ib1", "phb1")]


@pytest.mark.parametrize("kind", ["stalls", "slow_phases", "one_ways", "deaths"])
def test_what_strikes_links_now_and_then_stops_when_faults_do(kind: str) -> None:
    rates = NetworkFaults(bytewise=0.0, **{kind: 5.0})  # type: ignore[arg-type]
    small = Small(router="knowledge", topology="tree", cells=CELLS, clients=2, network=rates)
    faults = Faults(small.world)
    faults.begin()
    small.begin()
    small.rest(10)
    assert sum(count for name, count in small.world.hits.items() if name.startswith("topology.link")) >= 2

    faults.stop()
    small.rest(10)
    assert [link.rates for link in small.world.network.links_up() if any(link.rates)] == []
    assert delivers(small)


def test_some_links_are_dead_from_the_beginning() -> None:
    small = Small(router="knowledge", topology="tree", cells=CELLS, network=NetworkFaults(dead=0.9))
    Faults(small.world).begin()
    layer = small.world.network.layer

    assert layer is not None
    assert 1 <= len(layer.dead) <= 3
    assert small.world.hits["topology.link dead from the beginning"] == len(layer.dead)


def test_brokers_of_a_tree_meet_over_any_path_that_is_left() -> None:
    fixture = ModelFixture(router="knowledge", topology="tree", cells=CELLS)
    reach, network = Reach(fixture.model), fixture.world.network

    network.cut("shb1", "ib1")
    assert reach.brokers_meet("shb1", "phb1")
    assert network.layer is not None
    network.layer.dead["ib2", "phb1"] = 0
    assert reach.brokers_meet("shb1", "phb1")  # sideways
    network.layer.dead["ib1", "ib2"] = 0
    assert not reach.brokers_meet("shb1", "phb1")
    assert not reach.brokers_meet("shb1", "ib1")
    assert reach.brokers_meet("ib1", "phb1")


def test_a_link_that_neither_router_wishes_for_goes_down_and_is_not_dialed_again() -> None:
    """Where a model stands in for link cores. The routers dial again when they hear of it, later than that does."""
    small = tree("phb1:phb ib1<phb1 shb1:shb<ib1")
    network, brokers = small.world.network, small.world.brokers
    network.unwish(brokers["phb1"], "ib1")
    small.rest(2)
    assert ("ib1", "phb1") in links(small)
    network.unwish(brokers["ib1"], "phb1")
    small.world.run_until(small.world.now + REDIAL + MILLISECOND)

    assert ("ib1", "phb1") not in links(small)


def test_a_link_that_one_router_hangs_up_comes_back_if_the_other_wishes_for_it() -> None:
    small = tree("phb1:phb ib1<phb1 shb1:shb<ib1")
    network = small.world.network
    link = next(link for link in network.links_up() if {end.name for end in link.ends} == {"phb1", "ib1"})

    network.hang_up(link.ends[0], link.numbers[0])
    small.world.run_until(small.world.now + REDIAL + MILLISECOND)

    assert ("ib1", "phb1") in links(small)
    assert link not in network.links_up()
