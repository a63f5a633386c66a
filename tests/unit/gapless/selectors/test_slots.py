from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.selectors import slots
from gapless.selectors.normal import normal_form
from gapless.selectors.parser import parse
from gapless.selectors.slots import ALTERNATIVES_MAX, SlotIndex, alternatives
from gapless.selectors.values import Value
from unit.gapless.selectors.strategies import events, headers, selectors, truth
from unit.held import assert_nothing_is_left


def index_of(expressions: dict[int, str]) -> SlotIndex[int]:
    index: SlotIndex[int] = SlotIndex()
    for key, expression in expressions.items():
        index.add(key, normal_form(parse(expression)))
    return index


@given(st.lists(selectors, max_size=10), st.lists(st.tuples(events, headers), max_size=5), st.data())
def test_it_finds_what_the_rules_select_whatever_came_and_went(
    expressions: list[str],
    rows: list[tuple[dict[str, Value], dict[str, Value]]],
    data: st.DataObject,
) -> None:
    kept = dict(enumerate(expressions))
    index = index_of(kept)
    for key in data.draw(st.lists(st.sampled_from(list(kept)), unique=True)) if kept else []:
        index.remove(key)
        del kept[key]
    for key, expression in enumerate(data.draw(st.lists(selectors, max_size=3)), start=100):
        index.add(key, normal_form(parse(expression)))
        kept[key] = expression

    for row in rows:
        expected = [key for key, expression in kept.items() if truth(expression, *row) is True]
        found = index.match(*row)
        assert sorted(found) == expected


def test_nothing_is_left_behind() -> None:
    """Every slot is used again."""
    index: SlotIndex[int] = SlotIndex()
    expression = "{0} = 1 AND {0} = b AND ({0} > 1 OR b IS NULL) AND c LIKE 'x%' AND {0} < 7 AND {0} IN ('x', 'y')"

    def come_and_go(number: int) -> None:
        index.add(1, normal_form(parse(expression.format(f"a{number}"))))
        index.add(2, normal_form(parse(" AND ".join(f"(a = {n} OR b > {n + number})" for n in range(9)))))
        index.match({"a": 3, "b": 100}, {})
        index.remove(1)
        index.remove(2)

    assert_nothing_is_left(index, come_and_go)
    index.add(3, normal_form(parse("a = 3 AND c")))
    assert index.match({"a": 3, "b": 100, "c": True}, {}) == [3]


@pytest.mark.parametrize("operator", ["<", "<=", ">", ">="])
@pytest.mark.parametrize("block_max", [32, 1, 2])
def test_bounds_by_bisection(monkeypatch: pytest.MonkeyPatch, operator: str, block_max: int) -> None:
    """Whatever came and went, in whatever order, and however many limits share a block."""
    monkeypatch.setattr(slots, "BLOCK_MAX", block_max)
    limits = [(value * 17 % 40) / 2 for value in range(40)]
    index = index_of({key: f"a {operator} {limit % 13 if key % 7 == 0 else limit}" for key, limit in enumerate(limits)})
    for key in range(0, 40, 7):
        index.remove(key)
    for key in range(0, 40, 7):
        index.add(key, normal_form(parse(f"a {operator} {limits[key]}")))

    for value in (-1, 0, 0.5, 7, 7.25, 19.5, 100):
        expected = [key for key, limit in enumerate(limits) if truth(f"{value} {operator} {limit}", {}, {})]
        assert sorted(index.match({"a": value}, {})) == expected
    assert index.match({"a": "7"}, {}) == index.match({}, {}) == index.match({"a": True}, {}) == []


def test_two_equalities_of_one_name_must_both_hold() -> None:
    index = index_of({1: "a IN ('x', 'y') AND a IN ('y', 'z')"})

    assert index.match({"a": "y"}, {}) == [1]
    assert index.match({"a": "x"}, {}) == index.match({"a": "z"}, {}) == []


def test_a_boolean_equals_no_number() -> None:
    index = index_of({1: "a = 1", 2: "a = 0", 3: "a", 4: "NOT a"})

    assert index.match({"a": True}, {}) == [3]
    assert index.match({"a": False}, {}) == [4]
    assert index.match({"a": 1.0}, {}) == [1]


def test_alternatives_are_rows_of_predicates() -> None:
    assert alternatives(normal_form(parse("TRUE"))) == [()]
    assert alternatives(normal_form(parse("FALSE"))) == []
    assert len(alternatives(normal_form(parse("(a OR b) AND (c OR a)"))) or []) == 4
    assert (
        len(alternatives(normal_form(parse(" OR ".join(f"a > b + {n}" for n in range(ALTERNATIVES_MAX))))) or []) == 8
    )


@pytest.mark.parametrize(
    "expression",
    [
        " OR ".join(f"a > b + {n}" for n in range(ALTERNATIVES_MAX + 1)),
        " AND ".join(f"(a > {n} OR b > {n})" for n in range(60)),
        "c OR (" + " AND ".join(f"(a > {n} OR b > {n})" for n in range(60)) + ")",
    ],
)
def test_too_many_alternatives_are_asked_as_a_whole(expression: str) -> None:
    assert alternatives(normal_form(parse(expression))) is None
    assert index_of({1: expression}).match({"a": 100, "b": 1}, {}) == [1]


def test_a_larger_index_costs_more() -> None:
    small, large = (index_of({key: f"a > {key}" for key in range(count)}) for count in (10, 10_000))

    assert 0 < small.cost() < large.cost()
