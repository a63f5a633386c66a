"""What readers and the constream find, in order: events, and gaps between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from gapless.core.stream.columns import EventBatch
from gapless.core.stream.ticks import Tick
from gapless.core.wire.messages import GapReason

Lost: TypeAlias = tuple[Tick, Tick, GapReason]
"""(lo, hi, reason): (lo, hi] is lost for this reason."""


@dataclass(frozen=True, slots=True)
class GapSegment:
    """A gap: some tick in (start, end] is unknown, and the pubend has given it up."""

    start: Tick
    end: Tick
    reason: GapReason

    def after(self, earlier: GapSegment | None) -> GapSegment:
        """Joins this gap with an earlier one of the same reason, if there is one and no event was sent between."""
        assert earlier is None or earlier.reason == self.reason
        return self if earlier is None else GapSegment(earlier.start, self.end, self.reason)


def too_large(tick: Tick) -> GapSegment:
    """Returns the gap in place of an event that no frame can carry."""
    return GapSegment(tick - 1, tick, GapReason.TOO_LARGE)


Segment: TypeAlias = EventBatch | GapSegment
