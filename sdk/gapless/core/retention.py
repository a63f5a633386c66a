"""The seam of release policies: how far a pubend may forget what somebody still needs (algorithms.md 1.4, 3.7; S1 §3).

A policy is asked when the release timer of a pubend has come, never per event. It is pure: what it answers
follows from the `PubendState` that it is given and from its options, so one policy may serve many pubends.
What it answers is a wish. The PHB core grants of it only what is delivered to every SHB that counts
(`t ≤ T_d`), and nothing while the wall clock cannot be believed; whoever still needed it meets a gap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gapless.core.ticks import PubendId, Tick


class LogBytes(Protocol):
    """How many bytes of a log lie where: about, and always on the safe side."""

    @property
    def size(self) -> int:
        """About how many bytes are in the log."""

    def above(self, tick: Tick) -> int:
        """About how many bytes lie above `tick`, rounded up."""

    def covered(self, least: int) -> Tick:
        """The highest tick known to have more than `least` bytes above it; 0 when there is none."""


@dataclass(frozen=True, slots=True)
class PubendState:
    """A pubend, as a policy sees it. `delivered` is the limit of what any policy is granted."""

    pubend: PubendId
    time: Tick
    """The present that events grow old by: `gapless.core.ticks.wall_at` tells the wall time, a difference of ticks an
    age. It does not follow a wall clock that leaps, so an event may be stamped later than that."""
    lost: Tick
    """Everything up to here is given up already."""
    newest: Tick
    """The newest event, or 0."""
    released: Tick
    """Everybody is done with everything up to here, holds included: that goes without any policy."""
    delivered: Tick
    """Every SHB that counts has noted up to here which events are for whom: no policy goes beyond."""
    log: LogBytes


class ReleasePolicy(Protocol):
    """Decides what is given up although somebody may still need it."""

    def release(self, state: PubendState) -> Tick:
        """Up to which tick the log may go now; 0: only what everybody is done with. Must not raise."""
