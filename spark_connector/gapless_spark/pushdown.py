"""Pushdown: what a batch query need not read, according to Spark's filters (option `pushdown`).

Filters on `pubend`, `tick` and `published_at` make the ranges narrower, so less is read; those on `published_at` only
the ranges of pubends whose ticks are times. Filters on `topic`, `key` and `kind` are applied in the task, so less is
passed to Spark. The selector saves more than both: what the broker leaves out is not sent at all.

Spark's filters are recognised by the names of their classes, so this needs no PySpark.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from gapless.core.stream.ticks import FOREVER, MILLISECOND, PubendId, Tick, time_at
from gapless_spark.planning import Range

_MILLISECOND: Final = timedelta(milliseconds=1)
_ROWS: Final = frozenset({"topic", "key", "kind"})
_NEVER_NULL: Final = frozenset({"kind", "pubend", "tick", "tick_from"})


@dataclass(frozen=True)
class RowFilter:
    """A filter on a column of texts."""

    column: str
    values: tuple[str, ...] = ()
    prefix: str | None = None
    """If it is not None, the text must begin with it; otherwise the text must be one of the values."""

    def mask(self, batch: Any) -> Any:
        """Returns which rows of a record batch pass; null never passes."""
        column = batch.column(self.column)
        if self.prefix is not None:
            return pc.starts_with(column, self.prefix)
        return pc.is_in(column, value_set=pa.array(self.values, pa.string()))


@dataclass(frozen=True)
class Pushed:
    """What is left of a query's range. A new one leaves everything."""

    first: Tick = 0
    """No tick below it is wanted."""
    last: Tick = FOREVER
    """No tick above it is wanted."""
    since: Tick = 0
    """No time before that of this tick is wanted."""
    until: Tick = FOREVER
    """No time after that of this tick is wanted."""
    pubends: tuple[PubendId, ...] | None = None
    """Only these pubends are wanted; None: all."""
    rows: tuple[RowFilter, ...] = ()

    @property
    def has_times(self) -> bool:
        """Whether there are times that are not wanted."""
        return (self.since, self.until) != (0, FOREVER)

    def cut(self, ranges: Iterable[Range], timed: Collection[PubendId]) -> list[Range]:
        """Returns what is left of some ranges. An edge that does not move stays as it is.

        `timed`: the pubends whose ticks are known to be times. Of others the records of a time may stand anywhere.
        """
        left = [each for each in ranges if self.pubends is None or each.pubend in self.pubends]
        cut = [_within(each, self.first, self.last) for each in left]
        cut = [_within(each, self.since, self.until) if each.pubend in timed else each for each in cut]
        return [each for each in cut if each.start < each.end]

    def filtered(self, batches: Iterable[Any]) -> Iterable[Any]:
        """Yields the record batches with the rows that pass, without empty ones."""
        return self._filtered(batches) if self.rows else batches

    def _filtered(self, batches: Iterable[Any]) -> Iterable[Any]:
        for batch in batches:
            left = batch
            for each in self.rows:
                left = left.filter(each.mask(left))
            if left.num_rows:
                yield left

    def between(self, first: Tick, last: Tick) -> Pushed:
        """Returns the same, without ticks below `first` or above `last`."""
        return replace(self, first=max(self.first, first), last=min(self.last, last))

    def at_times(self, since: Tick, until: Tick) -> Pushed:
        """Returns the same, without times before that of `since` or after that of `until`."""
        return replace(self, since=max(self.since, since), until=min(self.until, until))


def _within(each: Range, first: Tick, last: Tick) -> Range:
    return Range(each.pubend, max(each.start, first - 1), min(each.end, last))


def push(filters: Sequence[Any]) -> tuple[Pushed, list[Any]]:
    """Returns what can be left out, and the filters that Spark still has to apply. It is deterministic."""
    pushed, left = Pushed(), []
    for each in filters:
        column = each.attribute[0] if len(getattr(each, "attribute", ())) == 1 else None
        taken = None if column is None else _taken(pushed, type(each).__name__, column, getattr(each, "value", None))
        if taken is None:
            left.append(each)
            continue
        pushed, served = taken
        if not served:
            left.append(each)
    return pushed, left


def _taken(pushed: Pushed, operation: str, column: str, value: Any) -> tuple[Pushed, bool] | None:
    """Applies one more filter. Returns the result, and whether Spark can omit the filter; None if it is of no use."""
    if operation == "IsNotNull":
        return (pushed, True) if column in _NEVER_NULL else None
    if column in {"tick", "published_at"}:
        position = _position(column, value)
        edges = None if position is None else _edges(operation, *position)
        if edges is None:
            return None
        # Spark applies it again: the row of a gap or a silence may be cut here, and then its end differs.
        return (pushed.between(*edges) if column == "tick" else pushed.at_times(*edges)), False
    values = _texts(operation, value)
    if column == "pubend" and values is not None:
        known = pushed.pubends
        return replace(pushed, pubends=tuple(each for each in values if known is None or each in known)), True
    if column in _ROWS and values is not None:
        return replace(pushed, rows=(*pushed.rows, RowFilter(column, values))), True
    if column in _ROWS and operation == "StringStartsWith" and isinstance(value, str):
        return replace(pushed, rows=(*pushed.rows, RowFilter(column, prefix=value))), True
    return None


def _texts(operation: str, value: Any) -> tuple[str, ...] | None:
    """Returns the texts that pass; null never passes."""
    values = [value] if operation == "EqualTo" else list(value) if operation == "In" else None
    if values is None or not all(each is None or isinstance(each, str) for each in values):
        return None
    return tuple(each for each in values if each is not None)


def _position(column: str, value: Any) -> tuple[Tick, Tick] | None:
    """Returns the first and the last tick at a value. If the value stands between two, the first is above the last."""
    if column == "tick":
        return (value, value) if type(value) is int else None
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    whole, rest = divmod(value - time_at(0), _MILLISECOND)
    return (whole + bool(rest)) * MILLISECOND, (whole + 1) * MILLISECOND - 1


def _edges(operation: str, first: Tick, last: Tick) -> tuple[Tick, Tick] | None:
    """Returns the first and the last tick that pass, given those at the value."""
    return {
        "EqualTo": (first, last),
        "GreaterThan": (last + 1, FOREVER),
        "GreaterThanOrEqual": (first, FOREVER),
        "LessThan": (0, first - 1),
        "LessThanOrEqual": (0, last),
    }.get(operation)
