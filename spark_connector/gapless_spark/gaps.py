"""Gaps: one that a query would meet fails it, on the driver where that is possible (docs/howto/use-spark.md).

A task that fails is run again, and what it had read before the gap is thrown away; the driver fails once, before
anything is read. It asks from where on the subscription meets no gap. Mostly that is behind where the batch begins, and
that was all. Else there may be one: what lies before is read, which has few events, for they are gone, and only a gap
that is found there counts. So a quiet subscription, of which the log kept nothing because nobody needs it, does not
fail.
"""

from __future__ import annotations

import gapless
from gapless.core.client import Gap
from gapless.errors import GaplessError
from gapless_spark.parts import parts_of


class RangeGapError(GaplessError):
    """A range has a gap, and the query does not go on over gaps. Its text begins with a code."""

    def __init__(self, gap: Gap) -> None:
        super().__init__(
            f"GAPLESS_GAP pubend={gap.pubend} ticks=({gap.start},{gap.end}]: {gap}. With failOnGap=false it is a row."
        )
        self.gap = gap

    def __reduce__(self) -> tuple[type[RangeGapError], tuple[Gap]]:
        return RangeGapError, (self.gap,)


def check(
    connection: gapless.sync.Connection, start: gapless.CheckpointToken, end: gapless.CheckpointToken, timeout: float
) -> None:
    """Raises RangeGapError if what lies between two positions of a subscription has a gap now.

    Raises TimeoutError if there is no broker for so many seconds.
    """
    readable = connection.earliest(start, timeout=timeout).ticks
    for pubend, tick in end.ticks.items():
        begin, upto = start.ticks.get(pubend, 0), min(readable.get(pubend, 0), tick)
        if begin >= upto:
            continue
        for part in parts_of(connection, start, pubend, (begin, upto), (begin, tick), timeout):
            if isinstance(part, Gap):
                raise RangeGapError(part)
