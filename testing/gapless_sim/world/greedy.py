"""A release policy that asks to release everything, the future too. For simulations.

The PHB grants a policy only what the promise allows. This policy always asks for more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gapless.core.ports import PubendState, ReleasePolicy
from gapless.core.stream.ticks import FOREVER, Tick
from gapless.errors import ConfigurationError
from gapless.plugins import hookimpl


class Greedy:
    """Asks to release everything."""

    def release(self, state: PubendState) -> Tick:
        """Everything that is there, or will be."""
        return FOREVER


@hookimpl
def open_release(options: Mapping[str, Any]) -> ReleasePolicy:
    """The policy; it has no options."""
    if options:
        raise ConfigurationError(f"the release policy 'greedy' has no option {min(options)!r}")
    return Greedy()
