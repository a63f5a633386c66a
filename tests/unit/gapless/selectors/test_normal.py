from __future__ import annotations

import pytest
from hypothesis import given

from gapless.selectors.compile import event_test
from gapless.selectors.normal import ALWAYS, NEVER, AllOf, AnyOf, Normal, normal_form, when
from gapless.selectors.parser import parse
from gapless.selectors.predicates import (
    Absent,
    BoundPredicate,
    Computed,
    Is,
    NoneOf,
    OneOf,
    Present,
    Refuted,
    Resembles,
)
from gapless.selectors.values import Value, ValueKind
from unit.gapless.selectors.strategies import events, headers, selectors, truth


def normal(expression: str) -> Normal:
    return normal_form(parse(expression))


@given(selectors, events, headers)
def test_it_holds_exactly_where_the_condition_is_wanted(
    expression: str, properties: dict[str, Value], fields: dict[str, Value]
) -> None:
    tree = parse(expression)
    expected = truth(expression, properties, fields)

    assert event_test(when(tree, wanted=True))(properties, fields) is (expected is True)
    assert event_test(when(tree, wanted=False))(properties, fields) is (expected is False)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a", Is("a", wanted=True)),
        ("NOT a", Is("a", wanted=False)),
        ("a = TRUE", Is("a", wanted=True)),
        ("a <> TRUE", Is("a", wanted=False)),
        ("NOT a = TRUE", Refuted("a", Is("a", wanted=True))),
        ("a = 'x'", OneOf("a", ("x",))),
        ("'x' = a", OneOf("a", ("x",))),
        ("a <> 2", NoneOf("a", ValueKind.NUMBER, (2,))),
        ("NOT a = 'x'", Refuted("a", OneOf("a", ("x",)))),
        ("5 < a", BoundPredicate("a", ">", 5)),
        ("a > 2 * 3 - 1", BoundPredicate("a", ">", 5)),
        ("a >= -5.5", BoundPredicate("a", ">=", -5.5)),
        ("a IN ('y', 'x', 'y')", OneOf("a", ("x", "y"))),
        ("a LIKE 'x'", OneOf("a", ("x",))),
        ("a NOT LIKE 'x'", NoneOf("a", ValueKind.STRING, ("x",))),
        ("a LIKE 'x%'", Resembles("a", parse("a LIKE 'x%'").pattern, negated=False)),  # type: ignore[union-attr]
        ("a IS NULL", Absent("a")),
        ("NOT a IS NULL", Present("a")),
        ("NOT a IS NOT NULL", Absent("a")),
        ("a BETWEEN 1 AND 2", AllOf((BoundPredicate("a", "<=", 2), BoundPredicate("a", ">=", 1)))),
        ("a NOT BETWEEN 1 AND 2", AnyOf((BoundPredicate("a", "<", 1), BoundPredicate("a", ">", 2)))),
        ("a = b", Computed(parse("a = b"), wanted=True)),
        ("NOT a + 1 > 2", Computed(parse("a + 1 > 2"), wanted=False)),
        ("a = 0.0 / 0", Computed(parse("a = 0.0 / 0"), wanted=True)),
        # constants
        ("TRUE", ALWAYS),
        ("1 > 2", NEVER),
        ("NOT 1 > 2", ALWAYS),
        ("1 / 0 = 1", NEVER),
        ("NOT 1 / 0 = 1", NEVER),
        ("a = 1 / 0", NEVER),
        ("a AND FALSE", NEVER),
        ("a OR TRUE", ALWAYS),
        ("a AND TRUE", Is("a", wanted=True)),
        ("a OR FALSE", Is("a", wanted=True)),
        # AND and OR
        ("a AND (b AND c)", AllOf((Is("a", wanted=True), Is("b", wanted=True), Is("c", wanted=True)))),
        ("a OR (b OR a)", AnyOf((Is("a", wanted=True), Is("b", wanted=True)))),
        ("NOT (a AND b)", AnyOf((Is("a", wanted=False), Is("b", wanted=False)))),
        ("NOT (a OR NOT b)", AllOf((Is("a", wanted=False), Is("b", wanted=True)))),
        ("a = 2 OR a = 'x' OR a IN ('y') OR a = 1.0", OneOf("a", (1, 2, "x", "y"))),
    ],
)
def test_forms(expression: str, expected: Normal) -> None:
    assert normal(expression) == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a = 1 AND b = 2", "b=2 and a=1.0"),
        ("a > 1 OR b", "b OR 1 < a OR b"),
        ("a IN ('x', 'y')", "a = 'y' OR a = 'x'"),
        ("a BETWEEN 1 AND 2", "a >= 1 AND 2 >= a"),
        ("NOT (NOT a OR NOT b)", "b AND a"),
    ],
)
def test_spelling_makes_no_difference(one: str, other: str) -> None:
    assert normal(one) == normal(other)
    assert hash(normal(one)) == hash(normal(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [("a = 1", "a = TRUE"), ("a / 2 = 1", "a / 2.0 = 1"), ("a <> 'x'", "NOT a = 'x'"), ("a = '1'", "a = 1")],
)
def test_meaning_does(one: str, other: str) -> None:
    assert normal(one) != normal(other)


def test_only_conditions_have_one() -> None:
    with pytest.raises(TypeError, match="no condition"):
        normal_form(parse("a + 1 = 2").left)  # type: ignore[union-attr]
