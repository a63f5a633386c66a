from __future__ import annotations

import math
from enum import IntEnum

import pytest

from gapless.selectors.values import Truth, Value, ValueKind, calculate, compare, kind_of, negation, negative


class Level(IntEnum):
    HIGH = 2


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, ValueKind.BOOLEAN),
        (1, ValueKind.NUMBER),
        (1.0, ValueKind.NUMBER),
        (Level.HIGH, ValueKind.NUMBER),
        ("1", ValueKind.STRING),
        (None, None),
        (b"1", None),
    ],
)
def test_a_value_has_one_kind(value: object, kind: ValueKind | None) -> None:
    assert kind_of(value) is kind


@pytest.mark.parametrize(
    ("left", "operator", "right", "expected"),
    [
        (1, "=", 1.0, True),
        (1, "<", 1.5, True),
        (2, ">=", 2, True),
        ("a", "=", "a", True),
        ("a", "<>", "b", True),
        (True, "=", True, True),
        (True, "<>", False, True),
        # what is unlike
        (1, "=", "1", False),
        (1, "<>", "1", False),
        (1, "=", True, False),
        (1, "<>", True, False),
        (0, "<", "1", False),
        (b"a", "<>", b"b", False),
        # what has no order
        ("a", "<", "b", False),
        (False, "<", True, False),
        # what is unknown
        (None, "=", None, None),
        (None, "<>", "a", None),
        (1, "<", None, None),
    ],
)
def test_comparing(left: Value, operator: str, right: Value, expected: Truth) -> None:
    """Jakarta Messaging 3.1 section 3.8.1.2."""
    assert compare(left, operator, right) is expected


def test_numbers_are_compared_by_their_exact_values() -> None:
    assert compare(2**53 + 1, "=", float(2**53)) is False
    assert compare(2**53 + 1, ">", float(2**53)) is True


@pytest.mark.parametrize(("truth", "expected"), [(True, False), (False, True), (None, None)])
def test_the_negation_of_unknown_is_unknown(truth: Truth, expected: Truth) -> None:
    assert negation(truth) is expected


@pytest.mark.parametrize(
    ("left", "operator", "right", "expected"),
    [
        (1, "+", 2, 3),
        (1, "+", 2.0, 3.0),
        (7, "-", 9, -2),
        (3, "*", 0.5, 1.5),
        (17, "/", 4, 4),
        (-17, "/", 4, -4),
        (17, "/", -4, -4),
        (17, "/", 4.0, 4.25),
        (2**63 - 1, "+", 1, -(2**63)),
        (-(2**63), "-", 1, 2**63 - 1),
        (2**62, "*", 4, 0),
        (-(2**63), "/", -1, -(2**63)),
    ],
)
def test_calculating_as_java_promotes(left: Value, operator: str, right: Value, expected: float) -> None:
    result = calculate(left, operator, right)

    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize("operator", ["+", "-", "*", "/"])
@pytest.mark.parametrize("other", [None, "1", True])
def test_what_is_no_number_gives_null(operator: str, other: Value) -> None:
    assert calculate(other, operator, 1) is None
    assert calculate(1.0, operator, other) is None


def test_an_exact_division_by_zero_gives_null() -> None:
    assert calculate(1, "/", 0) is None


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [(1.0, 0, math.inf), (-1, 0.0, -math.inf), (1.0, -0.0, -math.inf), (math.inf, 0.0, math.inf)],
)
def test_an_approximate_division_by_zero_gives_an_infinity(left: float, right: float, expected: float) -> None:
    assert calculate(left, "/", right) == expected


def test_zero_by_an_approximate_zero_is_not_a_number() -> None:
    result = calculate(0.0, "/", 0)

    assert result is not None
    assert math.isnan(result)
    assert compare(result, "=", result) is False
    assert compare(result, "<>", result) is True


def test_the_negative() -> None:
    assert negative(5) == -5
    assert negative(-(2**63)) == -(2**63)
    assert negative("5") is None
    assert negative(True) is None
