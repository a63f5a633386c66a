"""The map of the network changes while it runs: nodes come, go and move, and read the new one when they start again."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.network.facts import NetworkNode
from gapless_sim.faults.map_changes import MapChanges
from gapless_sim.search.campaign import Plan
from gapless_sim.world.options import SECOND, NetworkFaults
from gapless_sim.world.topology import pair_of
from gapless_sim.world.world_builder import add_intermediate
from unit.gapless_sim.worlds import Small

CELLS = "phb1:phb ib1+ib2+ib3<phb1 ib4<phb1 shb1:shb<ib1"


class Changing(Small):
    """A tree whose operator does what a test says."""

    def __init__(self, what: str, cells: str = CELLS) -> None:
        faults = NetworkFaults(bytewise=0.0)
        super().__init__(
            router="knowledge", topology="tree", cells=cells, link_cores=True, clients=2, rate=0.0, network=faults
        )
        self.begin()
        self.changes = MapChanges(self.world, add_intermediate)
        self._what = what

    def strike(self) -> None:
        """The operator changes the map: in this way."""
        draws = self.changes._draws
        self.changes._draws = _Picks(draws, self._what)  # type: ignore[assignment]
        self.changes.strike()
        self.changes._draws = draws

    def linked(self) -> set[tuple[str, str]]:
        return {pair_of(*(end.name for end in link.ends)) for link in self.world.network.links_up()}


class _Picks:
    """Draws, of which the first one is decided."""

    def __init__(self, draws: Any, first: str) -> None:
        self._draws = draws
        self._first = first

    def pick(self, choices: Any) -> Any:
        return self._first if self._first in choices else self._draws.pick(choices)

    def draw(self, count: int) -> int:
        return int(self._draws.draw(count))


@pytest.mark.parametrize(("what", "nodes"), [("an IB came", {"+1"}), ("an IB went", {"-1"}), ("an SHB moved", set())])
def test_in_the_end_all_nodes_have_the_map_and_its_links_and_nothing_is_lost(what: str, nodes: set[str]) -> None:
    small = Changing(what)
    before = small.world.topology
    small.strike()
    after = small.world.topology
    assert before is not None
    assert after is not None
    assert str(after) != str(before)
    assert len(after.cell_of) - len(before.cell_of) == sum(map(int, nodes))
    for _ in range(8):
        small.publish(1)
        small.rest(1)
    small.rest(15)

    assert small.linked() == set(after.links)
    assert {each.topology for each in small.world.brokers.values() if each.running} == {after}
    assert small.told == list(range(8))


def test_while_nodes_have_different_maps_they_work_together() -> None:
    small = Changing("an IB came")
    small.strike()
    seen = set()
    for _ in range(12):
        small.world.run_until(small.world.now + SECOND // 2)
        seen.add(len({str(broker.topology) for broker in small.world.brokers.values() if broker.running}))
        if seen == {1, 2}:
            small.publish(1)
    assert seen == {1, 2}
    small.rest(12)

    assert small.told
    assert small.told == list(range(len(small.told)))
    assert small.world.hits["map.a node with an older map was there"]


def test_one_change_is_over_before_the_next_begins_and_faults_that_stop_end_it() -> None:
    small = Changing("an IB went")
    small.strike()
    first = small.world.topology
    small.strike()
    assert small.world.topology is first

    small.changes.finish()
    assert all(broker.topology is first for broker in small.world.brokers.values())
    small.rest(10)
    assert first is not None
    assert small.linked() == set(first.links)


def test_a_node_that_went_is_not_started_again() -> None:
    small = Changing("an IB went")
    small.strike()
    small.rest(10)
    gone = [broker for broker in small.world.brokers.values() if broker.removed]
    for broker in gone:
        broker.boot()

    assert [broker.name for broker in gone] in (["ib2"], ["ib3"])
    assert not gone[0].running


def test_a_router_is_given_the_map_that_its_node_has_read() -> None:
    small = Changing("an IB came")
    small.strike()
    small.rest(10)
    new = list(small.world.brokers.values())[-1]

    assert new.loaded.network.nodes[new.name] == NetworkNode(frozenset(), (new.topology.cell_of[new.name].name,))  # type: ignore[union-attr]
    assert all(new.name in broker.loaded.network.nodes for broker in small.world.brokers.values())


def test_seeds_draw_changes_where_an_operator_is_among_the_faults() -> None:
    def drawn(*faults: str) -> list[float]:
        plan = Plan(("knowledge",), faults=faults)
        return [plan.options(seed, "knowledge").map_changes for seed in range(60)]

    assert any(drawn("network", "operator"))
    assert not all(drawn("network", "operator"))
    assert not any(drawn("network", "disk", "process", "clock"))
    assert not any(Plan(("hostile",)).options(seed, "hostile").map_changes for seed in range(30))
