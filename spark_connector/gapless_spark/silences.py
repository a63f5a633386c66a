"""Silence as rows: the ranges of ticks in which a subscription has nothing (option `includeSilence`).

Together with events and gaps they account for every tick of what a task reads. A pubend uses one tick in 1024, the
others are its neighbours'; a range without a tick that it could have used is no row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from gapless.core.stream.ticks import STEP, PubendId, Tick


def silence_batch(pubend: PubendId, ranges: Sequence[tuple[Tick, Tick]], schema: Any) -> Any:
    """The record batch of some silences (start, end]: a row for each."""
    count = len(ranges)
    values: Mapping[str, Callable[[], Any]] = {
        "kind": lambda: pa.repeat(pa.scalar("silence"), count),
        "pubend": lambda: pa.repeat(pa.scalar(pubend), count),
        "tick": lambda: pa.array([end for _, end in ranges], pa.int64()),
        "tick_from": lambda: pa.array([start + 1 for start, _ in ranges], pa.int64()),
    }
    arrays = [values[field.name]() if field.name in values else pa.nulls(count, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def is_silence(start: Tick, end: Tick) -> bool:
    """Whether (start, end], in which nothing is, has room for a tick of a pubend."""
    return end - start >= STEP


def with_silences(pubend: PubendId, events: Any, ticks: Sequence[Tick], start: Tick) -> Any:
    """A record batch of events at these ticks, with the silences between them and behind `start`, in order."""
    silences: list[tuple[Tick, Tick]] = []
    order: list[int] = []
    for number, tick in enumerate(ticks):
        if is_silence(start, tick - 1):
            order.append(len(ticks) + len(silences))
            silences.append((start, tick - 1))
        order.append(number)
        start = tick
    if not silences:
        return events
    rows = pa.Table.from_batches([events, silence_batch(pubend, silences, events.schema)])
    (batch,) = rows.combine_chunks().take(pa.array(order, pa.int64())).combine_chunks().to_batches()
    return batch
