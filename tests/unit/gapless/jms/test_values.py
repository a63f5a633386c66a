"""The conversion tables of JMS 3.1, sections 3.5.4 and 3.11.3: each cell."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest

from gapless.jms.errors import MessageFormatError, NumberFormatError
from gapless.jms.values import TypedValue, ValueType, guessed, read, written
from gapless.texts import a_or_an

WRITTEN: dict[ValueType, Any] = {
    ValueType.BOOLEAN: True,
    ValueType.BYTE: 7,
    ValueType.SHORT: 7,
    ValueType.CHAR: "7",
    ValueType.INT: 7,
    ValueType.LONG: 7,
    ValueType.FLOAT: 7.5,
    ValueType.DOUBLE: 7.5,
    ValueType.STRING: "7",
    ValueType.BYTES: b"7",
}
TABLE = """
            boolean byte short char int long float double string bytes
    boolean X       .    .     .    .   .    .     .      X      .
    byte    .       X    X     .    X   X    .     .      X      .
    short   .       .    X     .    X   X    .     .      X      .
    char    .       .    .     X    .   .    .     .      X      .
    int     .       .    .     .    X   X    .     .      X      .
    long    .       .    .     .    .   X    .     .      X      .
    float   .       .    .     .    .   .    X     X      X      .
    double  .       .    .     .    .   .    .     X      X      .
    string  X       X    X     .    X   X    X     X      X      .
    bytes   .       .    .     .    .   .    .     .      .      X
"""
HEADING, *ROWS = TABLE.strip().splitlines()
CELLS = {
    (ValueType(row.split()[0]), ValueType(column)): mark == "X"
    for row in ROWS
    for column, mark in zip(HEADING.split(), row.split()[1:], strict=True)
}


@pytest.mark.parametrize(("stored", "asked"), list(product(ValueType, ValueType)))
def test_each_cell_of_the_table(stored: ValueType, asked: ValueType) -> None:
    value = written(stored, WRITTEN[stored])
    if not CELLS[stored, asked]:
        was, wanted = a_or_an(stored.value), a_or_an(asked.value)
        with pytest.raises(MessageFormatError, match=f"written as {was} cannot be read as {wanted}"):
            read(value, asked)
        return
    found = read(value, asked)
    expected = {ValueType.BOOLEAN: "true", ValueType.FLOAT: "7.5", ValueType.DOUBLE: "7.5"}.get(stored, "7")
    if asked is ValueType.STRING:
        assert found == expected
    elif stored is ValueType.STRING:
        assert found == (False if asked is ValueType.BOOLEAN else 7)
    else:
        assert found == WRITTEN[stored]


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        *((kind, wrong) for kind in (ValueType.BYTE, ValueType.INT) for wrong in (True, 1.0, "1", None)),
        (ValueType.BYTE, 128),
        (ValueType.BYTE, -129),
        (ValueType.SHORT, 1 << 15),
        (ValueType.INT, 1 << 31),
        (ValueType.LONG, 1 << 63),
        (ValueType.LONG, -(1 << 63) - 1),
        (ValueType.DOUBLE, "1"),
        (ValueType.DOUBLE, False),
        (ValueType.BOOLEAN, 1),
        (ValueType.CHAR, "ab"),
        (ValueType.CHAR, "🥕"),
        (ValueType.CHAR, None),
        (ValueType.STRING, b"x"),
        (ValueType.BYTES, "x"),
    ],
)
def test_what_does_not_fit_is_refused(kind: ValueType, wrong: object) -> None:
    with pytest.raises(MessageFormatError):
        written(kind, wrong)


def test_python_values_have_a_type() -> None:
    values = [True, 5, 5.0, "x", b"x", None]

    assert [guessed(value).type.value for value in values] == ["boolean", "long", "double", "string", "bytes", "string"]
    wrongs: list[object] = [[], 1j, 1 << 63]
    for wrong in wrongs:
        with pytest.raises(MessageFormatError):
            guessed(wrong)


@pytest.mark.parametrize("stored", [None, TypedValue(ValueType.STRING, None)])
def test_what_is_absent_is_read_as_java_does(stored: TypedValue | None) -> None:
    assert read(stored, ValueType.STRING) is None
    assert read(stored, ValueType.BYTES) is None
    assert read(stored, ValueType.BOOLEAN) is False
    for kind in (ValueType.BYTE, ValueType.SHORT, ValueType.INT, ValueType.LONG, ValueType.FLOAT, ValueType.DOUBLE):
        with pytest.raises(NumberFormatError):
            read(stored, kind)
    with pytest.raises(MessageFormatError):
        read(stored, ValueType.CHAR)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("TRUE", ValueType.BOOLEAN, True),
        ("yes", ValueType.BOOLEAN, False),
        ("-128", ValueType.BYTE, -128),
        ("+12", ValueType.INT, 12),
        ("1e3", ValueType.DOUBLE, 1000.0),
        (".5", ValueType.DOUBLE, 0.5),
        ("0.1", ValueType.FLOAT, 0.10000000149011612),
        ("1e39", ValueType.FLOAT, math.inf),
        ("-Infinity", ValueType.DOUBLE, -math.inf),
        (" 1.5\n", ValueType.DOUBLE, 1.5),
        ("\x00\t1.5 ", ValueType.FLOAT, 1.5),
        ("2d", ValueType.DOUBLE, 2.0),
        ("2.5F", ValueType.DOUBLE, 2.5),
        ("0x1.8p1", ValueType.DOUBLE, 3.0),
        ("-0X.8P0f", ValueType.DOUBLE, -0.5),
        ("-0x1p9999", ValueType.DOUBLE, -math.inf),
        ("+Infinity ", ValueType.FLOAT, math.inf),
    ],
)
def test_texts_are_parsed(text: str, kind: ValueType, value: object) -> None:
    assert read(written(ValueType.STRING, text), kind) == value


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("128", ValueType.BYTE),
        ("1.0", ValueType.INT),
        ("1_0", ValueType.LONG),
        (" 1", ValueType.LONG),
        ("٣", ValueType.LONG),
        ("9" * 5000, ValueType.LONG),
        ("", ValueType.DOUBLE),
        ("inf", ValueType.DOUBLE),
        ("1 5", ValueType.DOUBLE),
        ("\u00a01.5", ValueType.DOUBLE),
        ("0x1.8", ValueType.DOUBLE),
        ("NaNf", ValueType.DOUBLE),
        ("1_0", ValueType.DOUBLE),
    ],
)
def test_texts_that_are_no_number_are_an_error(text: str, kind: ValueType) -> None:
    with pytest.raises(NumberFormatError):
        read(written(ValueType.STRING, text), kind)
    with pytest.raises(ValueError, match="is no"):
        read(written(ValueType.STRING, text), kind)


def test_a_float_has_32_bits() -> None:
    assert written(ValueType.FLOAT, 0.1).value == 0.10000000149011612
    assert written(ValueType.FLOAT, -1e300).value == -math.inf
    assert read(TypedValue(ValueType.DOUBLE, math.nan), ValueType.STRING) == "NaN"
