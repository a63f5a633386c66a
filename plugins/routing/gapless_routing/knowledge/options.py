"""The options of the router `knowledge`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gapless_routing.common.link_table import STAMP_SHBS
from gapless_routing.common.router_state import checked_options


@dataclass(slots=True)
class Sizes:
    """How much it keeps, reads and says at a time."""

    cache_bytes: int = 64 << 20
    """So much memory is for events of all pubends together."""
    turn_bytes: int = 8 << 10
    """So much of interests is read in one turn, or one frame: its filters have to be parsed, at some 40 µs each."""
    turn_subscriptions: int = 400
    """The interest of so many subscriptions is said to a broker in one turn, or one part. More than that is large."""
    stamp_shbs: int = STAMP_SHBS
    """A stamp of more SHBs travels once per link, and by name from then on."""


def sizes_of(config: Mapping[str, Any]) -> Sizes:
    """Returns the options. Raises ConfigurationError when one makes no sense, or there is another one."""
    return checked_options("knowledge", Sizes, config, may_be_0="cache_bytes")
