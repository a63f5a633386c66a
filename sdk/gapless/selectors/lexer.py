"""The lexer: text to tokens, the words, literals and signs of a selector (Jakarta Messaging 3.1 section 3.8.1.1)."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple, NoReturn

from gapless.errors import InvalidSelectorError

KEYWORDS: Final = frozenset(
    ("NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "NULL", "ESCAPE", "TRUE", "FALSE"),
)
"""The reserved words; upper and lower case may be mixed."""

EXACT_LITERAL_MAX: Final = 1 << 63
"""The largest decimal literal. This very number is allowed only after a minus; the parser checks that."""


class TokenKind(Enum):
    """The kind of a token."""

    IDENTIFIER = "a name"
    KEYWORD = "a keyword"
    STRING = "a string"
    NUMBER = "a number"
    SIGN = "a sign"
    END = "the end"


class Token(NamedTuple):
    """A word, literal or sign, with the offset of its first character.

    `value` is the name, the keyword in capitals, the sign, or the value of the literal.
    """

    kind: TokenKind
    value: str | int | float
    position: int

    def __str__(self) -> str:
        """Returns its name in error texts."""
        if self.kind is TokenKind.END:
            return "the end"
        return repr(self.value) if self.kind is TokenKind.STRING else f"{self.value}"


_SPACE: Final = " \t\f\n\r"
_SIGN: Final = re.compile(r"<>|<=|>=|[=<>+\-*/(),]")
_ASCII_NAME: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_STRING: Final = re.compile(r"'((?:[^']|'')*)'(?!')")
_APPROXIMATE: Final = re.compile(
    r"((?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)[fFdD]?|([0-9]+)[fFdD]",
)
_EXACT: Final = re.compile(r"(0[xX][0-9a-fA-F]+|[0-9]+)[lL]?")

_START_CATEGORIES: Final = frozenset(("Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc"))
_PART_CATEGORIES: Final = _START_CATEGORIES | frozenset(("Nd", "Mc", "Mn"))

_HINTS: Final = {
    "!": "not equal is written <>",
    '"': "a string is written in single quotes",
    "'": "the string does not end",
    ".": "a name has no dots",
    "%": "there is no modulo",
}


def tokens(expression: str) -> Iterator[Token]:
    """Yields the tokens of an expression; the last one has the kind END. Raises InvalidSelectorError."""
    position = 0
    while position < len(expression):
        if expression[position] in _SPACE:
            position += 1
            continue
        token, position = _token(expression, position)
        yield token
    yield Token(TokenKind.END, "", len(expression))


@lru_cache(maxsize=4096)
def canonical(expression: str) -> str:
    """Returns the text of a selector that all its spellings have in common. Raises InvalidSelectorError.

    It has one blank between words, literals and signs, and keywords in capitals; literals and names stay as they are
    written. Two selectors that differ in nothing else are the same selector: to change a blank is no change.
    """
    spelt, position = list[str](), 0
    while position < len(expression):
        if expression[position] in _SPACE:
            position += 1
            continue
        token, end = _token(expression, position)
        spelt.append(str(token.value) if token.kind is TokenKind.KEYWORD else expression[position:end])
        position = end
    return " ".join(spelt)


def is_identifier(name: str) -> bool:
    """Whether a selector can name such a property: it is a Java identifier, and no keyword.

    Java also allows invisible characters in identifiers. Here they are refused, so that names that look the same are
    the same.
    """
    return name != "" and _name_end(name, 0) == len(name) and not _is_keyword(name)


def _token(expression: str, position: int) -> tuple[Token, int]:
    """Returns the token that begins at a position, and where it ends."""
    character = expression[position]
    if character == "'":
        return _string(expression, position)
    if character.isascii() and (character.isdigit() or character == "."):
        return _number(expression, position)
    if sign := _SIGN.match(expression, position):
        return Token(TokenKind.SIGN, sign[0], position), sign.end()
    end = _name_end(expression, position)
    if end == position:
        _refuse_character(expression, position)
    name = expression[position:end]
    if _is_keyword(name):
        return Token(TokenKind.KEYWORD, name.upper(), position), end
    return Token(TokenKind.IDENTIFIER, _shared(name), position), end


@lru_cache(maxsize=1024)
def _shared(name: str) -> str:
    """Returns the same object for equal names: very many selectors use very few names."""
    return name


def _is_keyword(name: str) -> bool:
    # Some letters outside ASCII have the capitals I or S; no reader would take them for a keyword.
    return name.isascii() and name.upper() in KEYWORDS


def _name_end(text: str, start: int) -> int:
    """Returns where the name that begins at `start` ends; `start` itself if no name begins there."""
    ascii_name = _ASCII_NAME.match(text, start)
    end = ascii_name.end() if ascii_name else start
    while end < len(text) and _is_name_character(text[end], first=end == start):
        end += 1
    return end


def _is_name_character(character: str, *, first: bool) -> bool:
    return unicodedata.category(character) in (_START_CATEGORIES if first else _PART_CATEGORIES)


def _string(expression: str, position: int) -> tuple[Token, int]:
    literal = _STRING.match(expression, position)
    if literal is None:
        _refuse_character(expression, position)
    return Token(TokenKind.STRING, literal[1].replace("''", "'"), position), literal.end()


def _number(expression: str, position: int) -> tuple[Token, int]:
    literal = _APPROXIMATE.match(expression, position)
    if literal:
        value: int | float = _approximate(literal[1] or literal[2], expression, position)
    else:
        literal = _EXACT.match(expression, position)
        if literal is None:
            _refuse_character(expression, position)
        value = _exact(literal[1], expression, position)
    end = literal.end()
    if end < len(expression) and _is_name_character(expression[end], first=False):
        raise InvalidSelectorError(
            f"{expression[position : end + 1]!r} is neither a number nor a name", expression, position
        )
    return Token(TokenKind.NUMBER, value, position), end


def _approximate(digits: str, expression: str, position: int) -> float:
    value = float(digits)
    mantissa = re.split("[eE]", digits)[0]
    if math.isinf(value) or (value == 0 and mantissa.strip("0.") != ""):
        raise InvalidSelectorError(f"{digits} is beyond what a double can hold", expression, position)
    return value


def _exact(digits: str, expression: str, position: int) -> int:
    """Returns a Java long: decimal, hexadecimal after 0x, octal after 0; the latter two may set the sign bit."""
    if digits[:2] in ("0x", "0X"):
        return _signed(int(digits, 16), digits, expression, position)
    if digits[0] != "0":
        value = int(digits) if len(digits) <= 19 else EXACT_LITERAL_MAX + 1
        if value > EXACT_LITERAL_MAX:
            raise InvalidSelectorError(f"{digits} is beyond 64 bits", expression, position)
        return value
    if digits.strip("01234567"):
        raise InvalidSelectorError(
            f"{digits} begins with 0, so it is octal, and has other digits", expression, position
        )
    return _signed(int(digits, 8), digits, expression, position)


def _signed(bits: int, digits: str, expression: str, position: int) -> int:
    if bits >= 1 << 64:
        raise InvalidSelectorError(f"{digits} is beyond 64 bits", expression, position)
    return bits - (1 << 64) if bits >= EXACT_LITERAL_MAX else bits


def _refuse_character(expression: str, position: int) -> NoReturn:
    character = expression[position]
    hint = _HINTS.get(character, "no part of a selector")
    raise InvalidSelectorError(f"unexpected {character!r}: {hint}", expression, position)
