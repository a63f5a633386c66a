"""Minima of progress: up to where every SHB is done with a pubend (protocol: minima; C4, T20, T48)."""

from __future__ import annotations

from typing import NamedTuple

from gapless.core.stream.ticks import Tick


class Minima(NamedTuple):
    """Every SHB of a set has released, and has delivered, at least this."""

    released: Tick
    delivered: Tick
