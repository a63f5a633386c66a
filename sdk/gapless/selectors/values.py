"""Property values, their kinds, and how they are compared and calculated with.

Values are what properties may hold: bool, int (64 bit), finite float, str; None stands for NULL, an absent
property. A truth value is True, False or None, which is *unknown*: a comparison with NULL is unknown, and
AND, OR and NOT carry it on (Jakarta Messaging 3.1 section 3.8.1.2).
"""

from __future__ import annotations

import math
import operator as operators
from collections.abc import Callable
from enum import Enum
from typing import Final, TypeAlias

Value: TypeAlias = bool | int | float | str | None
Truth: TypeAlias = bool | None


class ValueKind(Enum):
    """What may be compared with what: values of one kind, and nothing else."""

    BOOLEAN = "a boolean"
    NUMBER = "a number"
    STRING = "a string"


def kind_of(value: object) -> ValueKind | None:
    """The kind of a value; None for NULL, and for what cannot be a property and so is unlike everything."""
    if isinstance(value, str):
        return ValueKind.STRING
    if isinstance(value, bool):
        return ValueKind.BOOLEAN
    if isinstance(value, int | float):
        return ValueKind.NUMBER
    return None


ORDERINGS: Final[dict[str, Callable[[float, float], bool]]] = {
    "<": operators.lt,
    "<=": operators.le,
    ">": operators.gt,
    ">=": operators.ge,
}

MIRRORED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""`a < b` says what `b > a` says."""


def compare(left: Value, operator: str, right: Value) -> Truth:
    """`left operator right`: unknown if either is NULL, false if their kinds differ, also for `<>`.

    Only numbers are ordered. An exact and an approximate number are compared by their exact values; Java
    would round the exact one first, and then 2**53 + 1 and 2**53 would both equal the same float.
    """
    if left is None or right is None:
        return None
    kind = kind_of(left)
    if kind is None or kind is not kind_of(right):
        return False
    if operator == "=":
        return left == right
    if operator == "<>":
        return left != right
    return kind is ValueKind.NUMBER and ORDERINGS[operator](left, right)  # type: ignore[arg-type]


def negation(truth: Truth) -> Truth:
    """NOT: what is unknown stays unknown."""
    return None if truth is None else not truth


# --------------------------------------------------------------------------------------- arithmetic

EXACT_MIN: Final = -(1 << 63)
EXACT_MAX: Final = (1 << 63) - 1


def calculate(left: Value, operator: str, right: Value) -> int | float | None:
    """`left operator right` by Java's numeric promotion; NULL if an operand is no number.

    Exact operands give an exact result of 64 bits that wraps around as Java's long does; one approximate
    operand makes the result approximate. NULL also if an exact number is divided by zero: Java would throw.
    """
    if not _is_number(left) or not _is_number(right):
        return None
    if operator == "/":
        return _divide(left, right)  # type: ignore[arg-type]
    return wrapped(_OPERATIONS[operator](left, right))  # type: ignore[arg-type]


def negative(value: Value) -> int | float | None:
    """The value with the other sign; NULL if it is no number."""
    return wrapped(-value) if _is_number(value) else None  # type: ignore[operator]


def number_or_null(value: Value) -> int | float | None:
    """What a unary plus makes of a value."""
    return value if _is_number(value) else None  # type: ignore[return-value]


def wrapped(number: float) -> int | float:
    """An exact number brought back into 64 bits, as two's complement does it; an approximate one as it is."""
    if isinstance(number, int) and not EXACT_MIN <= number <= EXACT_MAX:
        return (number - EXACT_MIN) % (1 << 64) + EXACT_MIN
    return number


def _is_number(value: Value) -> bool:
    return kind_of(value) is ValueKind.NUMBER


_OPERATIONS: Final[dict[str, Callable[[float, float], int | float]]] = {
    "+": operators.add,
    "-": operators.sub,
    "*": operators.mul,
}


def _divide(left: float, right: float) -> int | float | None:
    if isinstance(left, int) and isinstance(right, int):
        return None if right == 0 else wrapped(_truncated_quotient(left, right))
    if right != 0:
        return left / right
    # Approximate numbers divide by zero as IEEE 754 says, and Java with it: to an infinity or to NaN.
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _truncated_quotient(left: int, right: int) -> int:
    """Rounded towards zero, where `//` rounds down."""
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient
