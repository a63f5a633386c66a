"""Short names for what has long ones: ticks, pubends, SHBs and events, as people read them.

Ticks are shown as the seconds of the run at which they are, by the pubend's own clock. `1.250` is the first
tick of that millisecond, `1.250+3` the fourth one of the pubend; `1.250-1` is the last one before it. Shown
roughly, all of a millisecond are alike. Events are shown by the keys of their publications: `#17`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gapless.core.stream.ticks import COUNTER_BITS, EPOCH_MS, FOREVER, MILLISECOND, PUBEND_BITS
from gapless_sim.world.clocks import WALL_BEGIN

_COUNTER = (1 << COUNTER_BITS) - 1
SHOWN = 4
"""So many of a list are shown one by one."""


class Names:
    """Short names for what has long ones."""

    def __init__(self, aliases: Mapping[str, str] | None = None, *, rough: bool = False) -> None:
        """`rough`: ticks to the millisecond, and events without theirs. `aliases`: what to call names instead."""
        self.rough = rough
        self._aliases = aliases or {}
        self._pubends: dict[str, str] = {}
        self._shbs: dict[str, str] = {}

    def pubend(self, pubend: str) -> str:
        """Its name; another epoch of the name has a number, for that is another pubend."""
        return self._name(self._pubends, pubend)

    def shb(self, shb: str) -> str:
        """Its name, likewise."""
        return self._name(self._shbs, shb)

    def _name(self, known: dict[str, str], long: str) -> str:
        if long not in known:
            name = long.partition("@")[0]
            name = self._aliases.get(name, name)
            number = 1 + sum(1 for short in known.values() if short.partition("(")[0] == name)
            known[long] = name if number == 1 else f"{name}({number})"
        return known[long]

    def tick(self, tick: int) -> str:
        """A tick as seconds of the run."""
        told = tick_text(tick)
        return told.partition("+")[0].partition("-1")[0] if self.rough else told

    def range(self, lo: int, hi: int) -> str:
        """An interval of ticks; roughly, one within a millisecond is a point."""
        low, high = self.tick(lo), self.tick(hi)
        return f"at {low}" if low == high else f"({low}, {high}]"

    def ranges(self, ranges: Sequence[tuple[int, int]]) -> str:
        """A few intervals."""
        shown = " and ".join(self.range(lo, hi) for lo, hi in ranges[:SHOWN])
        return shown if len(ranges) <= SHOWN else f"{shown} and {len(ranges) - SHOWN} more"

    def positions(self, positions: Mapping[str, int]) -> str:
        """A vector of positions."""
        told = (f"{self.pubend(pubend)} {self.tick(tick)}" for pubend, tick in positions.items())
        return ", ".join(told) or "nothing"

    def events(self, keys: Sequence[int], ticks: Sequence[int] = ()) -> str:
        """A few events, or the first and the last of many."""
        told = [f"#{key}" for key in keys]
        if ticks and not self.rough:
            told = [f"{key}@{tick_text(tick)}" for key, tick in zip(told, ticks, strict=True)]
        if len(told) <= SHOWN:
            return " ".join(told)
        return f"{len(told)} events {told[0]} … {told[-1]}"


def tick_text(tick: int) -> str:
    """A tick as seconds of the run."""
    if tick <= 0:
        return "0"
    if tick >= FOREVER:
        return "∞"
    milliseconds, within = divmod(tick, MILLISECOND)
    counter = within >> PUBEND_BITS
    before = counter == _COUNTER
    since = milliseconds + EPOCH_MS - WALL_BEGIN + before
    seconds = f"{'-' if since < 0 else ''}{abs(since) // 1000}.{abs(since) % 1000:03}"
    return f"{seconds}-1" if before else f"{seconds}+{counter}" if counter else seconds


def with_short_ticks(text: str) -> str:
    """A text in which ticks are shown as seconds: no other numbers are as long."""
    return re.sub(r"\b\d{17,19}\b", lambda tick: tick_text(int(tick[0])), text)


def count_of(count: int, noun: str) -> str:
    """`1 event`, `2 events`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
