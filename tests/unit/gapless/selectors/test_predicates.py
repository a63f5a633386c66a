from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.selectors.columns import ColumnBatch
from gapless.selectors.like import LikePattern
from gapless.selectors.parser import parse
from gapless.selectors.predicates import (
    Absent,
    BoundPredicate,
    Computed,
    Is,
    NoneOf,
    OneOf,
    Predicate,
    Present,
    Refuted,
    Resembles,
    Unary,
)
from gapless.selectors.values import Value, ValueKind
from unit.gapless.selectors.strategies import NUMBERS, TEXTS, VALUES, events, headers

BITS = [1 << event for event in range(64)]

UNARY: list[Unary] = [
    OneOf("a", ("x",)),
    OneOf("a", (1, "x", "y")),
    OneOf("a", (0,)),
    NoneOf("a", ValueKind.STRING, ("x", "y")),
    NoneOf("a", ValueKind.NUMBER, (1,)),
    *(BoundPredicate("a", operator, limit) for operator in ("<", "<=", ">", ">=") for limit in (1, 0.5, 2**53 + 1)),
    Resembles("a", LikePattern.parse("x%"), negated=False),
    Resembles("a", LikePattern.parse("%y_"), negated=True),
    Is("a", wanted=True),
    Is("a", wanted=False),
    Absent("a"),
    Present("a"),
    OneOf("JMSType", ("x",)),
    Refuted("JMSPriority", BoundPredicate("JMSPriority", ">", 4)),
]
REFUTED: list[Unary] = [Refuted(predicate.name, predicate) for predicate in UNARY[:-4]]
COMPUTED: list[Predicate] = [
    Computed(parse(expression), wanted)
    for expression in ("a / 2 = 0", "1 / a > 0", "a = b", "a < b + 1", "JMSPriority * 2 > 8", "-a = c")
    for wanted in (True, False)
]


@given(st.sampled_from([*UNARY, *REFUTED, *COMPUTED]), st.lists(st.tuples(events, headers), max_size=12))
def test_both_forms_agree(predicate: Predicate, rows: list[tuple[dict[str, Value], dict[str, Value]]]) -> None:
    test = predicate.event_test()
    expected = sum(BITS[event] for event, row in enumerate(rows) if test(*row))
    batch = ColumnBatch([properties for properties, _ in rows], [fields for _, fields in rows])

    assert predicate.batch_mask()(batch) == expected


def holding(predicate: Unary) -> set[tuple[type, Value]]:
    """For which of the values it holds; with types, for True is 1 to a set."""
    test = predicate.test()
    return {(type(value), value) for value in VALUES if test(value)}


def typed(*values: Value) -> set[tuple[type, Value]]:
    return {(type(value), value) for value in values}


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (OneOf("a", (1, "x")), typed(1, 1.0, "x")),
        (NoneOf("a", ValueKind.STRING, ("x",)), typed(*(text for text in TEXTS if text != "x"))),
        (NoneOf("a", ValueKind.NUMBER, (0,)), typed(*(number for number in NUMBERS if number != 0))),
        (BoundPredicate("a", ">", 2), typed(*(number for number in NUMBERS if number > 2))),
        (BoundPredicate("a", "<=", 0), typed(*(number for number in NUMBERS if number <= 0))),
        (Is("a", wanted=True), typed(True)),
        (Is("a", wanted=False), typed(False)),
        (Absent("a"), typed(None)),
        (Present("a"), typed(*VALUES) - typed(None)),
        (Resembles("a", LikePattern.parse("x_"), negated=False), typed("xy")),
    ],
)
def test_for_which_values_they_hold(predicate: Unary, expected: set[tuple[type, Value]]) -> None:
    assert holding(predicate) == expected
    assert holding(Refuted("a", predicate)) == typed(*VALUES) - typed(None) - expected


def test_equal_predicates_are_equal_and_unlike_ones_are_not() -> None:
    assert OneOf("a", (1,)) == OneOf("a", (1.0,))
    assert hash(OneOf("a", (1,))) == hash(OneOf("a", (1.0,)))
    unlike: list[Predicate] = [Is("a", wanted=True), OneOf("a", (1,)), Absent("a"), Present("a"), Absent("b")]
    assert len(set(unlike)) == len(unlike)


def test_what_depends_on_one_name_is_computed_once_for_each_value() -> None:
    predicate = Computed(parse("a * 2 = 4"), wanted=True)
    batch = ColumnBatch([{"a": event % 3} for event in range(12)], [{}] * 12)

    assert predicate.batch_mask()(batch) == sum(BITS[event] for event in range(12) if event % 3 == 2)
