"""An adversarial router: it does every wrong thing that the contract of the routing seam permits. For simulations.

`open_routing` makes one; `gapless_sim.hostile.hostility.BEHAVIOURS` lists what it can do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gapless.core.network.seam import Router
from gapless.errors import ConfigurationError
from gapless.plugins import hookimpl
from gapless_sim.hostile.router import HostileRouter

__all__ = ["open_routing"]


@hookimpl
def open_routing(options: Mapping[str, Any]) -> Router:
    """A fresh router. Its options are those of its `RouterContext`; ConfigurationError when there is another."""
    unknown = sorted(set(options) - {"hostility"})
    if unknown:
        raise ConfigurationError(f"the router 'hostile' has no option {unknown[0]!r}")
    return HostileRouter()
