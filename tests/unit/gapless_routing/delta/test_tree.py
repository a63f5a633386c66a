"""Ways, distances and sides of the map, against a search of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless.core.network.facts import NetworkMap, NetworkNode
from gapless_routing.delta.tree import Tree

ROLES = ((), ("phb",), ("shb",), ("phb", "shb"))


@st.composite
def networks(draw: st.DrawFn) -> NetworkMap:
    """Any tree of up to twelve nodes."""
    count = draw(st.integers(1, 12))
    names = [f"n{number}" for number in range(count)]
    links = tuple((names[draw(st.integers(0, number - 1))], names[number]) for number in range(1, count))
    return NetworkMap({name: NetworkNode(frozenset(draw(st.sampled_from(ROLES)))) for name in names}, links)


def way(network: NetworkMap, one: str, other: str, seen: frozenset[str] = frozenset()) -> list[str] | None:
    """The nodes from one to another."""
    if one == other:
        return [one]
    for link in network.links:
        if one in link:
            [beyond] = set(link) - {one}
            rest = way(network, beyond, other, seen | {one}) if beyond not in seen else None
            if rest is not None:
                return [one, *rest]
    return None


@given(networks(), st.integers(1, 4))
def test_all_that_is_known_of_the_map_is_as_it_is(network: NetworkMap, reach: int) -> None:
    for broker in network.nodes:
        tree = Tree(network, broker, reach)
        ways = {to: way(network, broker, to) or [] for to in network.nodes}
        assert tree.near == {to: len(path) - 1 for to, path in ways.items() if 1 < len(path) <= reach + 1}
        for to, path in ways.items():
            assert list(tree.path(to)) == path[1:]
            assert tree.distance(to) == len(path) - 1
            if to == broker:
                continue
            assert tree.first(to) == path[1]
            assert tree.group_of(to) == path[min(reach, len(path) - 1)]
            behind = [other for other, way_there in ways.items() if to in way_there]
            assert list(tree.away(to)) == [other for other in behind if len(ways[other]) == len(path) + 1]
            for role in ("phb", "shb"):
                assert tree.has_beyond(to, role) == any(role in network.nodes[other].roles for other in behind)
            if len(path) - 1 <= reach:
                assert set(tree.beyond(to)) == {other for other in behind if len(ways[other]) <= reach + 1}
        for neighbour in tree.neighbours:
            others = [other for other, path in ways.items() if neighbour not in path]
            for role in ("phb", "shb"):
                assert tree.has_elsewhere(neighbour, role) == any(
                    role in network.nodes[other].roles for other in others
                )
