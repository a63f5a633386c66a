"""The tree of cells: what is no tree is refused, and who is next on the way to whom (protocol: cells)."""

from __future__ import annotations

import pytest

from gapless.core.network.facts import NetworkMap, NetworkNode
from gapless.errors import ConfigurationError
from gapless_routing.knowledge.cells import Cells
from unit.gapless_routing.knowledge.net import CHAIN, DIAMOND, FORK, PHB, SHB, network_map


def test_a_circle_of_cells_is_refused_wherever_one_stands() -> None:
    circle = network_map({"P": {"p": PHB}, "M": {"i": ()}, "S": {"s": SHB}}, "p-i", "i-s", "s-p")

    for broker in circle.nodes:
        with pytest.raises(ConfigurationError, match="the cells form a circle"):
            Cells(circle, broker)


def test_a_circle_of_brokers_is_none_of_cells() -> None:
    assert Cells(DIAMOND, "p").toward("S") == "M"


def test_a_cell_to_which_no_links_lead_is_refused_from_both_sides() -> None:
    apart = network_map({"P": {"p": PHB}, "S": {"s": SHB}, "T": {"t": SHB}}, "p-s")

    for broker, lost in (("p", "T"), ("t", "P")):
        with pytest.raises(ConfigurationError, match=f"no links lead from cell .* to cell {lost!r}"):
            Cells(apart, broker)


@pytest.mark.parametrize("role", ["phb", "shb"])
def test_a_role_in_a_cell_of_several_nodes_is_refused(role: str) -> None:
    network = network_map({"P": {"p": PHB}, "M": {"i": (role,), "j": ()}}, "p-i", "p-j", "i-j")

    with pytest.raises(ConfigurationError, match="cell 'M' has several nodes"):
        Cells(network, "p")


def test_a_broker_that_is_not_on_the_map_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="broker 'x' is not on the map"):
        Cells(CHAIN, "x")


def test_a_broker_without_a_place_is_a_cell_of_its_own() -> None:
    nodes = {name: NetworkNode(frozenset(roles)) for name, roles in (("p", PHB), ("s", SHB))}
    cells = Cells(NetworkMap(nodes, (("p", "s"),)), "p")

    assert (cells.own, cells.neighbours, cells.linked) == ("p", ["s"], {"s": ["s"]})


def test_each_cell_is_in_one_direction() -> None:
    cells = Cells(FORK, "i")

    assert {cell: cells.toward(cell) for cell in "PST"} == {"P": "P", "S": "S", "T": "T"}
    assert cells.toward("M") is None
    assert Cells(FORK, "p").behind("M") == ("M", "S", "T")
    assert Cells(FORK, "p").with_shbs_behind("M") == ["S", "T"]
    assert sorted(cells.away_from("P")) == ["S", "T"]


def test_mates_are_no_neighbours_and_their_neighbours_are_mine() -> None:
    network = network_map({"P": {"p": PHB}, "M": {"i": (), "j": ()}, "S": {"s": SHB}}, "p-i", "i-j", "j-s")
    cells = Cells(network, "i")

    assert cells.mates == ["j"]
    assert cells.neighbours == ["P", "S"]
    assert cells.linked == {"P": ["p"]}, "only the mate should have a link into S"
