"""Gaps: a query that would meet one fails, on the driver if possible (docs/howto/use-spark.md).

Why on the driver: a task that fails is run again, and everything that it read before the gap is thrown away. The driver
fails once, before anything is read.

How the driver finds a gap:

1. It asks from where on the subscription meets no gap. Mostly that is before the beginning of the batch: there is none.
2. Otherwise there may be one. The driver reads the range before that position. It has few events, because they are
   gone.
3. Only a gap found there counts. So a quiet subscription does not fail, although the log has kept nothing of that range
   because nobody needs it.
"""

from __future__ import annotations

import gapless
from gapless.core.client import Gap
from gapless.errors import GaplessError
from gapless_spark.parts import parts_of


class RangeGapError(GaplessError):
    """A range has a gap, and the query must not go on over gaps. The text begins with a code."""

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
    """Raises RangeGapError if the range between two positions of a subscription has a gap now.

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
