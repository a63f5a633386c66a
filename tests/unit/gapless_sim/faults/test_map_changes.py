"""The map of the network changes while it runs: nodes come, go and move, and read the new one when they start again."""

from __future__ import annotations

from gapless_sim.faults.map_changes import MapChanges
from gapless_sim.recording.trace import Trace
from gapless_sim.search.campaign import Plan
from gapless_sim.world.choices import Choices
from gapless_sim.world.options import Options
from gapless_sim.world.topology import SINGLES, Topology
from gapless_sim.world.world_builder import add_intermediate, build


def test_seeds_draw_changes_where_an_operator_is_among_the_faults() -> None:
    def drawn(*faults: str) -> list[float]:
        plan = Plan(("knowledge",), faults=faults)
        return [plan.options(seed, "knowledge").map_changes for seed in range(60)]

    assert any(drawn("network", "operator"))
    assert not all(drawn("network", "operator"))
    assert not any(drawn("network", "disk", "process", "clock"))
    assert not any(Plan(("hostile",)).options(seed, "hostile").map_changes for seed in range(30))


def test_of_single_nodes_one_comes_anywhere_and_one_at_the_rim_goes() -> None:
    cells = "ib1 phb1:phb<ib1 ib2<phb1 shb1:shb<ib1"
    world = build(Options(1, router="knowledge", topology=SINGLES, cells=cells, clients=0), Choices(1, {}), Trace())
    changes, before = MapChanges(world, add_intermediate), world.topology
    assert before is not None

    gained, lost = changes._gain(before), changes._lose(before)

    assert gained is not None
    assert lost is not None
    assert (gained.kind, lost.kind) == (SINGLES, SINGLES)
    assert len(gained.cell_of) == 5
    assert str(lost) == "ib1 phb1:phb<ib1 shb1:shb<ib1"
    assert changes._lose(Topology.parse("ib1 phb1:phb<ib1 shb1:shb<ib1", SINGLES)) is None
