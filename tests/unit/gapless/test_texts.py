"""What a text may hold: one place for every text that enters."""

from __future__ import annotations

from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.texts import NAME_BYTES_MAX, a_or_an, control_problem, exact, name_problem, text_problem, unwritable_at


class Shouting(str):
    __slots__ = ()

    def __str__(self) -> str:
        return self.upper()


class Origin(str, Enum):
    KENNEDY = "JFK"


@given(st.text(st.characters(exclude_categories=())))
def test_a_text_is_taken_if_it_can_be_written(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        assert unwritable_at(text) == error.start
        assert repr(text[error.start]) in text_problem(text)
    else:
        assert (unwritable_at(text), text_problem(text)) == (None, "")


@pytest.mark.parametrize("wrong", [5, None, b"bytes", ["a"]])
def test_what_is_no_text_is_named(wrong: Any) -> None:
    assert text_problem(wrong) == f"is a str, not {type(wrong).__name__}"
    assert name_problem(wrong) == f"is a str, not {type(wrong).__name__}"


@pytest.mark.parametrize("text", [Shouting("jfk"), Origin.KENNEDY, "plain"])
def test_a_text_of_a_subclass_is_its_characters(text: str) -> None:
    assert type(exact(text)) is str
    assert exact(text) == str.__str__(text)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("desk-7", ""),
        ("ä" * (NAME_BYTES_MAX // 2), ""),
        ("", "is empty"),
        ("ä" * (NAME_BYTES_MAX // 2 + 1), "is longer than 255 bytes"),
        ("a\x1b[2J", "holds characters that cannot be printed"),
        ("a\udc80", "holds half a surrogate pair, '\\udc80' at character 2, which UTF-8 cannot write"),
    ],
)
def test_a_name_is_printable_and_not_too_long(name: str, problem: str) -> None:
    assert name_problem(name) == problem


def test_a_name_may_be_empty_where_there_need_be_none() -> None:
    assert name_problem("", empty=True) == ""


@pytest.mark.parametrize(
    "character", ["\x00", "\x1b", "\n", "\x7f", "\x85", "\x9b", "\u200f", "\u2028", "\u202e", "\u2066"]
)
def test_what_a_terminal_obeys_is_no_part_of_a_name(character: str) -> None:
    """Those of ASCII, the later ones, and what turns the direction of a text or ends its line."""
    problem = control_problem(f"ab{character}c")

    assert problem == f"holds the control character U+{ord(character):04X} at character 3"


@pytest.mark.parametrize("text", ["", "Zürich", "東京 市", "שלום", "👩‍🚀", "a\u00a0b"])
def test_letters_marks_and_emojis_of_all_scripts_are_no_control_characters(text: str) -> None:
    assert control_problem(text) == ""


@pytest.mark.parametrize(("word", "shown"), [("int", "an int"), ("str", "a str"), ("Array", "an Array")])
def test_a_word_has_its_article(word: str, shown: str) -> None:
    assert a_or_an(word) == shown
