"""What a batch query needs not read, by the filters that Spark knows before (option `pushdown`).

Filters on `pubend`, `tick` and `published_at` make the ranges narrower, so less is read; filters on `topic`, `key` and
`kind` are applied where a task has the rows, so less is handed to Spark. The selector does more than both: what the
broker leaves out comes over no wire. Spark's filters are told apart by their names, so this needs no PySpark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    """If it is not None, what the text begins with; otherwise it is one of the values."""

    def mask(self, batch: Any) -> Any:
        """Which rows of a record batch pass; null is none of them."""
        column = batch.column(self.column)
        if self.prefix is not None:
            return pc.starts_with(column, self.prefix)
        return pc.is_in(column, value_set=pa.array(self.values, pa.string()))


@dataclass(frozen=True)
class Pushed:
    """What is left of a query's range. As it is made, everything."""

    first: Tick = 0
    """No tick below it is wanted."""
    last: Tick = FOREVER
    """No tick above it is wanted."""
    pubends: tuple[PubendId, ...] | None = None
    """Only these; None: all."""
    rows: tuple[RowFilter, ...] = ()

    def cut(self, ranges: Iterable[Range]) -> list[Range]:
        """What is left of some ranges. An edge that does not move stays as it is."""
        cut = [
            Range(each.pubend, max(each.start, self.first - 1), min(each.end, self.last))
            for each in ranges
            if self.pubends is None or each.pubend in self.pubends
        ]
        return [each for each in cut if each.start < each.end]

    def filtered(self, batches: Iterable[Any]) -> Iterable[Any]:
        """The record batches with the rows that pass, without those that have none."""
        return self._filtered(batches) if self.rows else batches

    def _filtered(self, batches: Iterable[Any]) -> Iterable[Any]:
        for batch in batches:
            left = batch
            for each in self.rows:
                left = left.filter(each.mask(left))
            if left.num_rows:
                yield left

    def between(self, first: Tick, last: Tick) -> Pushed:
        """With no tick below `first`, and none above `last`."""
        return replace(self, first=max(self.first, first), last=min(self.last, last))


def push(filters: Sequence[Any]) -> tuple[Pushed, list[Any]]:
    """What can be left out, and the filters that Spark still has to apply. The same for the same filters."""
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
    """With one more filter, and whether Spark needs not apply it any more; None where it is of no use."""
    if operation == "IsNotNull":
        return (pushed, True) if column in _NEVER_NULL else None
    if column in {"tick", "published_at"}:
        position = _position(column, value)
        edges = None if position is None else _edges(operation, *position)
        # Spark applies it again: the row of a gap, or of a silence, is cut here and has its end elsewhere.
        return None if edges is None else (pushed.between(*edges), False)
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
    """The texts that pass; null passes nowhere."""
    values = [value] if operation == "EqualTo" else list(value) if operation == "In" else None
    if values is None or not all(each is None or isinstance(each, str) for each in values):
        return None
    return tuple(each for each in values if each is not None)


def _position(column: str, value: Any) -> tuple[Tick, Tick] | None:
    """The first and the last tick that are at a value; the first is above the last if it stands between two."""
    if column == "tick":
        return (value, value) if type(value) is int else None
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    whole, rest = divmod(value - time_at(0), _MILLISECOND)
    return (whole + bool(rest)) * MILLISECOND, (whole + 1) * MILLISECOND - 1


def _edges(operation: str, first: Tick, last: Tick) -> tuple[Tick, Tick] | None:
    """The first and the last tick that pass, by those that are at the value."""
    return {
        "EqualTo": (first, last),
        "GreaterThan": (last + 1, FOREVER),
        "GreaterThanOrEqual": (first, FOREVER),
        "LessThan": (0, first - 1),
        "LessThanOrEqual": (0, last),
    }.get(operation)
