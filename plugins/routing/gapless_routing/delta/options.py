"""The options of the router `delta`: all nodes have the same, from `[routing]` of the network's file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gapless.core.network.timer_queue import MILLISECOND, SECOND
from gapless.errors import ConfigurationError
from gapless_routing.common.router_state import checked_options

DELTA_MAX: Final = 8


@dataclass(slots=True)
class Options:
    """How many brokers may be away, and how much is kept for it."""

    delta: int = 1
    """So many brokers next to each other may be away, and events go on without being asked for again."""
    cache_bytes: int = 64 << 20
    """So much memory is for events of all pubends together."""
    interest_bytes: int = 4 << 20
    """So much memory is for the filters of one SHB: of one that has more, everything is taken to be wanted."""
    window_seconds: int = 10
    """Events are kept for so long at least, whoever has a copy of them."""
    ring_wait_ms: int = 250
    """So long after a broker is away those beyond it are dialled."""
    forget_seconds: int = 600
    """An SHB of which its own broker has not spoken for so long is forgotten, with the copies that are for it."""
    links_max: int = 64
    """So many links a broker wishes for at most."""

    @property
    def reach(self) -> int:
        """So many hops away brokers are known as more than names."""
        return self.delta + 1

    @property
    def window(self) -> int:
        """In nanoseconds."""
        return self.window_seconds * SECOND

    @property
    def ring_wait(self) -> int:
        """In nanoseconds."""
        return self.ring_wait_ms * MILLISECOND

    @property
    def forget(self) -> int:
        """In nanoseconds."""
        return self.forget_seconds * SECOND


def options_of(config: Mapping[str, Any]) -> Options:
    """Returns the options. Raises ConfigurationError when one makes no sense, or there is another one."""
    options = checked_options("delta", Options, config)
    if options.delta > DELTA_MAX:
        raise ConfigurationError(
            f"routing.options.delta is a number from 1 to {DELTA_MAX}, not {options.delta!r}: so many brokers in a row"
            " may be away"
        )
    return options
