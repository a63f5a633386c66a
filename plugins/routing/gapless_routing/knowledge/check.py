"""Which maps are trees of cells, and what is wrong with another one, in words (protocol: cells)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gapless.core.network.facts import BrokerId, NetworkMap
from gapless.errors import ConfigurationError
from gapless_routing.knowledge.cells import Cell, cell_of


def wrong_cells(network: NetworkMap) -> Iterator[str]:
    """Yields a sentence for each thing that makes a map no tree of cells."""
    yield from _lost_nodes(network)
    cells = _cells_of(network)
    yield from _wrong_roles(network, cells)
    yield from _no_tree(network, cells)


def check_map(network: NetworkMap, broker: BrokerId) -> None:
    """Raises ConfigurationError when a map is no tree of cells with this broker in it: a line for each thing."""
    if broker not in network.nodes:
        raise ConfigurationError(f"broker {broker!r} is not on the map of the network")
    problems = list(wrong_cells(network))
    if problems:
        raise ConfigurationError("\n".join(problems))


def _cells_of(network: NetworkMap) -> dict[Cell, list[BrokerId]]:
    """The brokers of each cell, in the order of the map, but for those that stand nowhere."""
    lost = set(_without_cell(network))
    cells: dict[Cell, list[BrokerId]] = {}
    for broker in network.nodes:
        if broker not in lost:
            cells.setdefault(cell_of(network, broker), []).append(broker)
    return cells


def _without_cell(network: NetworkMap) -> list[BrokerId]:
    """The brokers without a place to which no link leads either: somebody has forgotten something."""
    linked = {broker for link in network.links for broker in link}
    nodes = network.nodes.items()
    return [broker for broker, node in nodes if not node.place and broker not in linked and len(nodes) > 1]


def _lost_nodes(network: NetworkMap) -> Iterator[str]:
    for broker in _without_cell(network):
        yield f'the node {broker!r} stands in no cell: give it one (cell = "…")'


def _wrong_roles(network: NetworkMap, cells: Mapping[Cell, Sequence[BrokerId]]) -> Iterator[str]:
    for cell, members in cells.items():
        for broker in members:
            roles = sorted(network.nodes[broker].roles)
            if roles and len(members) > 1:
                yield (
                    f"the cell {cell!r} holds {_list(members)}, and {broker!r} has the role {roles[0]!r}: a node"
                    " with a role stands alone in its cell"
                )


def _no_tree(network: NetworkMap, cells: Mapping[Cell, object]) -> Iterator[str]:
    neighbours: dict[Cell, list[Cell]] = {cell: [] for cell in cells}
    joined = {cell: {cell} for cell in cells}
    """With which others each cell is connected so far; they share the set."""
    bundles = dict.fromkeys(tuple(sorted(cell_of(network, broker) for broker in link)) for link in network.links)
    for one, other in bundles:
        if one == other:
            continue
        if other in joined[one]:
            way = " – ".join([*_way(neighbours, one, other), one])
            yield f"the cells must be a tree, and these make a cycle: {way}"
            continue
        neighbours[one].append(other)
        neighbours[other].append(one)
        few, many = sorted((joined[one], joined[other]), key=len)
        many |= few
        joined |= dict.fromkeys(few, many)
    first = next(iter(cells), "")
    apart = [cell for cell in cells if cell not in joined[first]]
    if apart:
        yield f"no bundle leads from the cell {first!r} to {_list(apart)}: every cell must be connected"


def _way(neighbours: Mapping[Cell, Sequence[Cell]], start: Cell, end: Cell) -> list[Cell]:
    """The cells from one to another, in trees that connect them."""
    ways = [[start]]
    for way in ways:  # which grows: each cell is come to once, because what there is so far are trees
        if way[-1] == end:
            return way
        ways += [[*way, cell] for cell in neighbours[way[-1]] if cell not in way]
    raise AssertionError("the two are not connected")


def _list(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
