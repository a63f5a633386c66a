"""The router `knowledge`: Gryphon's knowledge graph over a tree of cells (protocol: knowledge-router).

A cell is the brokers that have the same job; between neighbouring cells lies a bundle of links, and any of them will
do. Knowledge is pushed along one path of the tree, filtered by what the SHBs behind each bundle want. What a push
missed is asked for: a want finds any path, and its answer goes back the way it came. Nothing in here is durable.

    check.py     which maps are trees of cells
    cells.py     the tree: who is next on the way to whom
    peers.py     hellos, and which broker of a neighbouring cell to send to
    interest.py  to whom interests and censuses are said
    streams.py   to whom notices are sent, and in which directions the relay pushes and asks
    options.py   how much is kept, read and said at a time
    router.py    what of the seam knows cells: links, hellos, what goes sideways

What knows no cells is in `gapless_routing.common`, the seam (`relay_router`) among it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gapless.core.network.facts import NetworkMap
from gapless.core.network.seam import Router
from gapless.errors import ConfigurationError
from gapless.plugins import hookimpl
from gapless_routing.knowledge.check import wrong_cells
from gapless_routing.knowledge.options import sizes_of
from gapless_routing.knowledge.router import KnowledgeRouter

__all__ = ["check_network", "open_routing"]


@hookimpl
def open_routing(options: Mapping[str, Any]) -> Router:
    """A fresh router. Raises ConfigurationError for an option that it does not know."""
    sizes_of(options)
    return KnowledgeRouter()


@hookimpl
def check_network(network: NetworkMap, options: Mapping[str, Any]) -> list[str]:
    """A sentence for each thing that makes a map no tree of cells, and one for an option that makes no sense."""
    problems = list(wrong_cells(network))
    try:
        sizes_of(options)
    except ConfigurationError as error:
        problems.append(f"routing: {error}")
    return problems
