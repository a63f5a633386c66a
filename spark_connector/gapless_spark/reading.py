"""From the parts of a range read to record batches of a good size; and what becomes of a gap (spark.md 6.5).

A batch has so many rows at most, or so many bytes, whichever comes first: few rows cost more than they hold, and too
many keep both sides waiting. A task that fails must say why in its text alone: that is all that Spark keeps of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from gapless.core.client import Delivery, Gap
from gapless.core.events import DeliveredColumns
from gapless.core.ticks import PubendId
from gapless.errors import GaplessError
from gapless_spark.rows import events_batch, gap_batch

BATCH_BYTES: Final = 4 << 20


class RangeGapError(GaplessError):
    """A range has a gap, and the query does not go on over gaps. Its text begins with a code."""

    def __init__(self, gap: Gap) -> None:
        super().__init__(
            f"GAPLESS_GAP pubend={gap.pubend} ticks=({gap.start},{gap.end}]: {gap}. With failOnGap=false it is a row."
        )


def record_batches(
    pubend: PubendId,
    parts: Iterable[Delivery | Gap],
    schema: Any,
    *,
    rows_max: int = 10_000,
    fail_on_gap: bool = True,
) -> Iterator[Any]:
    """The record batches of a range, in order. Raises RangeGapError, behind what came before the gap."""
    pending: list[DeliveredColumns] = []
    count = size = 0
    for part in parts:
        if isinstance(part, Gap):
            if pending:
                yield events_batch(pubend, pending, schema)
                pending, count, size = [], 0, 0
            if fail_on_gap:
                raise RangeGapError(part)
            yield gap_batch(part, schema)
            continue
        for columns in part.columns:
            for piece in _pieces(columns, rows_max):
                if pending and (count + piece.count > rows_max or size + piece.size > BATCH_BYTES):
                    yield events_batch(pubend, pending, schema)
                    pending, count, size = [], 0, 0
                pending.append(piece)
                count += piece.count
                size += piece.size
    if pending:
        yield events_batch(pubend, pending, schema)


def _pieces(columns: DeliveredColumns, rows_max: int) -> Iterator[DeliveredColumns]:
    """A delivery in pieces of so many rows at most; mostly it is one."""
    for start in range(0, columns.count, rows_max):
        yield columns.slice(start, min(start + rows_max, columns.count))
