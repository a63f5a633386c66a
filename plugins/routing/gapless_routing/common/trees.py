"""Maps whose links make a tree: who is next to whom, and what is wrong where they make none."""

from __future__ import annotations

from collections.abc import Iterator

from gapless.core.network.facts import BrokerId, NetworkMap


def neighbours_of(network: NetworkMap) -> dict[BrokerId, list[BrokerId]]:
    """Returns the neighbours of each broker by the links of a map, in the order in which they stand there."""
    around: dict[BrokerId, list[BrokerId]] = {broker: [] for broker in network.nodes}
    for one, other in network.links:
        if one != other and other not in around[one]:
            around[one].append(other)
            around[other].append(one)
    return around


def wrong_links(network: NetworkMap) -> Iterator[str]:
    """Yields a sentence for each thing that keeps the links of a map from being a tree of all its nodes."""
    joined = {broker: {broker} for broker in network.nodes}
    for one, other in network.links:
        if other in joined[one]:
            yield (
                f"the link from {one!r} to {other!r} makes a cycle, and the nodes must be a tree: take out one of the"
                " links of the cycle"
            )
            continue
        few, many = sorted((joined[one], joined[other]), key=len)
        many |= few
        joined |= dict.fromkeys(few, many)
    first = next(iter(network.nodes), "")
    for broker in network.nodes:
        if broker not in joined[first]:
            yield f"no link leads from {first!r} to {broker!r}: every node must be connected; add one"
