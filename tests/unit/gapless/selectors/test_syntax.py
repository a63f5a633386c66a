from __future__ import annotations

import pytest

from gapless.selectors.like import LikePattern
from gapless.selectors.parser import parse
from gapless.selectors.syntax import Identifier, Like, Literal, Node, is_reserved, names_in, static_kind
from gapless.selectors.values import ValueKind


def test_names_come_once_each_in_the_order_of_the_text() -> None:
    tree = parse("b > 1 AND (a IS NULL OR b + c * 2 BETWEEN a AND d) AND e IN ('x') AND NOT f LIKE 'g'")

    assert names_in(tree) == ("b", "a", "c", "d", "e", "f")


def test_a_pattern_names_nothing() -> None:
    assert names_in(Like(Identifier("a"), LikePattern.parse("b%"), negated=False)) == ("a",)


@pytest.mark.parametrize(
    ("name", "reserved"),
    [
        ("JMSPriority", True),
        ("JMSRedelivered", True),
        ("JMS", True),
        ("JMSXGroupID", False),
        ("JMS_x", False),
        ("jms", False),
    ],
)
def test_which_names_are_reserved(name: str, *, reserved: bool) -> None:
    assert is_reserved(name) is reserved


@pytest.mark.parametrize(
    ("node", "kind"),
    [
        (Identifier("a"), None),
        (Identifier("JMSPriority"), ValueKind.NUMBER),
        (Identifier("JMSType"), ValueKind.STRING),
        (Literal(ValueKind.STRING, exact=False, value="x"), ValueKind.STRING),
        (parse("a = 1"), ValueKind.BOOLEAN),
        (parse("TRUE"), ValueKind.BOOLEAN),
    ],
)
def test_the_kind_that_needs_no_event(node: Node, kind: ValueKind | None) -> None:
    assert static_kind(node) is kind


def test_literals_that_divide_differently_differ() -> None:
    assert parse("a / 2 = 1") != parse("a / 2.0 = 1")
    assert parse("a / 0.0 = 1") != parse("a / -0.0 = 1")
    assert parse("a = TRUE") != parse("a = 1")


def test_short_forms_spelled_out() -> None:
    assert parse("a BETWEEN 1 AND b").comparisons() == parse("a >= 1 AND a <= b")  # type: ignore[union-attr]
    assert parse("a NOT BETWEEN 1 AND b").comparisons() == parse("a < 1 OR a > b")  # type: ignore[union-attr]
    assert parse("a IN ('x', 'y')").comparisons() == parse("a = 'x' OR a = 'y'")  # type: ignore[union-attr]
    assert parse("a NOT IN ('x', 'y')").comparisons() == parse("a <> 'x' AND a <> 'y'")  # type: ignore[union-attr]
