"""The tree of brokers, as one of them sees it: ways, distances, and what lies beyond whom (protocol: delta-router)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gapless.core.network.facts import BrokerId, NetworkMap
from gapless.errors import ConfigurationError
from gapless_routing.common.trees import neighbours_of, wrong_links


class Tree:
    """All brokers of the map, from where one of them stands."""

    def __init__(self, network: NetworkMap, broker: BrokerId, reach: int) -> None:
        """`reach`: how many hops away brokers are known as more than names."""
        self.broker = broker
        self.reach = reach
        self._nodes = network.nodes
        around = neighbours_of(network)
        self.neighbours: tuple[BrokerId, ...] = tuple(around[broker])
        self._before: dict[BrokerId, BrokerId] = {}
        """Of each broker the one before it on the way from here."""
        self._distances = {broker: 0}
        waiting = [broker]
        for node in waiting:  # which grows
            for beyond in around[node]:
                if beyond not in self._distances:
                    self._before[beyond] = node
                    self._distances[beyond] = self._distances[node] + 1
                    waiting.append(beyond)
        self._away: dict[BrokerId, list[BrokerId]] = {node: [] for node in waiting}
        for node in waiting[1:]:
            self._away[self._before[node]].append(node)
        self._paths: dict[BrokerId, tuple[BrokerId, ...]] = {}
        self.near: dict[BrokerId, int] = {node: hops for node, hops in self._distances.items() if 0 < hops <= reach}
        """The brokers within reach, the nearest first, and how many hops away each is."""
        self._homes = {node: self._is_behind_with(node, "shb") for node in waiting}
        self._hosts = {node: self._is_behind_with(node, "phb") for node in waiting}
        self._beyond = {node: [name for name in self.near if node in self.path(name)] for node in self.near}

    def __contains__(self, broker: object) -> bool:
        """Whether a broker is on the map."""
        return broker in self._distances

    def path(self, to: BrokerId) -> tuple[BrokerId, ...]:
        """Returns the brokers on the way to another one, from the neighbour on; it is the last of them."""
        path = self._paths.get(to)
        if path is None:
            way: list[BrokerId] = []
            node = to
            while node != self.broker:
                way.append(node)
                node = self._before[node]
            path = self._paths[to] = tuple(reversed(way))
        return path

    def distance(self, to: BrokerId) -> int:
        """Returns how many hops away a broker is."""
        return self._distances[to]

    def first(self, to: BrokerId) -> BrokerId:
        """Returns the neighbour on the way to another broker: its direction."""
        return self.path(to)[0]

    def away(self, broker: BrokerId) -> Iterable[BrokerId]:
        """Returns the neighbours of a broker that are farther away than it."""
        return self._away[broker]

    def group_of(self, home: BrokerId) -> BrokerId:
        """Returns under which broker the SHBs of one are known: itself, or the last one within reach on the way."""
        return self.path(home)[: self.reach][-1]

    def beyond(self, broker: BrokerId) -> list[BrokerId]:
        """Returns the brokers in reach to which the way leads over a certain one, with itself."""
        return self._beyond[broker]

    def has_beyond(self, broker: BrokerId, role: str) -> bool:
        """Whether a broker, or one to which the way leads over it, has a role."""
        return self._behind(role)[broker] > 0

    def has_elsewhere(self, broker: BrokerId, role: str) -> bool:
        """Whether a role is here, or anywhere to which the way does not lead over a neighbour."""
        behind = self._behind(role)
        return behind[self.broker] > behind[broker]

    def has_role(self, broker: BrokerId, role: str) -> bool:
        """Whether a broker has a role."""
        return role in self._nodes[broker].roles

    def with_role(self, role: str) -> list[BrokerId]:
        """Returns the brokers that have a role, in an order that is the same everywhere."""
        return sorted(broker for broker, node in self._nodes.items() if role in node.roles)

    def _behind(self, role: str) -> Mapping[BrokerId, int]:
        return self._homes if role == "shb" else self._hosts

    def _is_behind_with(self, broker: BrokerId, role: str) -> int:
        """How many brokers have a role: itself, and those to which the way leads over it."""
        count, waiting = 0, [broker]
        for node in waiting:  # which grows
            count += role in self._nodes[node].roles
            waiting += self._away[node]
        return count


def wrong_tree(network: NetworkMap, links_max: int) -> Iterator[str]:
    """Yields a sentence for each thing that makes a map no tree of single brokers."""
    places: dict[str, list[BrokerId]] = {}
    for broker, node in network.nodes.items():
        places.setdefault(node.place, []).append(broker)
    for place, brokers in places.items():
        if place and len(brokers) > 1:
            yield (
                f"the nodes {', '.join(map(repr, brokers))} stand together at {place!r}: under the router 'delta' each"
                ' node stands alone; give each a cell of its own, or none and links (["a", "b"]) to its neighbours'
            )
    yield from wrong_links(network)
    for broker, around in neighbours_of(network).items():
        if len(around) > links_max:
            yield f"the node {broker!r} has {len(around)} neighbours, and links_max is {links_max}: raise it"


def check_map(network: NetworkMap, broker: BrokerId, links_max: int) -> None:
    """Raises ConfigurationError when a map is no tree with this broker in it: a line for each thing."""
    if broker not in network.nodes:
        raise ConfigurationError(f"broker {broker!r} is not on the map of the network")
    problems = list(wrong_tree(network, links_max))
    if problems:
        raise ConfigurationError("\n".join(problems))
