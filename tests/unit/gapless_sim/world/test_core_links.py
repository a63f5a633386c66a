"""The link cores of production in a simulated tree: links come up, break, are cut, full and redialed."""

from __future__ import annotations

from gapless.core.network.facts import LINK_HIGH
from gapless_sim.world.broker import SimBroker
from gapless_sim.world.core_links import SIZES, CoreNetwork, NodeLinks
from gapless_sim.world.options import MILLISECOND, SECOND, NetworkFaults
from gapless_sim.world.topology import pair_of
from unit.gapless_sim.worlds import Small

CELLS = "phb1:phb ib1+ib2<phb1 shb1:shb<ib1"


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

    assert said[0] >= 512 * (60_000 - SIZES.underway) > LINK_HIGH
    assert said[-1] < said[0]
    assert small.world.network.links_up() == before, "each part that comes shows that it lives"


def test_a_router_that_hangs_up_is_not_linked_again() -> None:
    small = tree()
    link = next(link for link in small.world.network.links_up() if {end.name for end in link.ends} == {"ib1", "ib2"})
    for end, number in zip(link.ends, link.numbers, strict=True):
        small.world.network.hang_up(end, number)
        links_of(end).flush()
    small.world.run_until(small.world.now + 50 * MILLISECOND)

    assert ("ib1", "ib2") not in links(small)
    assert network_of(small).links_up()
