from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.selectors.like import LikePattern, Segment


def as_regular_expression(pattern: str, escape: str) -> re.Pattern[str]:
    """The obvious translation; it backtracks, which small texts forgive."""
    parts: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            parts.append(re.escape(next(characters, character)))
        else:
            parts.append({"_": ".", "%": ".*"}.get(character, re.escape(character)))
    return re.compile("".join(parts), re.DOTALL)


small = st.text(alphabet="ab_%\n🥕.", max_size=8)


@given(small, st.sampled_from(("", "a", "_", "%")), small)
def test_it_matches_what_the_obvious_translation_matches(pattern: str, escape: str, text: str) -> None:
    expected = as_regular_expression(pattern, escape).fullmatch(text) is not None

    assert LikePattern.parse(pattern, escape).matcher()(text) is expected


@pytest.mark.parametrize(
    ("pattern", "escape", "matching", "others"),
    [
        ("12%3", "", ["123", "12993", "12333"], ["1234", "12", "312"]),
        ("l_se", "", ["lose", "l\nse", "l🥕se"], ["loose", "lse"]),
        ("\\_%", "\\", ["_foo", "_"], ["bar", "\\_"]),
        ("%", "", ["", "x", "a\nb"], []),
        ("", "", [""], ["x"]),
        ("a%a", "", ["aa", "aba"], ["a"]),
        ("%b_d%", "", ["abcd", "bcde", "bbcd"], ["bd", "abccd"]),
        ("(a|b)*.+?[c]{2}^$\\", "", ["(a|b)*.+?[c]{2}^$\\"], ["a"]),
        # what the specification leaves open: an escape may be a wildcard, may come before anything, and last
        ("%_%%", "%", ["_%"], ["_", "__"]),
        ("xax", "x", ["ax"], ["xax"]),
    ],
)
def test_what_patterns_match(pattern: str, escape: str, matching: list[str], others: list[str]) -> None:
    matches = LikePattern.parse(pattern, escape).matcher()

    assert [text for text in (*matching, *others) if matches(text)] == matching


def test_patterns_that_mean_the_same_are_equal() -> None:
    assert LikePattern.parse("a%%%b") == LikePattern.parse("a%b")
    assert LikePattern.parse("a!%b", "!") != LikePattern.parse("a%b")
    assert LikePattern.parse("a!_", "!") != LikePattern.parse("a_")


def test_a_pattern_without_wildcards_is_a_literal() -> None:
    assert LikePattern.parse("a!%", "!").literal == "a%"
    assert LikePattern.parse("a_").literal is None
    assert LikePattern.parse("a%").literal is None
    assert LikePattern.parse("").literal == ""


@pytest.mark.parametrize(
    "pattern",
    ["%a" * 200 + "%b", "%a_" * 200 + "%b", "%" + "a_" * 2000 + "b%", "%" + "_" * 200 + "a%c%"],
)
def test_no_pattern_runs_away(pattern: str) -> None:
    """A matcher that goes back would not come to an end here; the suite's time limit is the judge."""
    matches = LikePattern.parse(pattern).matcher()

    assert not matches("a" * 20_000)


def test_a_segment_is_found_at_its_first_place() -> None:
    assert Segment("aba").finder()("xababa", 0, 6) == 4
    assert Segment("a_a", (1,)).finder()("xababa", 0, 6) == 4
    assert Segment("a_a", (1,)).finder()("xababa", 2, 6) == 6
    assert Segment("a_a", (1,)).finder()("xababa", 2, 5) == -1
