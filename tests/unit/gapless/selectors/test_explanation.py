"""How a selector is read, for people."""

from __future__ import annotations

import pytest
from hypothesis import given

from gapless.selectors.explanation import predicates_of, uses_of, written_out
from gapless.selectors.parser import parse
from gapless.selectors.values import ValueKind
from unit.gapless.selectors.strategies import selectors


@given(selectors)
def test_what_is_written_out_means_the_same(expression: str) -> None:
    assert parse(written_out(parse(expression))) == parse(expression)


@pytest.mark.parametrize(
    ("expression", "written"),
    [
        ("a = 1 or b = 2 and not c", "(a = 1) OR ((b = 2) AND (NOT c))"),
        ("not a = 1", "NOT (a = 1)"),
        ("a + 2 * b > -c", "(a + (2 * b)) > (-c)"),
        ("a - 1 - 2 = 0x10", "(a - 1 - 2) = 16"),
        ("a = - + 1 or a = -1", "(a = (-(1))) OR (a = -1)"),
        ("a not between 1 and 2", "a NOT BETWEEN 1 AND 2"),
        ("a in ('x', 'it''s')", "a IN ('x', 'it''s')"),
        ("a like '5!%_%' escape '!'", r"a LIKE '5\%_%' ESCAPE '\'"),
        ("a is not null", "a IS NOT NULL"),
        ("", "TRUE"),
    ],
)
def test_precedence_is_shown(expression: str, written: str) -> None:
    assert written_out(parse(expression)) == written


def test_names_are_asked_to_be_of_a_kind() -> None:
    uses = uses_of(parse("a = 1 AND b = 'x' AND c AND d IS NULL AND e = f AND a LIKE 'y' AND JMSPriority + g > 4"))

    number, string, boolean = ValueKind.NUMBER, ValueKind.STRING, ValueKind.BOOLEAN
    assert {use.name: use.kinds for use in uses} == {
        "a": (number, string),
        "b": (string,),
        "c": (boolean,),
        "d": (),
        "e": (),
        "f": (),
        "JMSPriority": (number,),
        "g": (number,),
    }
    assert [use.name for use in uses if use.is_header] == ["JMSPriority"]


def test_each_predicate_is_tried() -> None:
    found = predicates_of(parse("a = 1 AND NOT (b > 2 OR c)"), {"a": 1, "c": False}.get)

    assert [(one.text, one.truth, one.values) for one in found] == [
        ("a = 1", True, {"a": 1}),
        ("b > 2", None, {"b": None}),
        ("c", False, {"c": False}),
    ]
