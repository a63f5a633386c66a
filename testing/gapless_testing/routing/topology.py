"""Networks for routers to be tried in: which brokers there are, and who is linked to whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gapless.core.network.facts import BrokerId, NetworkMap, NetworkNode

PHB, SHB = "phb", "shb"


@dataclass(frozen=True)
class Topology:
    """Brokers with their roles, maybe none, and the links that an operator would configure."""

    name: str
    brokers: Mapping[BrokerId, frozenset[str]]
    links: tuple[tuple[BrokerId, BrokerId], ...] = ()

    def __str__(self) -> str:
        return self.name

    @property
    def network(self) -> NetworkMap:
        """The map of it, on which no node has a place."""
        return NetworkMap({broker: NetworkNode(roles) for broker, roles in self.brokers.items()}, self.links)

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
)
"""Two pubends, two ways, and a broker that publishes and subscribes."""

ALL = (ALONE, PAIR, CHAIN, DIAMOND)
