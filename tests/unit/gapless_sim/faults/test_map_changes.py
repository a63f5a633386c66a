"""The map of the network changes while it runs: nodes come, go and move, and read the new one when they start again."""

from __future__ import annotations

from typing import Any

from gapless_sim.faults.map_changes import MapChanges
from gapless_sim.search.campaign import Plan
from gapless_sim.world.options import NetworkFaults
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


def test_seeds_draw_changes_where_an_operator_is_among_the_faults() -> None:
    def drawn(*faults: str) -> list[float]:
        plan = Plan(("knowledge",), faults=faults)
        return [plan.options(seed, "knowledge").map_changes for seed in range(60)]

    assert any(drawn("network", "operator"))
    assert not all(drawn("network", "operator"))
    assert not any(drawn("network", "disk", "process", "clock"))
    assert not any(Plan(("hostile",)).options(seed, "hostile").map_changes for seed in range(30))
