"""What a batch need not read, by filters as Spark hands them over."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest

from gapless.core.stream.ticks import FOREVER, MILLISECOND, tick_at_time
from gapless_spark.planning import Range
from gapless_spark.pushdown import Pushed, RowFilter, push


@dataclass(frozen=True)
class Filter:
    """As PySpark's, which are told apart by their names."""

    attribute: tuple[str, ...]
    value: Any = None


def made(operation: str, column: str, value: Any = None) -> Any:
    return type(operation, (Filter,), {})(tuple(column.split(".")), value)


def only(operation: str, column: str, value: Any = None) -> tuple[Pushed, bool]:
    """What one filter leaves, and whether Spark applies it again."""
    pushed, left = push([made(operation, column, value)])
    return pushed, bool(left)


NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
AT = tick_at_time(NOON)
A_LITTLE_LATER = NOON + timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("operation", "column", "value", "first", "last"),
    [
        ("EqualTo", "tick", 7, 7, 7),
        ("GreaterThan", "tick", 7, 8, FOREVER),
        ("GreaterThanOrEqual", "tick", 7, 7, FOREVER),
        ("LessThan", "tick", 7, 0, 6),
        ("LessThanOrEqual", "tick", 7, 0, 7),
    ],
)
def test_ranges_are_cut_and_the_filter_is_applied_again(
    operation: str, column: str, value: Any, first: int, last: int
) -> None:
    assert only(operation, column, value) == (Pushed(first, last), True)


@pytest.mark.parametrize(
    ("operation", "value", "since", "until"),
    [
        ("EqualTo", NOON, AT, AT + MILLISECOND - 1),
        ("GreaterThan", NOON, AT + MILLISECOND, FOREVER),
        ("GreaterThanOrEqual", NOON, AT, FOREVER),
        ("LessThan", NOON, 0, AT - 1),
        ("LessThanOrEqual", NOON, 0, AT + MILLISECOND - 1),
        ("GreaterThan", A_LITTLE_LATER, AT + MILLISECOND, FOREVER),
        ("GreaterThanOrEqual", A_LITTLE_LATER, AT + MILLISECOND, FOREVER),
        ("LessThan", A_LITTLE_LATER, 0, AT + MILLISECOND - 1),
        ("LessThanOrEqual", A_LITTLE_LATER, 0, AT + MILLISECOND - 1),
    ],
)
def test_times_are_cut_where_ticks_are_times(operation: str, value: Any, since: int, until: int) -> None:
    """Of a Kafka partition nothing is cut: its ticks say nothing of times, and would all be read as 2020."""
    pushed, applied_again = only(operation, "published_at", value)
    ranges = [Range("orders.0@id", 0, 1600), Range("p@1", 0, FOREVER)]

    assert (pushed, applied_again) == (Pushed(since=since, until=until), True)
    assert pushed.has_times
    assert not only("EqualTo", "tick", 7)[0].has_times
    left = [Range("p@1", max(0, since - 1), until)] if since <= until else []
    assert pushed.cut(ranges, {"p@1"}) == [ranges[0], *left]


def test_an_event_is_published_within_the_ticks_of_its_time() -> None:
    """No tick is cut that the filter lets pass: with a time between two milliseconds, too."""
    pushed, _ = only("EqualTo", "published_at", A_LITTLE_LATER)

    assert pushed.cut([Range("p@1", 0, FOREVER)], {"p@1"}) == []


def test_pubends_and_rows_are_served_whole() -> None:
    assert only("In", "pubend", ["p@1", "q@1"]) == (Pushed(pubends=("p@1", "q@1")), False)
    assert only("EqualTo", "topic", "t") == (Pushed(rows=(RowFilter("topic", ("t",)),)), False)
    assert only("In", "key", ["a", None]) == (Pushed(rows=(RowFilter("key", ("a",)),)), False)
    assert only("StringStartsWith", "topic", "t.") == (Pushed(rows=(RowFilter("topic", prefix="t."),)), False)
    assert only("IsNotNull", "tick") == (Pushed(), False)


@pytest.mark.parametrize(
    ("operation", "column", "value"),
    [
        ("IsNotNull", "topic", None),
        ("IsNotNull", "properties", None),
        ("EqualTo", "payload", b"x"),
        ("StringContains", "topic", "t"),
        ("EqualTo", "tick", None),
        ("GreaterThan", "tick", 1.5),
        ("In", "tick", [1, 2]),
        ("GreaterThan", "published_at", datetime(2026, 3, 1)),  # noqa: DTZ001 - that is the point
        ("EqualTo", "properties.x", "1"),
    ],
)
def test_what_it_cannot_do_is_left_to_spark(operation: str, column: str, value: Any) -> None:
    assert only(operation, column, value) == (Pushed(), True)


def test_a_negation_is_left_to_spark() -> None:
    """It has a child, and no column of its own."""
    negation = object()

    assert push([negation]) == (Pushed(), [negation])


def test_filters_come_together() -> None:
    filters = [
        made("GreaterThan", "tick", 10),
        made("LessThanOrEqual", "tick", 20),
        made("EqualTo", "pubend", "p@1"),
        made("In", "pubend", ["p@1", "q@1"]),
        made("EqualTo", "topic", "t"),
    ]
    pushed, left = push(filters)

    assert left == filters[:2]
    ranges = [Range("p@1", 0, 15), Range("p@1", 15, 40), Range("q@1", 0, 40), Range("p@1", 40, 50)]
    assert pushed.cut(ranges, ()) == [Range("p@1", 10, 15), Range("p@1", 15, 20)]


def test_rows_are_filtered_where_they_are_read() -> None:
    rows = [("event", "t", "a"), ("event", "t.x", None), ("event", "u", "b"), ("gap", None, None)]
    schema = pa.schema([(name, pa.string()) for name in ("kind", "topic", "key")])
    batch = pa.RecordBatch.from_arrays(
        [pa.array(column, pa.string()) for column in zip(*rows, strict=True)], schema=schema
    )

    def left(*filters: Any) -> list[tuple[Any, ...]]:
        found = push(filters)[0].filtered([batch])
        return [tuple(row.values()) for each in found for row in each.to_pylist()]

    assert left() == rows
    assert left(made("StringStartsWith", "topic", "t")) == rows[:2]
    assert left(made("In", "key", ["a", "b", None])) == [rows[0], rows[2]]
    assert left(made("EqualTo", "kind", "gap")) == rows[3:]
    assert left(made("EqualTo", "kind", "event"), made("EqualTo", "topic", "u")) == [rows[2]]
    assert left(made("EqualTo", "topic", "nowhere")) == []
