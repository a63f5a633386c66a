"""The times at which a pubend's PHB was down, in which no event can stand, and how far they were told as silent.

A PHB says what is void when it is back, and a token that stands in a void comes from data that the PHB has lost: its
storage is an old copy (docs/decisions, "a void may be told before it is known"). Whoever is told that nothing is in a
void is therefore told of it as a whole, also by an SHB that has just restarted: it keeps the voids.

But a network may lose the PHB's word and deliver what it answers in the meantime, so that a void that is not known yet
is passed over in parts, as any silence is. Tokens in there are good. What tells them from the others is whether an
event is known in the void: this life of the PHB never logged one.
"""

from __future__ import annotations

from collections.abc import Mapping

from gapless.core.routing import Ranges
from gapless.core.ticks import Tick


class Voids:
    """The voids of one pubend, as one SHB knows them."""

    def __init__(self, head: Tick, ranges: Ranges = (), told: Mapping[Tick, Tick] | None = None) -> None:
        """`ranges` and `told`: what an earlier life of this SHB knew."""
        self.ranges = ranges
        self.told: dict[Tick, Tick] = dict(told or {})
        """How far into a void, which is named by its end, it was told as silent before it was heard of."""
        self._event = head
        """No event is known above this."""

    def pass_event(self, tick: Tick) -> None:
        """There is an event, and none above it."""
        self._event = tick

    def learn(self, ranges: Ranges, head: Tick) -> None:
        """These there are, says the PHB; the head stands here."""
        ends = {hi for _, hi in ranges}
        for lo, hi in ranges:
            if (lo, hi) not in self.ranges and self._event <= lo < head:
                self.told[hi] = max(self.told.get(hi, lo), min(head, hi))
        self.told = {hi: tick for hi, tick in self.told.items() if hi in ends}
        self.ranges = ranges

    def outside(self, tick: Tick) -> Tick:
        """The tick, or the end of the void it stands in: no new token is to name a tick that was never assigned."""
        return max((hi for lo, hi in self.ranges if lo < tick <= hi), default=tick)

    def is_lost(self, tick: Tick) -> bool:
        """Whether a token at this tick can only come from data that the PHB has lost.

        At the end of a void, and not within, stands whoever was told that nothing is in it.
        """
        return any(lo < tick < hi and tick > self.told.get(hi, lo) for lo, hi in self.ranges)
