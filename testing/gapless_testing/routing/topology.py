"""Networks for routers to be tried in: which brokers there are, and who is linked to whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gapless.core.network.facts import BrokerId, NetworkMap, NetworkNode

PHB, SHB = "phb", "shb"


@dataclass(frozen=True)
class Topology:
    """Brokers with their roles, maybe none, and the links that an operator would configure."""

    name: str
    brokers: Mapping[BrokerId, frozenset[str]]
    links: tuple[tuple[BrokerId, BrokerId], ...] = ()
    cells: Mapping[BrokerId, str] = field(default_factory=dict)
    """The cell of each broker that does the same job as others; every other one is a cell of its own."""
    for_shape: bool = False
    """Whether only its shape is new. What is the same in a network of any shape is not tried there once more: what a
    router holds, how it reads what is large or broken, that it follows from what it is told, and its figures."""

    def __str__(self) -> str:
        return self.name

    @property
    def network(self) -> NetworkMap:
        """The map of it: the place of a node is its cell, if it shares one."""
        nodes = {broker: NetworkNode(roles, self.cells.get(broker, "")) for broker, roles in self.brokers.items()}
        return NetworkMap(nodes, self.links)

    def with_role(self, role: str) -> list[BrokerId]:
        """The brokers that have a role, in order."""
        return [broker for broker, roles in self.brokers.items() if role in roles]


def _roles(*roles: str) -> frozenset[str]:
    return frozenset(roles)


ALONE = Topology("alone", {"a": _roles(PHB, SHB)})
"""One node with both roles, and nobody else."""
PAIR = Topology("pair", {"p": _roles(PHB), "s": _roles(SHB)}, (("p", "s"),))
"""A PHB, an SHB, and one link."""
CHAIN = Topology(
    "chain",
    {"p": _roles(PHB), "i": _roles(), "j": _roles(), "s": _roles(SHB), "t": _roles(SHB)},
    (("p", "i"), ("i", "s"), ("i", "j"), ("j", "t")),
)
"""A broker in between that filters for two SHBs, and one more before the second of them."""
DIAMOND = Topology(
    "diamond",
    {
        "p": _roles(PHB),
        "q": _roles(PHB, SHB),
        "i": _roles(),
        "j": _roles(),
        "s": _roles(SHB),
    },
    (("p", "i"), ("p", "j"), ("q", "i"), ("q", "j"), ("i", "s"), ("j", "s")),
    {"i": "middle", "j": "middle"},
)
"""Two pubends, two ways, and a broker that publishes and subscribes."""


LEVELS = Topology(
    "levels",
    {"p": _roles(PHB), "i": _roles(), "j": _roles(), "k": _roles(), "l": _roles(), "s": _roles(SHB), "t": _roles(SHB)},
    (
        *(("p", "i"), ("p", "j"), ("i", "j")),
        *(("i", "k"), ("i", "l"), ("j", "k"), ("j", "l"), ("k", "l")),
        *(("k", "s"), ("l", "s"), ("k", "t"), ("l", "t")),
    ),
    {"i": "upper", "j": "upper", "k": "lower", "l": "lower"},
)
"""Two levels of two brokers each between a PHB and two SHBs: of each level any broker will do."""
INNER = Topology(
    "inner",
    {
        "p": _roles(PHB),
        "m": _roles(SHB),
        "i": _roles(),
        "j": _roles(),
        "k": _roles(),
        "q": _roles(PHB, SHB),
        "s": _roles(SHB),
    },
    (("p", "m"), ("m", "i"), ("m", "j"), ("i", "j"), ("i", "k"), ("j", "k"), ("j", "q"), ("k", "q"), ("q", "s")),
    {"i": "middle", "j": "middle", "k": "middle"},
)
"""Brokers with roles that others are behind, and three between them, of which two reach one side only: without the
third, the one way is from the first to the second of these."""

SEVEN = Topology(
    "seven",
    {
        "p": _roles(PHB),
        "i": _roles(),
        "j": _roles(),
        "m": _roles(SHB),
        "k": _roles(),
        "q": _roles(PHB),
        "s": _roles(SHB),
    },
    (("p", "i"), ("i", "j"), ("j", "m"), ("m", "k"), ("k", "q"), ("q", "s")),
    for_shape=True,
)
"""A chain of seven: what is slow to pass on is six times as slow, and all that ends ends behind somebody else."""
HUB = Topology(
    "hub",
    {"h": _roles(), "p": _roles(PHB), "q": _roles(PHB, SHB), "s": _roles(SHB), "t": _roles(SHB), "i": _roles()},
    (("h", "p"), ("h", "q"), ("h", "s"), ("h", "t"), ("h", "i")),
    for_shape=True,
)
"""A broker with five neighbours, all of which reach the others through it alone; one of them has nothing to do."""
BRANCH = Topology(
    "branch",
    {"p": _roles(PHB), "i": _roles(), "s": _roles(SHB), "j": _roles(), "q": _roles(PHB), "k": _roles()},
    (("p", "i"), ("i", "s"), ("i", "j"), ("j", "q"), ("j", "k")),
    for_shape=True,
)
"""A tree with a branch without SHBs: a pubend there has its only SHB outside, and nobody there wants anything."""

ALL = (ALONE, PAIR, CHAIN, DIAMOND, LEVELS, INNER, SEVEN, HUB, BRANCH)
