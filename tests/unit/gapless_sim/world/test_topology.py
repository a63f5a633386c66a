"""Networks of cells: what the seed draws, how they are written, and what a path is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gapless_sim.world.choices import Choices
from gapless_sim.world.options import NetworkFaults, Options
from gapless_sim.world.topology import (
    SINGLES,
    Topology,
    draw_nodes,
    draw_topology,
    pair_of,
    with_replacements,
    with_topology,
)

DIAMOND = "phb1:phb ib1+ib2<phb1 ib3+ib4<ib1 shb1:shb<ib3"


def drawn(seed: int) -> Topology:
    return draw_topology(Choices(seed).stream("topology"))


def without(*dead: tuple[str, str], topology: Topology) -> bool:
    """Whether a path leads from the SHB to the PHB without these links."""
    return topology.has_path(
        "shb1", "phb1", lambda one, other: topology.has_link(one, other) and pair_of(one, other) not in dead
    )


def test_a_seed_draws_one_to_three_phbs_and_one_to_four_shbs_and_cells_of_one_to_three() -> None:
    roles = [list(drawn(seed).roles.values()) for seed in range(200)]

    assert {sum("phb" in hosted for hosted in each) for each in roles} == {1, 2, 3}
    assert {sum("shb" in hosted for hosted in each) for each in roles} == {1, 2, 3, 4}
    assert {len(cell.nodes) for seed in range(200) for cell in drawn(seed).cells.values()} == {1, 2, 3}


def test_some_shbs_stand_between_others_and_some_share_their_node_with_a_phb() -> None:
    networks = [drawn(seed) for seed in range(100)]

    assert any(
        "shb" in network.cells[cell.up].roles for network in networks for cell in network.cells.values() if cell.up
    )
    assert any(hosted == ("phb", "shb") for network in networks for hosted in network.roles.values())


def test_what_is_written_is_read_again() -> None:
    for seed in range(50):
        assert str(Topology.parse(str(drawn(seed)))) == str(drawn(seed))
    assert str(Topology.parse(DIAMOND)) == DIAMOND


@pytest.mark.parametrize(
    "text", ["phb1:phb shb1:shb", "phb1:phb shb1:shb<ib1", "phb1<phb1", "ib1+phb1:phb", "ib1 ib2+ib1<ib1"]
)
def test_what_is_no_tree_of_cells_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"the (cell|node) "):
        Topology.parse(text)


def test_there_are_links_between_neighbouring_cells_and_between_mates() -> None:
    network = Topology.parse(DIAMOND)

    assert set(network.links) == {
        ("ib1", "phb1"), ("ib2", "phb1"), ("ib1", "ib2"), ("ib3", "ib4"), ("ib3", "shb1"), ("ib4", "shb1"),
        ("ib1", "ib3"), ("ib1", "ib4"), ("ib2", "ib3"), ("ib2", "ib4"),
    }  # fmt: skip
    assert network.has_link("phb1", "ib1")
    assert not network.has_link("phb1", "ib3")


def test_the_cells_between_two_nodes_are_those_of_the_tree() -> None:
    network = Topology.parse("phb1:phb ib1<phb1 shb1:shb<ib1 shb2:shb<ib1 phb2:phb<phb1")

    assert [cell.name for cell in network.cells_between("shb1", "shb2")] == ["shb1", "ib1", "shb2"]
    assert [cell.name for cell in network.cells_between("shb1", "phb2")] == ["shb1", "ib1", "phb1", "phb2"]
    assert [cell.name for cell in network.cells_between("phb1", "shb1")] == ["phb1", "ib1", "shb1"]
    assert [cell.name for cell in network.cells_between("phb1", "phb1")] == ["phb1"]


def test_a_path_may_go_sideways_once_in_each_cell() -> None:
    network = Topology.parse(DIAMOND)
    one_way_left = [("ib1", "ib3"), ("ib1", "ib4"), ("ib2", "phb1"), ("ib2", "ib4"), ("ib3", "shb1")]

    assert without(*one_way_left, topology=network)  # shb1, ib4, ib3, ib2, ib1, phb1
    assert not without(*one_way_left, ("ib1", "ib2"), topology=network)
    assert not without(*one_way_left, ("ib3", "ib4"), topology=network)


def test_two_hops_sideways_in_one_cell_are_no_path() -> None:
    network = Topology.parse("phb1:phb ib1+ib2+ib3<phb1 shb1:shb<ib1")
    dead = [("ib2", "phb1"), ("ib3", "phb1"), ("ib1", "shb1"), ("ib2", "shb1"), ("ib1", "ib3")]

    assert not without(*dead, topology=network)
    assert without(*dead[:-1], topology=network)


def test_links_of_a_tree_stay_whole_where_nothing_happens_to_the_network() -> None:
    calm = Options(4, router="knowledge")
    rough = Options(4, router="knowledge", network=NetworkFaults(loss=0.1))

    assert with_topology(calm, Choices(4), "tree").network == calm.network
    assert any(with_topology(rough, Choices(seed), "tree").network.dead for seed in range(10))


def test_in_some_trees_shbs_are_replaced_and_in_no_scenario() -> None:
    plain = Options(4, router="knowledge")
    churning = with_topology(plain, Choices(4), "tree")
    about = with_topology(replace(plain, scenario="newcomer", shbs=2, workload="scenarios"), Choices(4), "tree")

    def share(options: Options) -> int:
        return sum(with_replacements(options, Choices(seed).stream("it")).replacements > 0 for seed in range(100))

    assert 0 < share(churning) < 50
    assert share(about) == share(plain) == 0


# ------------------------------------------------------------------------------------ single nodes

CHAIN = "phb1:phb ib1<phb1 ib2<ib1 shb1:shb<ib2"


def test_a_seed_draws_trees_of_single_nodes_in_chains_around_hubs_and_any_other() -> None:
    networks = [draw_nodes(Choices(seed).stream("topology")) for seed in range(200)]
    hung = [[sum(cell.up == name for cell in each.cells.values()) for name in each.cells] for each in networks]
    roles = [list(each.roles.values()) for each in networks]

    assert any(len(counts) > 4 and max(counts) == 1 for counts in hung)
    assert any(len(counts) > 4 and counts[0] == len(counts) - 1 for counts in hung)
    assert any(1 < max(counts) < len(counts) - 1 for counts in hung)
    assert {sum("phb" in hosted for hosted in each) for each in roles} == {1, 2, 3}
    assert {sum("shb" in hosted for hosted in each) for each in roles} == {1, 2, 3, 4}
    assert {sum(not hosted for hosted in each) for each in roles} == set(range(7))
    assert any(each.roles[name] == () for each in networks for name in list(each.cells)[:1])
    assert all(str(Topology.parse(str(each), SINGLES)) == str(each) for each in networks)


def test_single_nodes_have_no_place_and_any_two_may_have_a_link() -> None:
    network = Topology.parse(CHAIN, SINGLES)

    assert {node.place for node in network.map().nodes.values()} == {""}
    assert set(network.map().links) == {("ib1", "phb1"), ("ib1", "ib2"), ("ib2", "shb1")}
    assert network.may_link("phb1", "shb1")
    assert not network.may_link("phb1", "shb2")
    assert not Topology.parse(CHAIN).may_link("phb1", "shb1")


def test_no_two_nodes_are_of_one_cell_where_all_are_single() -> None:
    with pytest.raises(ValueError, match="several nodes, and all are to be single"):
        Topology.parse(DIAMOND, SINGLES)


@pytest.mark.parametrize(
    ("delta", "away", "there"),
    [
        (0, [], True),
        (0, ["ib1"], False),
        (1, ["ib1"], True),
        (1, ["ib2"], True),
        (1, ["ib1", "ib2"], False),
        (2, ["ib1", "ib2"], True),
    ],
)
def test_a_path_passes_over_as_many_nodes_in_a_row_as_its_routers_stand(
    delta: int, away: list[str], *, there: bool
) -> None:
    network = Topology(list(Topology.parse(CHAIN).cells.values()), SINGLES, delta=delta)

    assert network.has_path("shb1", "phb1", lambda one, other: not {one, other} & {*away}) is there


def test_routers_have_the_networks_that_they_are_made_for() -> None:
    drawn = {router: with_topology(Options(1, router=router), Choices(1), None) for router in ("local", "knowledge")}
    single = with_topology(Options(1, router="knowledge"), Choices(1), SINGLES)

    assert {router: options.topology for router, options in drawn.items()} == {"local": "", "knowledge": "tree"}
    assert (single.topology, single.link_cores) == (SINGLES, True)
    assert str(Topology.parse(single.cells, SINGLES)) == single.cells
