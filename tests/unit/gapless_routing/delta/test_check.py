"""What is no tree of single brokers is refused in a sentence, wherever somebody asks (protocol: delta-router)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gapless.core.network.facts import NetworkMap, NetworkNode
from gapless.core.network.seam import RouterContext
from gapless.errors import ConfigurationError
from gapless.plugins import load
from gapless_routing.delta.router import DeltaRouter


def refusals(network: NetworkMap, options: Mapping[str, Any] = {}) -> list[str]:
    """What the plugin finds wrong with a map."""
    problems: list[str] = load("routing", "delta", "check_network")(network=network, options=options)
    return problems


def network_map(*links: str, **places: str) -> NetworkMap:
    """Nodes without roles, by the place of each; a link is named `a-b`."""
    pairs = [link.split("-") for link in links]
    return NetworkMap(
        {name: NetworkNode(frozenset(), place) for name, place in places.items()},
        tuple((one, other) for one, other in pairs),
    )


CHAIN = network_map("p-i", "i-j", "j-s", p="", i="", j="", s="")
HUB = network_map("h-p", "h-s", "h-t", "h-u", h="", p="", s="", t="", u="")
KNOWN = "delta, cache_bytes, interest_bytes, window_seconds, ring_wait_ms, forget_seconds, links_max"


def cycle(one: str, other: str) -> str:
    return (
        f"the link from {one!r} to {other!r} makes a cycle, and the nodes must be a tree: take out one of the links of"
        " the cycle"
    )


TOGETHER = (
    "the nodes 'i', 'j' stand together at 'm': under the router 'delta' each node stands alone; give each a cell of its"
    ' own, or none and links (["a", "b"]) to its neighbours'
)


@pytest.mark.parametrize(
    "network",
    [CHAIN, HUB, network_map(a=""), network_map("p-s", p="north", s="south")],
    ids=["chain", "hub", "one node", "each in a cell of its own"],
)
@pytest.mark.parametrize("options", [{}, {"delta": 1}, {"delta": 8}, {"delta": 2, "ring_wait_ms": 100}])
def test_hook_check_network_takes_a_tree_of_nodes(network: NetworkMap, options: Mapping[str, Any]) -> None:
    assert refusals(network, options) == []


@pytest.mark.parametrize(
    ("network", "sentences"),
    [
        (network_map("a-b", "b-c", "c-a", a="", b="", c=""), [cycle("c", "a")]),
        (
            network_map("a-b", "b-c", "c-a", "c-d", "d-b", a="", b="", c="", d=""),
            [cycle("c", "a"), cycle("d", "b")],
        ),
        (network_map("p-i", "p-j", "i-s", p="", i="m", j="m", s=""), [TOGETHER]),
        (
            network_map("p-s", "t-u", p="", s="", t="", u=""),
            [
                "no link leads from 'p' to 't': every node must be connected; add one",
                "no link leads from 'p' to 'u': every node must be connected; add one",
            ],
        ),
    ],
    ids=["a cycle", "two cycles", "a cell of two", "apart"],
)
def test_what_is_no_tree_of_nodes_is_refused_with_a_sentence_for_each_thing(
    network: NetworkMap, sentences: list[str]
) -> None:
    assert refusals(network) == sentences
    for broker in network.nodes:
        with pytest.raises(ConfigurationError) as caught:
            DeltaRouter().start(0, RouterContext(broker, 1, network))
        assert str(caught.value).splitlines() == sentences, broker


def test_who_has_more_neighbours_than_links_is_named() -> None:
    sentence = "the node 'h' has 4 neighbours, and links_max is 3: raise it"

    assert refusals(HUB, {"links_max": 4}) == []
    assert refusals(HUB, {"links_max": 3}) == [sentence]
    with pytest.raises(ConfigurationError) as caught:
        DeltaRouter().start(0, RouterContext("s", 1, HUB, {"links_max": 3}))
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"delta": 0}, "routing.options.delta is a number from 1 on, not 0"),
        ({"delta": 9}, "routing.options.delta is a number from 1 to 8, not 9: so many brokers in a row may be away"),
        ({"delta": "2"}, "routing.options.delta is a number from 1 on, not '2'"),
        ({"ring_wait_ms": 0}, "routing.options.ring_wait_ms is a number from 1 on, not 0"),
        ({"detla": 2}, f"the router 'delta' has no option 'detla'; it has {KNOWN}"),
        ({"turn_bytes": 4096}, f"the router 'delta' has no option 'turn_bytes'; it has {KNOWN}"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_beside_what_is_wrong_with_the_map(
    options: Mapping[str, Any], sentence: str
) -> None:
    circle = network_map("a-b", "b-c", "c-a", a="", b="", c="")

    assert refusals(CHAIN, options) == [f"routing: {sentence}"]
    assert refusals(circle, options) == [cycle("c", "a"), f"routing: {sentence}"]
    with pytest.raises(ConfigurationError) as caught:
        DeltaRouter().start(0, RouterContext("p", 1, CHAIN, options))
    assert str(caught.value) == sentence
    with pytest.raises(ConfigurationError) as opened:
        load("routing", "delta", "open_routing")(options=options)
    assert str(opened.value) == sentence


def test_a_broker_that_is_not_on_the_map_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="broker 'x' is not on the map"):
        DeltaRouter().start(0, RouterContext("x", 1, CHAIN))
