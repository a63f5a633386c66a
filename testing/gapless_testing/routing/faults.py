"""What goes wrong in a network of routers, and how often; and the units of its time."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

MS = 1_000_000
SECOND = 1_000 * MS


@dataclass
class RoutingFaults:
    """What goes wrong, and how often. Nothing, as it is made."""

    loss: float = 0.0
    """Of frames."""
    duplicates: float = 0.0
    """Of frames."""
    jitter: int = 0
    """By how many nanoseconds frames are late at most; they overtake each other."""
    cut_every: int = 0
    """A link goes down every so many nanoseconds on average; 0: never."""
    vanish_every: int = 0
    """So often a router is thrown away and replaced."""
    crash_every: int = 0
    """So often a whole broker goes down, and comes back with what it had made durable."""
    change_every: int = 0
    """So often an SHB's interest changes: no fault, but the occasion of many."""
    late: float = 0.0
    """Of frames: they come once more, seconds later, on the link that there is then."""


def strikes(random: Random, step: int, every: int) -> bool:
    """Whether something that happens so often on average, or never (0), happens in this step."""
    return bool(every) and random.random() < step / every
