"""Property values: their kinds, comparison and arithmetic.

A value is a possible value of a property: bool, int (64 bit), finite float, str; None stands for NULL, an absent
property. A truth value is True, False or None, which means *unknown*: a comparison with NULL is unknown, and so may be
AND, OR and NOT of it (Jakarta Messaging 3.1 section 3.8.1.2).
"""

from __future__ import annotations

import math
import operator as operators
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, TypeAlias

from gapless.errors import InvalidMessageError
from gapless.texts import exact, text_problem

Value: TypeAlias = bool | int | float | str | None
Truth: TypeAlias = bool | None


class ValueKind(Enum):
    """The kinds of values. Only values of the same kind can be compared."""

    BOOLEAN = "a boolean"
    NUMBER = "a number"
    STRING = "a string"


def kind_of(value: object) -> ValueKind | None:
    """Returns the kind of a value; None for NULL, and for an object that cannot be a property."""
    if isinstance(value, str):
        return ValueKind.STRING
    if isinstance(value, bool):
        return ValueKind.BOOLEAN
    if isinstance(value, int | float):
        return ValueKind.NUMBER
    return None


EXACT_MIN: Final = -(1 << 63)
EXACT_MAX: Final = (1 << 63) - 1

PLAIN: Final = frozenset((bool, int, float, str))
"""The types of property values. What is of a subclass becomes plain where it enters; anything else is refused."""


def plain_properties(properties: Any) -> Mapping[str, Any]:
    """Returns properties as every event has them: a plain name, and a plain value for each that is not None.

    Raises InvalidMessageError, which names the wrong property.
    """
    if properties is None:
        return {}
    if not isinstance(properties, Mapping):
        raise InvalidMessageError(f"properties are a mapping, not {type(properties).__name__}")
    return {_plain_name(name): plain_value(name, value) for name, value in properties.items() if value is not None}


def _plain_name(name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise InvalidMessageError(f"the name of a property is a str that is not empty, not {name!r}")
    if problem := text_problem(name):
        raise InvalidMessageError(f"the name of a property {problem}")
    return exact(name)


def plain_value(name: str, value: Any) -> bool | int | float | str:
    """Returns the plain value of a property: by its exact type, never converted from anything else.

    An instance of a subclass (a member of an IntEnum or a StrEnum, a numpy.float64) is the number or text that it is,
    whatever its own conversions return. Raises InvalidMessageError.
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        if problem := text_problem(value):
            raise InvalidMessageError(f"property {name!r} {problem}")
        return exact(value)
    if isinstance(value, int):
        number = int.__index__(value)
        if not EXACT_MIN <= number <= EXACT_MAX:
            raise InvalidMessageError(f"property {name!r}: {number} does not fit into 64 bits")
        return number
    if isinstance(value, float):
        real = float.__float__(value)
        if not math.isfinite(real):
            raise InvalidMessageError(f"property {name!r}: {real} is no finite number; None means absent")
        return real
    kind = type(value)
    called = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    raise InvalidMessageError(
        f"property {name!r} is a {called}: properties are bool, int, float or str, and None is absent; make it one of"
        " these first (a number of numpy's has .item())"
    )


ORDERINGS: Final[dict[str, Callable[[float, float], bool]]] = {
    "<": operators.lt,
    "<=": operators.le,
    ">": operators.gt,
    ">=": operators.ge,
}

MIRRORED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""The operator for swapped operands: `a < b` means `b > a`."""


def compare(left: Value, operator: str, right: Value) -> Truth:
    """Returns `left operator right`: unknown if either is NULL, false if their kinds differ, also for `<>`.

    Only numbers have an order. An exact and an approximate number are compared by their exact values. Java would round
    the exact one first; then 2**53 + 1 and 2**53 would both equal the same float.
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
    """NOT: unknown stays unknown."""
    return None if truth is None else not truth


# --------------------------------------------------------------------------------------- arithmetic


def calculate(left: Value, operator: str, right: Value) -> int | float | None:
    """Returns `left operator right` by Java's numeric promotion; NULL if an operand is no number.

    Exact operands give an exact result of 64 bits that wraps around, as Java's long does. One approximate operand makes
    the result approximate. It is also NULL if an exact number is divided by zero, where Java would throw.
    """
    if not _is_number(left) or not _is_number(right):
        return None
    if operator == "/":
        return _divide(left, right)  # type: ignore[arg-type]
    return wrapped(_OPERATIONS[operator](left, right))  # type: ignore[arg-type]


def negative(value: Value) -> int | float | None:
    """Returns the value with the other sign; NULL if it is no number."""
    return wrapped(-value) if _is_number(value) else None  # type: ignore[operator]


def number_or_null(value: Value) -> int | float | None:
    """Returns the result of a unary plus."""
    return value if _is_number(value) else None  # type: ignore[return-value]


def wrapped(number: float) -> int | float:
    """Returns an exact number wrapped into 64 bits, as two's complement does; an approximate one unchanged."""
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
    # Approximate numbers divide by zero as in IEEE 754, and in Java: the result is an infinity or NaN.
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _truncated_quotient(left: int, right: int) -> int:
    """Returns the quotient rounded towards zero; `//` would round down."""
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient
