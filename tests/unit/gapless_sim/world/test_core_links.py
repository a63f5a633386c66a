"""The link cores of production in a simulated tree: links come up, break, are cut, full and redialed."""

from __future__ import annotations

import pytest

from gapless.core.network.facts import LINK_HIGH
from gapless_sim.world.broker import SimBroker
from gapless_sim.world.core_links import SIZES, CoreNetwork, NodeLinks
from gapless_sim.world.network import WEIGHT
from gapless_sim.world.options import MILLISECOND, SECOND, NetworkFaults
from gapless_sim.world.topology import pair_of
from unit.gapless_sim.worlds import Small

CELLS = "phb1:phb ib1+ib2<phb1 shb1:shb<ib1"
LINKS = {("ib1", "phb1"), ("ib2", "phb1"), ("ib1", "ib2"), ("ib1", "shb1"), ("ib2", "shb1")}


def tree(cells: str = CELLS, **network: float) -> Small:
    faults = NetworkFaults(bytewise=0.0, **network)  # type: ignore[arg-type]
    small = Small(router="knowledge", topology="tree", cells=cells, link_cores=True, clients=2, network=faults)
    return small.begin()


def network_of(small: Small) -> CoreNetwork:
    assert isinstance(small.world.network, CoreNetwork)
    return small.world.network


def links_of(broker: SimBroker) -> NodeLinks:
    assert broker.links is not None
    return broker.links


def links(small: Small) -> set[tuple[str, str]]:
    """The pairs of nodes between which both ends say that a link is up."""
    up = [pair_of(*(end.name for end in link.ends)) for link in small.world.network.links_up()]
    assert len(up) == len(set(up)), "two nodes have one link at most"
    return set(up)


def delivers(small: Small, seconds: int = 5) -> bool:
    before = len(small.told)
    small.publish(1)
    small.rest(seconds)
    return len(small.told) > before


def test_all_links_of_the_map_come_up_although_both_ends_dial() -> None:
    small = tree()

    assert links(small) == LINKS
    assert small.world.hits["links.dials crossed"]
    assert delivers(small)


def test_a_node_that_loses_its_power_is_missed_after_three_beats() -> None:
    small = tree()
    ib1, peer = small.world.brokers["ib1"], small.world.brokers["phb1"]
    small.world.run_until(small.world.now + 700 * MILLISECOND)
    ib1._come_back = lambda: None  # type: ignore[method-assign]
    ib1.crash()
    small.world.run_until(small.world.now + SECOND)
    assert len(links_of(peer).connections) == 2, "nobody has said that it is gone"

    small.world.run_until(small.world.now + 1500 * MILLISECOND)
    assert len({*links_of(peer).connections.values()}) <= 2
    assert links(small) == {pair for pair in LINKS if "ib1" not in pair}
    assert small.world.hits["links.nothing was heard"]


def test_a_node_that_starts_again_is_linked_again_as_another_process() -> None:
    small = tree()
    small.world.brokers["ib1"].kill()
    small.rest(1)
    assert links(small) == LINKS
    small.world.brokers["ib2"].stop()
    small.rest(8)

    assert links(small) == LINKS
    assert small.world.hits["links.peer stopped in order"]
    assert delivers(small)


@pytest.mark.parametrize("way", [("phb1", "ib1"), ("ib1", "phb1")])
def test_a_link_that_works_one_way_goes_down_and_comes_back(way: tuple[str, str]) -> None:
    small = tree()
    small.world.network.cut(*way)
    small.rest(3)
    assert links(small) == LINKS - {("ib1", "phb1")}
    assert small.world.hits["links.nothing was heard"]
    assert delivers(small), "over the other IB"

    small.world.network.heal(*way)
    small.rest(12)
    assert links(small) == LINKS


def test_a_short_cut_breaks_no_link_and_loses_nothing() -> None:
    small = tree(CELLS.replace("+ib2", ""))
    before = small.world.network.links_up()
    small.world.network.cut("phb1", "ib1")
    small.publish(3)
    assert small.told == []
    small.world.run_until(small.world.now + 500 * MILLISECOND)
    small.world.network.heal("phb1", "ib1")
    small.rest(1)

    assert small.told == [0, 1, 2]
    assert small.world.network.links_up() == before


def test_a_dead_link_is_found_out_and_never_comes_back() -> None:
    small = tree()
    layer = small.world.network.layer
    assert layer is not None
    assert layer.kill(("ib1", "phb1"))
    small.rest(12)

    assert links(small) == LINKS - {("ib1", "phb1")}
    assert delivers(small)


def test_a_connection_that_breaks_is_dialed_again() -> None:
    small = tree()
    small.world.network.flap_some(lambda _: 0)
    assert small.world.hits["net.broker link down"] == 1
    small.rest(5)

    assert links(small) == LINKS


def test_what_a_slow_link_holds_is_said_to_wait_and_leaves() -> None:
    small = tree(CELLS.replace("+ib2", ""))
    link = next(link for link in small.world.network.links_up() if {end.name for end in link.ends} == {"ib1", "shb1"})
    index = next(index for index, end in enumerate(link.ends) if end.name == "shb1")
    source, number = link.ends[1 - index], link.numbers[1 - index]
    link.rates[index] = 20_000
    before = small.world.network.links_up()
    said: list[int] = []

    def say(number: int, pending: int) -> None:
        assert number == link.numbers[1 - index]
        said.append(pending)

    source.on_broker_pending = say  # type: ignore[method-assign]
    small.world.network.to_broker(source, number, bytes(60_000), urgent=False)
    links_of(source).flush()
    small.world.run_until(small.world.now + SECOND)

    assert said[0] >= WEIGHT * (60_000 - SIZES.underway) > LINK_HIGH
    assert said[-1] < said[0]
    assert small.world.network.links_up() == before, "each part that comes shows that it lives"


def test_a_process_that_stands_still_takes_everything_later_in_order() -> None:
    small = tree(CELLS.replace("+ib2", ""))
    before = small.world.network.links_up()
    small.world.brokers["ib1"].pause(900 * MILLISECOND)
    small.publish(5, 5)
    assert small.told == []
    small.rest(2)

    assert small.told == list(range(10))
    assert small.world.network.links_up() == before


def test_payloads_of_earlier_connections_mean_nothing() -> None:
    small = tree(late=1.0)
    small.publish(5)
    for _ in range(3):
        small.world.network.flap_some(lambda count: count - 1)
        small.rest(6)
        for _ in range(20):
            small.world.network.bring_leftovers()
            small.world.run_until(small.world.now + 100 * MILLISECOND)
    assert small.world.hits["net.late between brokers"] > 20
    small.rest(12)

    assert links(small) == LINKS
    assert delivers(small)
    assert small.told == sorted(set(small.told))


def test_a_router_that_hangs_up_is_not_linked_again() -> None:
    small = tree()
    link = next(link for link in small.world.network.links_up() if {end.name for end in link.ends} == {"ib1", "ib2"})
    for end, number in zip(link.ends, link.numbers, strict=True):
        small.world.network.hang_up(end, number)
        links_of(end).flush()
    small.world.run_until(small.world.now + 50 * MILLISECOND)

    assert ("ib1", "ib2") not in links(small)
    assert network_of(small).links_up()
