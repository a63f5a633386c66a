from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, IntEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.selectors.columns import ColumnBatch, ValueColumn, group_values
from gapless.selectors.masks import bits_of_events
from gapless.selectors.values import Value, ValueKind, kind_of
from unit.gapless.selectors.strategies import NUMBERS, values


def column(*row: object) -> ValueColumn:
    return ValueColumn(group_values(row), (1 << len(row)) - 1)  # type: ignore[arg-type]


def where(row: Sequence[Value], *kinds: ValueKind | None) -> int:
    return sum(1 << event for event, value in enumerate(row) if kind_of(value) in kinds)


class Text(str, Enum):
    SMALL = "x"


class Number(IntEnum):
    ONE = 1


def test_equal_values_are_one_group() -> None:
    found = column("x", 1, 1.0, "x", None, "y")

    assert found.groups == {"x": 0b001001, 1: 0b000110, "y": 0b100000}
    assert found.null == 0b010000
    assert found.present == 0b101111


def test_booleans_are_no_numbers() -> None:
    found = column(True, 1, False, 0, 1.0)

    assert found.groups == {1: 0b10010, 0: 0b01000}
    assert (found.true, found.false) == (0b00001, 0b00100)
    assert found.numbers == 0b11010


@given(st.lists(values, max_size=20))
def test_strings_and_numbers(row: list[Value]) -> None:
    found = column(*row)

    assert found.strings == where(row, ValueKind.STRING)
    assert found.numbers == where(row, ValueKind.NUMBER)
    assert found.null == where(row, None)
    assert found.true | found.false == where(row, ValueKind.BOOLEAN)


@given(st.lists(values, max_size=20), st.sampled_from(NUMBERS))
def test_order(row: list[Value], limit: float) -> None:
    found = column(*row)
    numbers = {
        event: value
        for event, value in enumerate(row)
        if isinstance(value, int | float) and not isinstance(value, bool)
    }

    assert found.below(limit) == sum(1 << event for event, value in numbers.items() if value < limit)
    assert found.at_most(limit) == sum(1 << event for event, value in numbers.items() if value <= limit)
    assert found.above(limit) == sum(1 << event for event, value in numbers.items() if value > limit)
    assert found.at_least(limit) == sum(1 << event for event, value in numbers.items() if value >= limit)


def test_a_test_is_asked_once_for_each_distinct_value() -> None:
    asked: list[Value] = []

    def test(value: Value) -> bool:
        asked.append(value)
        return value in ("x", None)

    assert column("x", "x", 1, None, 1, True).where(test) == 0b001011
    assert asked == [None, True, "x", 1]


def test_members_of_enumerations_are_what_they_are() -> None:
    found = column(Text.SMALL, Number.ONE, "x", 1)

    assert found.groups == {"x": 0b0101, 1: 0b1010}


def test_what_is_no_property_is_there_and_like_nothing() -> None:
    found = column([1], b"x", None)

    assert found.present == 0b011
    assert found.strings | found.numbers | found.true | found.false == 0


@pytest.mark.parametrize(("row", "expected"), [((1, 2), False), ((1, 2.0), True), (("x", None), False)])
def test_floats_are_told(row: tuple[Value, ...], *, expected: bool) -> None:
    assert column(*row).has_floats is expected


def test_a_batch_makes_a_column_once() -> None:
    batch = ColumnBatch([{"a": 1}, {}], [{}] * 2)

    assert batch.column("a") is batch.column("a")
    assert batch.column("a").groups == {1: 0b01}
    assert batch.full == 0b11


def test_header_fields_come_from_the_headers() -> None:
    properties: list[dict[str, Value]] = [{"JMSPriority": 9, "a": 1}, {}]
    with_headers = ColumnBatch(properties, [{"a": 2}, {"JMSPriority": 4}])
    without = ColumnBatch(properties, [{}, {}])

    assert with_headers.column("JMSPriority").groups == {4: 0b10}
    assert with_headers.column("a").groups == {1: 0b01}
    assert without.column("JMSPriority").null == 0b11
    assert with_headers.where(lambda _properties, headers: "JMSPriority" in headers) == 0b10
    assert without.where(lambda properties, headers: "a" in properties and not headers) == 0b01


def test_all_batches_share_the_masks_of_single_events() -> None:
    assert ColumnBatch([{}] * 5, [{}] * 5).bits is bits_of_events(5)
