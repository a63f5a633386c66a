"""For which networks a router is made, by the name of its plugin."""

from __future__ import annotations

from typing import Final

from gapless import plugins
from gapless.core.network.seam import Router
from gapless.errors import ConfigurationError
from gapless_sim import hostile

ONE, FULL_MESH, CELLS, NODES = NETWORKS = ("one", "mesh", "cells", "nodes")
"""The networks that there are for routers (`gapless.core.network.seam.RouterBase.networks`)."""

# Known here and to no configuration: a real broker can never be configured to be hostile.
HOSTILE: Final = "hostile"
plugins.add("routing", HOSTILE, hostile)


def networks_of(router: str) -> str:
    """For which networks a router is made. Raises ConfigurationError if there are none of that kind."""
    made: Router = plugins.load("routing", router)(options={})
    if made.networks not in NETWORKS:
        known = ", ".join(NETWORKS)
        raise ConfigurationError(f"the router {router!r} is made for networks {made.networks!r}; there are {known}")
    return made.networks
