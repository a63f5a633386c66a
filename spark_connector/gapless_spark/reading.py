"""Makes record batches of a good size from the parts of a range read, and handles gaps.

A batch has a limit of rows and a limit of bytes; the first to be reached counts. Small batches cost too much overhead,
and large ones keep both sides waiting. If a task fails, its text must contain the whole reason, because Spark keeps
nothing else of an error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from gapless.core.client import Delivery, Gap
from gapless.core.stream.ticks import STEP, PubendId, Tick, reads_as_time
from gapless.core.wire.delivered import DeliveredColumns
from gapless_spark.gaps import RangeGapError
from gapless_spark.rows import events_batch, gap_batch

BATCH_BYTES: Final = 4 << 20

log = logging.getLogger("gapless_spark")


@dataclass(frozen=True)
class Silences:
    """Silences in (start, end] are rows, too (option `includeSilence`).

    Together with events and gaps they account for every tick there.
    """

    start: Tick
    end: Tick
    spacing: Tick
    """How far the places of neighbouring events are apart: a range that is shorter has no room for an event."""

    @classmethod
    def within(cls, start: Tick, end: Tick, latest: Tick) -> Silences:
        """Returns those of a range. `latest`: the last tick that the query reads of the pubend, which shows its kind.

        A pubend whose ticks are times uses one tick in 1024, and the others belong to other pubends. Where a log
        numbers its records, each tick is the place of one.
        """
        return cls(start, end, STEP if reads_as_time(latest) else 1)

    def has_room(self, start: Tick, end: Tick) -> bool:
        """Whether (start, end], which is empty, has room for an event."""
        return end - start >= self.spacing


def record_batches(
    pubend: PubendId,
    parts: Iterable[Delivery | Gap],
    schema: Any,
    *,
    rows_max: int = 10_000,
    fail_on_gap: bool = True,
    silences: Silences | None = None,
) -> Iterator[Any]:
    """Yields the record batches of a range, in order. Raises RangeGapError, after everything before the gap.

    `silences`: those that are rows, in the range of the parts.
    """
    gathering = _Gathering(pubend, schema, silences)
    for part in parts:
        if isinstance(part, Gap):
            yield from gathering.batches_up_to(part.start)
            if fail_on_gap:
                raise RangeGapError(part)
            log.warning("a gap: %s", part)
            yield gathering.gap(part)
            continue
        for columns in part.columns:
            for piece in _pieces(columns, rows_max):
                if gathering.is_full_with(piece, rows_max):
                    yield gathering.batch()
                gathering.add(piece)
    yield from gathering.batches_up_to(None if silences is None else silences.end)


class _Gathering:
    """The rows of the next record batch, and up to where everything was given out."""

    def __init__(self, pubend: PubendId, schema: Any, silences: Silences | None) -> None:
        """`silences`: None if they are no rows."""
        self._pubend = pubend
        self._schema = schema
        self._silences = silences
        self._silent_from = 0 if silences is None else silences.start
        """Where the next silence begins, if there is one."""
        self._pending: list[DeliveredColumns] = []
        self._count = self._size = 0

    def is_full_with(self, piece: DeliveredColumns, rows_max: int) -> bool:
        """Whether a piece has to wait for the next batch."""
        return bool(self._pending) and (self._count + piece.count > rows_max or self._size + piece.size > BATCH_BYTES)

    def add(self, piece: DeliveredColumns) -> None:
        """Adds a piece."""
        self._pending.append(piece)
        self._count += piece.count
        self._size += piece.size

    def batch(self) -> Any:
        """Returns the batch of all pieces."""
        pending, self._pending, self._count, self._size = self._pending, [], 0, 0
        batch = events_batch(self._pubend, pending, self._schema)
        if self._silences is None:
            return batch
        ticks = [tick for columns in pending for tick in columns.ticks()]
        start, self._silent_from = self._silent_from, ticks[-1]
        return with_silences(self._pubend, batch, ticks, start, self._silences)

    def batches_up_to(self, end: Tick | None) -> Iterator[Any]:
        """Yields the batch of all pieces, and the silence after it up to an end."""
        if self._pending:
            yield self.batch()
        if self._silences is not None and end is not None and self._silences.has_room(self._silent_from, end):
            yield silence_batch(self._pubend, [(self._silent_from, end)], self._schema)

    def gap(self, gap: Gap) -> Any:
        """Returns the row of a gap; the next silence begins after it."""
        self._silent_from = gap.end
        return gap_batch(gap, self._schema)


def _pieces(columns: DeliveredColumns, rows_max: int) -> Iterator[DeliveredColumns]:
    """Yields a delivery in pieces of so many rows at most; mostly it is one piece."""
    for start in range(0, columns.count, rows_max):
        yield columns.slice(start, min(start + rows_max, columns.count))


def silence_batch(pubend: PubendId, ranges: Sequence[tuple[Tick, Tick]], schema: Any) -> Any:
    """Returns the record batch of some silences (start, end]: a row for each."""
    count = len(ranges)
    values: Mapping[str, Callable[[], Any]] = {
        "kind": lambda: pa.repeat(pa.scalar("silence"), count),
        "pubend": lambda: pa.repeat(pa.scalar(pubend), count),
        "tick": lambda: pa.array([end for _, end in ranges], pa.int64()),
        "tick_from": lambda: pa.array([start + 1 for start, _ in ranges], pa.int64()),
    }
    arrays = [values[field.name]() if field.name in values else pa.nulls(count, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def with_silences(pubend: PubendId, events: Any, ticks: Sequence[Tick], start: Tick, wanted: Silences) -> Any:
    """Returns a record batch of events at these ticks, with the silences after `start` and between them, in order."""
    silences: list[tuple[Tick, Tick]] = []
    order: list[int] = []
    for number, tick in enumerate(ticks):
        if wanted.has_room(start, tick - 1):
            order.append(len(ticks) + len(silences))
            silences.append((start, tick - 1))
        order.append(number)
        start = tick
    if not silences:
        return events
    rows = pa.Table.from_batches([events, silence_batch(pubend, silences, events.schema)])
    (batch,) = rows.combine_chunks().take(pa.array(order, pa.int64())).combine_chunks().to_batches()
    return batch
