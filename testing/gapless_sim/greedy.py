"""A release policy that wants everything gone at once, the future too: for simulations.

Whatever a policy wishes, the PHB grants what the promise allows. Under this one it is always asked for more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gapless.core.ports import PubendState, ReleasePolicy
from gapless.core.stream.ticks import FOREVER, Tick
from gapless.errors import ConfigurationError
from gapless.plugins import hookimpl


class Greedy:
    """Gives up everything."""

    def release(self, state: PubendState) -> Tick:
        """All there is and will be."""
        return FOREVER


@hookimpl
def open_release(options: Mapping[str, Any]) -> ReleasePolicy:
    """The policy; it has no options."""
    if options:
        raise ConfigurationError(f"the release policy 'greedy' has no option {min(options)!r}")
    return Greedy()
