"""What is no tree of cells is refused in a sentence, wherever somebody asks (protocol: cells)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gapless.core.network.facts import NetworkMap, NetworkNode
from gapless.core.network.seam import RouterContext
from gapless.errors import ConfigurationError
from gapless.plugins import load
from gapless_routing.knowledge.router import KnowledgeRouter
from unit.gapless_routing.knowledge.net import CHAIN, DIAMOND, FORK, PAIR, PHB, SHB, network_map


def refusals(network: NetworkMap, options: Mapping[str, Any] = {}) -> list[str]:
    """What the plugin finds wrong with a map."""
    problems: list[str] = load("routing", "knowledge", "check_network")(network=network, options=options)
    return problems


def nowhere(*links: str, **roles: tuple[str, ...]) -> NetworkMap:
    """Nodes without a place."""
    nodes = {name: NetworkNode(frozenset(theirs)) for name, theirs in roles.items()}
    pairs = [link.split("-") for link in links]
    return NetworkMap(nodes, tuple((one, other) for one, other in pairs))


CIRCLE = network_map({"P": {"p": PHB}, "M": {"i": (), "j": ()}, "S": {"s": SHB}}, "p-i", "p-j", "i-j", "i-s", "s-p")
APART = network_map({"P": {"p": PHB}, "S": {"s": SHB}, "T": {"t": SHB}, "U": {"u": SHB}}, "p-s", "t-u")
CROWDED = network_map({"P": {"p": PHB}, "M": {"i": SHB, "j": ()}}, "p-i", "p-j", "i-j")
FORGOTTEN = NetworkMap({**PAIR.nodes, "i": NetworkNode()}, PAIR.links)


@pytest.mark.parametrize(
    "network",
    [CHAIN, FORK, DIAMOND, PAIR, nowhere(p=("phb", "shb")), nowhere("p-i", "i-s", p=PHB, i=(), s=SHB)],
    ids=["chain", "fork", "diamond", "pair", "one node", "each node a cell of its own"],
)
def test_hook_check_network_takes_a_tree_of_cells(network: NetworkMap) -> None:
    assert refusals(network) == []


@pytest.mark.parametrize(
    ("network", "sentences"),
    [
        (CIRCLE, ["the cells must be a tree, and these make a cycle: P – M – S – P"]),
        (
            nowhere("a-b", "b-c", "c-a", "c-d", "d-b", a=(), b=(), c=(), d=()),
            [
                "the cells must be a tree, and these make a cycle: a – b – c – a",
                "the cells must be a tree, and these make a cycle: b – c – d – b",
            ],
        ),
        (APART, ["no bundle leads from the cell 'P' to 'T', 'U': every cell must be connected"]),
        (
            CROWDED,
            ["the cell 'M' holds 'i', 'j', and 'i' has the role 'shb': a node with a role stands alone in its cell"],
        ),
        (FORGOTTEN, ["the node 'i' stands in no cell: give it one (cell = \"…\")"]),
    ],
    ids=["circle", "two circles", "apart", "a role among others", "no cell"],
)
def test_what_is_no_tree_of_cells_is_refused_with_a_sentence_for_each_thing(
    network: NetworkMap, sentences: list[str]
) -> None:
    assert refusals(network) == sentences
    for broker in network.nodes:
        with pytest.raises(ConfigurationError) as caught:
            KnowledgeRouter().start(0, RouterContext(broker, 1, network))
        assert str(caught.value).splitlines() == sentences, broker


def test_a_broker_that_is_not_on_the_map_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="broker 'x' is not on the map"):
        KnowledgeRouter().start(0, RouterContext("x", 1, CHAIN))


def test_options_that_all_nodes_have_in_common_are_checked() -> None:
    assert refusals(CHAIN, {"turn_bytes": 4096}) == []
    known = "cache_bytes, turn_bytes, turn_subscriptions, stamp_shbs"
    assert refusals(CIRCLE, {"turn_byte": 1}) == [
        *refusals(CIRCLE),
        f"routing: the router 'knowledge' has no option 'turn_byte'; it has {known}",
    ]
