from __future__ import annotations

import pytest

from gapless.selectors.evaluate import truth_of, value_of
from gapless.selectors.parser import parse
from gapless.selectors.values import Truth, Value

T, F, U = True, False, None

VALUES: dict[str, Value] = {"t": True, "f": False, "n": 5, "x": 2.5, "s": "abc"}


def truth(expression: str) -> Truth:
    return truth_of(parse(expression))(VALUES.get)


@pytest.mark.parametrize(("operand", "expected"), [("t", F), ("f", T), ("u", U)])
def test_not(operand: str, expected: Truth) -> None:
    """Jakarta Messaging 3.1 section 3.8.1.2, as are the next two."""
    assert truth(f"NOT {operand}") is expected


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("t", "t", T),
        ("t", "f", F),
        ("t", "u", U),
        ("f", "t", F),
        ("f", "f", F),
        ("f", "u", F),
        ("u", "t", U),
        ("u", "f", F),
        ("u", "u", U),
    ],
)
def test_and(left: str, right: str, expected: Truth) -> None:
    assert truth(f"{left} AND {right}") is expected


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("t", "t", T),
        ("t", "f", T),
        ("t", "u", T),
        ("f", "t", T),
        ("f", "f", F),
        ("f", "u", U),
        ("u", "t", T),
        ("u", "f", U),
        ("u", "u", U),
    ],
)
def test_or(left: str, right: str, expected: Truth) -> None:
    assert truth(f"{left} OR {right}") is expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        # a value that is no boolean is unknown as a condition
        ("n", U),
        ("NOT n", U),
        ("n OR t", T),
        ("n AND f", F),
        # unlike kinds compare false, and NOT makes that true
        ("n <> 'a'", F),
        ("NOT (n = 'a')", T),
        ("NOT (n <> 'a')", T),
        ("s > 1", F),
        ("NOT (s > 1)", T),
        ("t = 1", F),
        # IN, LIKE and BETWEEN are comparisons
        ("n IN ('5')", F),
        ("n NOT IN ('5')", F),
        ("NOT (n IN ('5'))", T),
        ("u NOT IN ('5')", U),
        ("s IN ('x', 'abc')", T),
        ("n LIKE '5'", F),
        ("n NOT LIKE '5'", F),
        ("NOT (n LIKE '5')", T),
        ("u NOT LIKE '%'", U),
        ("s LIKE 'a%'", T),
        ("s NOT LIKE 'a%'", F),
        ("n BETWEEN 5 AND 5", T),
        ("n NOT BETWEEN 6 AND 9", T),
        ("s BETWEEN 1 AND 2", F),
        ("s NOT BETWEEN 1 AND 2", F),
        ("NOT (s BETWEEN 1 AND 2)", T),
        ("n BETWEEN u AND 4", F),
        ("n BETWEEN u AND 5", U),
        ("n NOT BETWEEN u AND 4", T),
        # IS NULL is never unknown
        ("u IS NULL", T),
        ("u IS NOT NULL", F),
        ("NOT (n IS NULL)", T),
        # arithmetic
        ("n / 2 = 2", T),
        ("n / 2.0 = x", T),
        ("n + x * 2 = 10", T),
        ("-n + +n = 0", T),
        ("n / 0 = n / 0", U),
        ("x / 0 > 1", T),
        ("u + 1 = 1", U),
        ("NOT (u + 1 = 1)", U),
        ("s + 1 = 1", U),
        ("-t = 1", U),
        ("1 / 0 <> 1", U),
        # names against names
        ("n > x", T),
        ("s = s", T),
        ("t <> f", T),
        ("s < s", F),
        ("u = u", U),
    ],
)
def test_what_expressions_mean(expression: str, expected: Truth) -> None:
    assert truth(expression) is expected


def test_an_expression_has_a_value() -> None:
    tree = parse("n * 2 - 1 = 0").left  # type: ignore[union-attr]

    assert value_of(tree)(VALUES.get) == 9


def test_only_nodes_are_evaluated() -> None:
    with pytest.raises(TypeError, match="not a node"):
        value_of("n = 5")  # type: ignore[arg-type]
