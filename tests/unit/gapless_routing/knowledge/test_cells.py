"""The tree of cells: who is next on the way to whom (protocol: cells)."""

from __future__ import annotations

from gapless.core.network.facts import NetworkMap, NetworkNode
from gapless_routing.knowledge.cells import Cells
from unit.gapless_routing.knowledge.net import DIAMOND, FORK, PHB, SHB, network_map


def test_a_circle_of_brokers_is_none_of_cells() -> None:
    assert Cells(DIAMOND, "p").toward("S") == "M"


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
