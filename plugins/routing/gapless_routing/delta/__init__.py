"""The router `delta`: a tree of brokers that goes on while up to δ in a row are away (protocol: delta-router).

Each broker knows the brokers around it, δ + 1 hops far, and keeps copies of events until those behind it have them.
Toward each pubend it is served by the nearest broker of the next δ + 1 that is of use. When that one dies, the next
takes over from its copies. Beyond that, whoever misses something asks, as under every router.

    options.py   how many may be away, and what is kept for it
    tree.py      ways and distances on the map, and what makes a map no tree
    ring.py      links to the nearest live brokers, and what each can do
    interest.py  what the SHBs want, by the broker under which they are known
    serving.py   who serves whom for which pubend
    copies.py    who has which events, and what is let go of
    router.py    what of the seam knows these

What knows no tree is in `gapless_routing.common`, the seam (`relay_router`) among it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gapless.core.network.facts import NetworkMap
from gapless.core.network.seam import Router
from gapless.errors import ConfigurationError
from gapless.plugins import hookimpl
from gapless_routing.delta.options import Options, options_of
from gapless_routing.delta.router import DeltaRouter
from gapless_routing.delta.tree import wrong_tree

__all__ = ["DeltaRouter", "check_network", "open_routing"]


@hookimpl
def open_routing(options: Mapping[str, Any]) -> Router:
    """A fresh router. Raises ConfigurationError for an option that it does not know."""
    options_of(options)
    return DeltaRouter()


@hookimpl
def check_network(network: NetworkMap, options: Mapping[str, Any]) -> list[str]:
    """A sentence for each thing that makes a map no tree of single nodes, and one for an option that makes no sense."""
    try:
        known = options_of(options)
    except ConfigurationError as error:
        return [*wrong_tree(network, Options().links_max), f"routing: {error}"]
    return list(wrong_tree(network, known.links_max))
