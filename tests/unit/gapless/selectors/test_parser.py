from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.errors import InvalidSelectorError
from gapless.selectors.normal import normal_form
from gapless.selectors.parser import CHARACTERS_MAX, NESTING_MAX, SelectorLimits, parse
from gapless.selectors.syntax import TRUE, And, Arithmetic, Comparison, Identifier, Literal, Not, NullTest, Or, Signed
from gapless.selectors.values import ValueKind
from unit.gapless.selectors.strategies import selectors

A, B, C = Identifier("a"), Identifier("b"), Identifier("c")


def number(value: float) -> Literal:
    return Literal(ValueKind.NUMBER, exact=isinstance(value, int), value=value)


@pytest.mark.parametrize("blank", ["", " ", "\t\r\n\f "])
def test_a_blank_expression_is_true(blank: str) -> None:
    assert parse(blank) == TRUE


def test_and_binds_tighter_than_or_and_not_tighter_than_and() -> None:
    assert parse("a OR NOT b AND c") == Or((A, And((Not(B), C))))
    assert parse("(a OR NOT b) AND c") == And((Or((A, Not(B))), C))


def test_not_takes_in_a_whole_comparison() -> None:
    assert parse("NOT a = 1 AND b") == And((Not(Comparison(A, "=", number(1))), B))


def test_a_chain_is_one_node() -> None:
    assert parse("a AND b AND c") == And((A, B, C))
    assert parse("a OR b OR c") == Or((A, B, C))


def test_two_nots_are_none_but_make_a_condition() -> None:
    assert parse("NOT NOT NOT a") == Not(A)
    assert parse("NOT NOT a") == Not(Not(A))


def test_arithmetic_goes_from_left_to_right_products_first() -> None:
    product = Arithmetic(B, (("*", number(2)), ("/", C)))

    assert parse("a - b * 2 / c + 1 > 0") == Comparison(
        Arithmetic(A, (("-", product), ("+", number(1)))), ">", number(0)
    )


def test_a_minus_belongs_to_the_literal() -> None:
    assert parse("a = -5") == Comparison(A, "=", number(-5))
    assert parse("a = - 9223372036854775808") == Comparison(A, "=", number(-(2**63)))
    assert parse("a = --9223372036854775808") == Comparison(A, "=", Signed("-", number(-(2**63))))
    assert parse("a = -0x8000000000000000") == Comparison(A, "=", number(-(2**63)))


def test_signs_before_anything_else_are_kept() -> None:
    assert parse("-a = +-+b") == Comparison(Signed("-", A), "=", Signed("-", B))
    assert parse("a -- b = 0") == Comparison(Arithmetic(A, (("-", Signed("-", B)),)), "=", number(0))


def test_keywords_in_any_case() -> None:
    assert parse("not A is Not nuLL Or b") == Or((Not(NullTest(Identifier("A"), negated=True)), B))


def test_parentheses_around_a_name_are_nothing() -> None:
    assert parse("((a)) IS NULL") == parse("a IS NULL")


REFUSED = [
    ("a =", 3, "found the end"),
    ("a = 1 b", 6, "unexpected b"),
    ("a = 1 'b'", 6, "unexpected 'b'"),
    ("(a = 1", 6, "expected )"),
    ("a = 1)", 5, "unexpected )"),
    ("AND a", 0, "unexpected AND"),
    ("a AND", 5, "found the end"),
    ("a = NOT b", 4, "unexpected NOT"),
    ("a IS 1", 5, "expected NULL"),
    ("a NOT 1", 6, "after NOT"),
    ("a IS NULL NOT", 13, "after NOT"),
    ("a IN ()", 6, "a string literal"),
    ("a IN ('x' 'y')", 10, "expected )"),
    ("a IN 'x'", 5, "expected ("),
    ("a IN (b)", 6, "a string literal"),
    ("a NOT IN (1, 2)", 10, "a string literal"),
    ("a LIKE 7", 7, "a string literal"),
    ("a LIKE 'x' ESCAPE b", 18, "a string literal"),
    ("a LIKE 'x' ESCAPE ''", 18, "one character"),
    ("a LIKE 'x' ESCAPE 'xy'", 18, "one character"),
    ("a BETWEEN 1 OR 2", 12, "expected AND"),
    ("NULL = a", 0, "behind IS"),
    ("a = NULL", 4, "behind IS"),
    # types that can never fit
    ("3", 0, "no condition"),
    ("3 + 5", 0, "no condition"),
    ("'abc'", 0, "no condition"),
    ("+a", 0, "no condition"),
    ("TRUE AND 3", 9, "no condition"),
    ("'x' OR a", 0, "no condition"),
    ("NOT 3", 4, "no condition"),
    ("a > 'x'", 4, "no number"),
    ("'x' <= a", 0, "no number"),
    ("a < TRUE", 4, "no number"),
    ("a + 'x' = 1", 4, "no number"),
    ("(a = 1) + 2 = 3", 0, "no number"),
    ("-'x' = a", 1, "no number"),
    ("a BETWEEN 'x' AND 'y'", 10, "no number"),
    ("'x' BETWEEN 1 AND 2", 0, "no number"),
    ("TRUE = 0", 7, "a boolean is never = a number"),
    ("1.0 <> FALSE", 7, "a number is never <> a boolean"),
    ("'1' = 1", 6, "a string is never = a number"),
    ("+a = 'x'", 5, "a number is never = a string"),
    ("(a = b) = c", 0, "cannot be compared"),
    ("a = (b OR c)", 4, "cannot be compared"),
    ("a = b = c", 0, "cannot be compared"),
    ("13 IS NULL", 0, "only a name"),
    ("'x' LIKE 'x'", 0, "only a name"),
    ("a + 1 IN ('x')", 0, "only a name"),
    # header fields
    ("JMSDestination = 'x'", 0, "header"),
    ("a AND JMSRedelivered", 6, "header"),
    ("JMSFoo IS NULL", 0, "header"),
    ("JMSPriority = 'x'", 14, "a number is never"),
    ("JMSDeliveryMode = 1", 18, "a string is never"),
    ("JMSType > 1", 0, "no number"),
    ("JMSPriority LIKE '1'", 0, "no string"),
    ("JMSTimestamp IN ('1')", 0, "no string"),
    ("JMSPriority AND a", 0, "no condition"),
    ("a = 9223372036854775808", 4, "64 bits"),
    ("a = -(9223372036854775808)", 6, "64 bits"),
]


@pytest.mark.parametrize(("expression", "position", "message"), REFUSED, ids=[case[0] for case in REFUSED])
def test_what_is_refused_where_and_why(expression: str, position: int, message: str) -> None:
    with pytest.raises(InvalidSelectorError, match=re.escape(message)) as caught:
        parse(expression)

    assert caught.value.position == position
    assert caught.value.expression == expression


def test_a_long_expression_is_refused_before_it_is_read() -> None:
    longest = "a = '" + "x" * (CHARACTERS_MAX - 6) + "'"
    parse(longest)

    with pytest.raises(InvalidSelectorError, match="no broker takes more than 65,536 characters") as caught:
        parse(longest + " ")

    assert caught.value.position == CHARACTERS_MAX


@pytest.mark.parametrize(
    ("largest", "more", "message", "position"),
    [
        ("a = '1234'", " ", "takes 10 characters (selector_characters in [limits]", 10),
        ("a=1 OR b", ">", "takes 5 words, literals and signs (selector_tokens in [limits]", 8),
    ],
)
def test_a_broker_refuses_a_selector_beyond_its_limits_and_names_the_setting(
    largest: str, more: str, message: str, position: int
) -> None:
    """It does not show the selector: nobody wants to read so much."""
    limits = SelectorLimits(characters=10, tokens=5)
    limits.check(largest)

    with pytest.raises(InvalidSelectorError, match=re.escape(message)) as caught:
        limits.check(largest + more)

    assert caught.value.position == position
    assert caught.value.expression == ""


DEEP = [
    ("", "(", "a", ")"),
    ("", "NOT (", "a", ")"),
    ("", "a AND (b OR (", "c", "))"),
    ("", "a AND NOT (NOT b OR c AND NOT (", "d", "))"),
    ("0 < ", "(", "a", ")"),
    ("0 < ", "1 + (2 * (", "a", "))"),
    ("0 < ", "- (", "a", ")"),
    ("a BETWEEN ", "1 - (", "b", ")", " AND 2"),
]
DEEP_AND_WRONG = [
    ("", "a AND NOT b + 1 * -(", "c", ") = 1"),
    ("", "a OR b AND NOT c = 1 + 2 * - (", "a", ")"),
    ("", "a BETWEEN (", "1", ") AND 2"),
    ("", "a = (", "b", ")"),
    ("", "a IN (", "b", ")"),
]


def nested(depth: int, before: str, opening: str, middle: str, closing: str, after: str = "") -> str:
    return before + opening * depth + middle + closing * depth + after


@pytest.mark.parametrize("parts", DEEP, ids=repr)
def test_what_is_not_too_deep_can_be_worked_with(parts: tuple[str, ...]) -> None:
    for depth in (1, NESTING_MAX // 8):
        tree = parse(nested(depth, *parts))
        assert normal_form(tree) == normal_form(parse(nested(depth, *parts)))
        assert hash(tree) == hash(parse(nested(depth, *parts)))
        assert repr(tree)


@pytest.mark.parametrize("parts", [*DEEP, *DEEP_AND_WRONG], ids=repr)
def test_no_depth_exhausts_the_stack(parts: tuple[str, ...]) -> None:
    """Whatever parses can be worked with, and whatever is too deep is an InvalidSelectorError."""
    for depth in (*range(2, NESTING_MAX + 2), 500, 1000):
        try:
            tree = parse(nested(depth, *parts))
        except InvalidSelectorError:
            continue
        assert repr(normal_form(tree))
        assert depth < NESTING_MAX


def test_the_depth_that_is_allowed_is_the_callers_choice() -> None:
    parse("(a)", nesting_max=2)
    with pytest.raises(InvalidSelectorError, match="too deep"):
        parse("((a))", nesting_max=2)


def test_length_is_no_depth() -> None:
    assert len(parse(" OR ".join(["a"] * 1000)).operands) == 1000  # type: ignore[union-attr]
    assert len(parse("1" + " + a" * 1000 + " > 0").left.rest) == 1000  # type: ignore[union-attr]
    assert parse("NOT " * 1001 + "a") == Not(A)
    assert parse("-" * 1001 + " a = 1") == parse("-a = 1")


@given(selectors)
def test_every_selector_we_make_up_parses(expression: str) -> None:
    parse(expression)


WORDS = (
    "a",
    "1",
    "'x'",
    "(",
    ")",
    "=",
    "<",
    "+",
    "-",
    "*",
    ",",
    "AND",
    "OR",
    "NOT",
    "IN",
    "IS",
    "NULL",
    "LIKE",
    "BETWEEN",
    "TRUE",
)


@given(st.lists(st.sampled_from(WORDS)).map(" ".join))
def test_any_row_of_tokens_is_a_tree_or_an_error(expression: str) -> None:
    with suppress(InvalidSelectorError):
        parse(expression)
