"""Values that keep the type they were written with, and the types as which they can be read.

Jakarta Messaging 3.1: the tables of sections 3.5.4, for properties, and 3.11.3, for bodies. Python has one kind of
integer and one of floating-point number, so a value is stored with its type: what was written as an int can be read as
a long, and not as a short.
"""

from __future__ import annotations

import re
import struct
from enum import Enum
from math import isfinite
from typing import Any, Final, NamedTuple

from gapless.jms.errors import MessageFormatError, NumberFormatError
from gapless.texts import a_or_an, exact, text_problem


class ValueType(str, Enum):
    """The types of Java's values; their names are what is sent."""

    BOOLEAN = "boolean"
    BYTE = "byte"
    SHORT = "short"
    CHAR = "char"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    STRING = "string"
    BYTES = "bytes"


class TypedValue(NamedTuple):
    """A value and the type with which it was written; of an absent value (None) the type means nothing."""

    type: ValueType
    value: Any


_BITS: Final = {ValueType.BYTE: 8, ValueType.SHORT: 16, ValueType.INT: 32, ValueType.LONG: 64}
_NUMBERS: Final = {*_BITS, ValueType.FLOAT, ValueType.DOUBLE}
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,100}", re.ASCII)
_DECIMAL: Final = re.compile(
    r"([+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))[fFdD]?|([+-]?(?:Infinity|NaN))", re.ASCII
)
_HEXADECIMAL: Final = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?", re.ASCII
)
_TRIMMED: Final = "".join(map(chr, range(0x21)))
"""What Java's String.trim takes away, and so Double.valueOf and Float.valueOf do; Long.valueOf takes nothing away."""

_B, _S, _I, _L = ValueType.BYTE, ValueType.SHORT, ValueType.INT, ValueType.LONG
_READABLE: Final[dict[ValueType, set[ValueType]]] = {
    ValueType.BOOLEAN: {ValueType.BOOLEAN, ValueType.STRING},
    ValueType.BYTE: {_B, _S, _I, _L, ValueType.STRING},
    ValueType.SHORT: {_S, _I, _L, ValueType.STRING},
    ValueType.CHAR: {ValueType.CHAR, ValueType.STRING},
    ValueType.INT: {_I, _L, ValueType.STRING},
    ValueType.LONG: {_L, ValueType.STRING},
    ValueType.FLOAT: {ValueType.FLOAT, ValueType.DOUBLE, ValueType.STRING},
    ValueType.DOUBLE: {ValueType.DOUBLE, ValueType.STRING},
    ValueType.STRING: {ValueType.BOOLEAN, *_NUMBERS, ValueType.STRING},
    ValueType.BYTES: {ValueType.BYTES},
}
"""What was written as the key can be read as these."""

PROPERTY_TYPES: Final = frozenset(ValueType) - {ValueType.CHAR, ValueType.BYTES}


def written(kind: ValueType, value: Any) -> TypedValue:
    """The value, checked: a Java compiler would have. Raises MessageFormatError."""
    if kind in _BITS:
        half = 1 << (_BITS[kind] - 1)
        if isinstance(value, bool) or not isinstance(value, int):
            raise _is_no(kind, value)
        if not -half <= value < half:
            raise MessageFormatError(f"{value} does not fit into {a_or_an(kind.value)} of {_BITS[kind]} bits")
        return TypedValue(kind, int.__index__(value))
    if kind in {ValueType.FLOAT, ValueType.DOUBLE}:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise _is_no(kind, value)
        number = float.__float__(value) if isinstance(value, float) else float(int.__index__(value))
        return TypedValue(kind, number if kind is ValueType.DOUBLE else _single(number))
    if kind is ValueType.BYTES:
        if value is not None and not isinstance(value, (bytes, bytearray, memoryview)):
            raise _is_no(kind, value)
        return TypedValue(kind, None if value is None else bytes(value))
    if kind is ValueType.BOOLEAN and isinstance(value, bool):
        return TypedValue(kind, value)
    if kind is ValueType.CHAR and isinstance(value, str) and len(value) == 1 and value <= "\uffff":
        return TypedValue(kind, exact(value))
    if kind is ValueType.STRING and (value is None or isinstance(value, str)):
        return TypedValue(kind, None if value is None else checked_text(value, "a string"))
    raise _is_no(kind, value)


def guessed(value: Any) -> TypedValue:
    """The value with the type that Python's has: bool, int (a long), float (a double), str, bytes, None."""
    if isinstance(value, bool):
        return TypedValue(ValueType.BOOLEAN, value)
    if isinstance(value, int):
        return written(ValueType.LONG, value)
    if isinstance(value, float):
        return written(ValueType.DOUBLE, value)
    if value is None or isinstance(value, str):
        return written(ValueType.STRING, value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return written(ValueType.BYTES, value)
    raise MessageFormatError(f"{a_or_an(type(value).__name__)} cannot be stored: bool, int, float, str and bytes can")


def checked_text(text: Any, what: str) -> str:
    """Returns a text that can be sent. Raises MessageFormatError."""
    if problem := text_problem(text):
        raise MessageFormatError(f"{what} {problem}")
    return exact(text)


def sendable(value: TypedValue) -> TypedValue:
    """The value, if it can be sent in a map or a stream: a char must be one of UTF-8. Raises MessageFormatError."""
    if value.type is ValueType.CHAR:
        checked_text(value.value, "a char")
    return value


def read(stored: TypedValue | None, kind: ValueType) -> Any:
    """What was stored, as another type. None: nothing was.

    Raises MessageFormatError if the tables do not have it, NumberFormatError if a text, or nothing, is no such number.
    """
    if stored is None or stored.value is None:
        return _absent(kind)
    if kind not in _READABLE[stored.type]:
        was, asked = a_or_an(stored.type.value), a_or_an(kind.value)
        raise MessageFormatError(f"what was written as {was} cannot be read as {asked}")
    if kind is ValueType.STRING:
        return _text(stored.value)
    if stored.type is ValueType.STRING:
        return _parsed(stored.value, kind)
    return stored.value


def _absent(kind: ValueType) -> Any:
    """As Java: what `valueOf(null)` of the type gives."""
    if kind in _NUMBERS:
        raise NumberFormatError(f"there is no value, which is no {kind.value}")
    if kind is ValueType.CHAR:
        raise MessageFormatError("there is no value, which is no char")
    return False if kind is ValueType.BOOLEAN else None


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"  # noqa: PLR0124 - NaN alone
    return str(value)


def _parsed(text: str, kind: ValueType) -> Any:
    if kind is ValueType.BOOLEAN:
        return text.lower() == "true"
    if kind in _BITS:
        half = 1 << (_BITS[kind] - 1)
        if _WHOLE.fullmatch(text) and -half <= int(text) < half:
            return int(text)
    else:
        number = _real(text.strip(_TRIMMED))
        if number is not None:
            return number if kind is ValueType.DOUBLE else _single(number)
    raise NumberFormatError(f"the text {text[:50]!r} is no {kind.value}")


def _real(text: str) -> float | None:
    """The number that Java's Double.valueOf reads in a trimmed text; None if it reads none."""
    if decimal := _DECIMAL.fullmatch(text):
        return float(decimal[1] or decimal[2])
    if hexadecimal := _HEXADECIMAL.fullmatch(text):
        try:
            return float.fromhex(hexadecimal[1])
        except OverflowError:
            return float("-inf" if text.startswith("-") else "inf")
    return None


def _single(value: float) -> float:
    """The nearest number of 32 bits; beyond the largest it is infinite, as Java's cast has it."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _is_no(kind: ValueType, value: Any) -> MessageFormatError:
    return MessageFormatError(f"{value!r:.60} is no {kind.value}")
