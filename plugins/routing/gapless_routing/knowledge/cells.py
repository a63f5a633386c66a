"""The tree of cells: who stands where, and who is next on the way to whom.

The graph of cells is a tree, so there is one way from each cell to each other, whatever broker of a cell is taken.
"""

from __future__ import annotations

from collections import deque

from gapless.core.network.facts import BrokerId, NetworkMap

Cell = str


class Cells:
    """The map of the network, as one broker sees it."""

    def __init__(self, network: NetworkMap, broker: BrokerId) -> None:
        """The map is a tree of cells with this broker in it: `check.check_map`."""
        self._cell_of = {name: cell_of(network, name) for name in network.nodes}
        self._roles = {name: node.roles for name, node in network.nodes.items()}
        self.own: Cell = self._cell_of[broker]
        self._members: dict[Cell, list[BrokerId]] = {}
        for name in sorted(network.nodes):
            self._members.setdefault(self._cell_of[name], []).append(name)
        self.linked: dict[Cell, list[BrokerId]] = {}
        """By cell, the brokers that this one should have a link to; those of its own cell are its mates."""
        neighbours: dict[Cell, set[Cell]] = {cell: set() for cell in self._members}
        for one, other in network.links:
            here, there = self._cell_of[one], self._cell_of[other]
            if here != there:
                neighbours[here].add(there)
                neighbours[there].add(here)
            for mine, peer in ((one, other), (other, one)):
                if mine == broker:
                    self.linked.setdefault(self._cell_of[peer], []).append(peer)
        self.mates = sorted(self.linked.pop(self.own, []))
        self.neighbours = sorted(neighbours[self.own])
        """The neighbouring cells, also those to which only a mate has a link."""
        self._toward: dict[Cell, Cell] = {}
        self._behind: dict[Cell, tuple[Cell, ...]] = {}
        for neighbour in self.neighbours:
            self._behind[neighbour] = _reachable(neighbours, neighbour, self.own)
            self._toward |= dict.fromkeys(self._behind[neighbour], neighbour)
        self.by_broker = {name: self._toward[cell] for name, cell in self._cell_of.items() if cell in self._toward}
        """The neighbouring cell on the way to each broker that is not of this cell."""

    def of(self, broker: BrokerId) -> Cell | None:
        """The cell of a broker; None: it is not on the map."""
        return self._cell_of.get(broker)

    def toward(self, cell: Cell) -> Cell | None:
        """The neighbouring cell on the way to another one; None: it is this broker's own."""
        return self._toward.get(cell)

    def behind(self, neighbour: Cell) -> tuple[Cell, ...]:
        """All cells in the direction of a neighbouring one, that one among them."""
        return self._behind[neighbour]

    def with_shbs_behind(self, neighbour: Cell) -> list[Cell]:
        """The cells in that direction that have an SHB, in an order that is the same everywhere."""
        cells = self._behind[neighbour]
        return [cell for cell in cells if any("shb" in self._roles[name] for name in self._members[cell])]

    def has_role_behind(self, neighbour: Cell, role: str) -> bool:
        """Whether some broker in that direction has a role."""
        return any(role in self._roles[name] for cell in self._behind[neighbour] for name in self._members[cell])

    def is_alone(self, broker: BrokerId) -> bool:
        """Whether a broker shares its cell with no other."""
        return len(self._members[self._cell_of[broker]]) == 1

    def with_role(self, role: str) -> list[BrokerId]:
        """All brokers that have a role, in an order that is the same everywhere."""
        return [name for name in sorted(self._roles) if role in self._roles[name]]

    def roles_of(self, broker: BrokerId) -> frozenset[str]:
        """What a broker hosts."""
        return self._roles.get(broker, frozenset())

    def away_from(self, neighbour: Cell | None) -> list[Cell]:
        """All cells but this broker's own that are not in the direction of a neighbouring cell; None: all of them."""
        return [cell for cell, toward in self._toward.items() if toward != neighbour]


def cell_of(network: NetworkMap, broker: BrokerId) -> Cell:
    """The cell of a broker of the map; one without a place is a cell of its own."""
    return network.nodes[broker].place or broker


def _reachable(neighbours: dict[Cell, set[Cell]], start: Cell, without: Cell) -> tuple[Cell, ...]:
    """The cells that one comes to from `start` without passing another one."""
    found = {start: None}
    waiting = deque([start])
    while waiting:
        for cell in sorted(neighbours[waiting.popleft()]):
            if cell != without and cell not in found:
                found[cell] = None
                waiting.append(cell)
    return tuple(sorted(found))
