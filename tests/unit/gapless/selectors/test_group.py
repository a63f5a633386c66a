from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.selectors.columns import Batch
from gapless.selectors.compile import MaskCompiler
from gapless.selectors.group import SLOTS_FROM, Entry, Group
from gapless.selectors.selector import Selector
from gapless.selectors.values import Value
from unit.gapless.selectors.strategies import events, headers, selectors, truth, unhurried

BITS = [1 << event for event in range(512)]


def entry(expression: str) -> Entry:
    return Entry(("a",), Selector(expression))


def group_of(entries: list[Entry], compiler: MaskCompiler | None = None) -> Group:
    group = Group(compiler or MaskCompiler())
    for one in entries:
        group.add(one)
    return group


@unhurried
@given(st.lists(selectors, max_size=12), st.lists(st.tuples(events, headers), min_size=1, max_size=6), st.data())
def test_both_forms_find_what_the_rules_select(
    expressions: list[str],
    rows: list[tuple[dict[str, Value], dict[str, Value]]],
    data: st.DataObject,
) -> None:
    entries = [entry(expression) for expression in expressions]
    group = group_of(entries)
    for gone in data.draw(st.lists(st.sampled_from(entries), unique=True)) if entries else []:
        group.remove(gone)
        entries.remove(gone)
    batch = Batch([properties for properties, _ in rows], [fields for _, fields in rows], BITS)
    mask = data.draw(st.integers(1, batch.full))
    expected: dict[Entry, int] = {}
    for one in entries:
        selected = [truth(one.selector.expression, *row) is True for row in rows]
        if found := mask & sum(BITS[event] for event, holds in enumerate(selected) if holds):
            expected[one] = found

    for match in (group.match_by_masks, group.match_by_slots, group.match):
        found_by: dict[Entry, int] = {}
        finds = match(batch, mask, found_by)
        assert found_by == expected
        assert finds in (None, sum(found.bit_count() for found in expected.values()))
    for event, row in enumerate(rows):
        assert set(group.match_one(*row)) == {one for one in entries if truth(one.selector.expression, *row) is True}, (
            event
        )


def test_what_it_finds_joins_what_was_found_before() -> None:
    one = entry("a = 1")
    batch = Batch([{"a": 1}, {"a": 1}, {}], None, BITS)

    for match in (group_of([one]).match_by_masks, group_of([one]).match_by_slots):
        found = {one: 0b100}
        match(batch, 0b010, found)
        assert found == {one: 0b110}


def test_a_filter_waits_behind_its_least_crowded_equality() -> None:
    group = group_of([entry(f"kind = 'quote' AND symbol = 'S{n}'") for n in range(20)])

    assert {name: len(constants) for name, constants in group._gates.items()}["symbol"] >= 19


@pytest.mark.parametrize("expression", ["a = 1 AND b > 2", "a IN ('x', 'y')", "NOT a", "", "a = 1 OR b = 2"])
def test_nothing_is_left_behind(expression: str) -> None:
    compiler = MaskCompiler()
    one = entry(expression)
    group = group_of([one], compiler)
    group.remove(one)

    assert (len(group), len(compiler), group._open, group._gates) == (0, 0, {}, {})


def test_many_filters_without_a_gate_are_matched_by_slots() -> None:
    batch = Batch([{"a": event} for event in range(256)], None, BITS)
    few = group_of([entry(f"a > {n} AND a < {n + 2}") for n in range(SLOTS_FROM - 1)])
    many = group_of([entry(f"a > {n} AND a < {n + 2}") for n in range(3000)])
    gated = group_of([entry(f"a = {n} AND b > {n}") for n in range(3000)])
    for group in (few, many, gated):
        group.match(batch, batch.full, {})

    assert [group._slots is not None for group in (few, many, gated)] == [False, True, False]


def test_slots_are_left_when_they_find_too_much() -> None:
    """What they cost follows what they find, so the last batch tells what to expect of the next."""
    group = group_of([entry(f"a > {n}") for n in range(1000)])
    sparse = Batch([{"a": 1} for _ in range(256)], None, BITS)
    dense = Batch([{"a": 1000} for _ in range(256)], None, BITS)
    group.match(sparse, sparse.full, {})
    assert group._prefers_slots(256)

    group.match(dense, dense.full, {})
    assert not group._prefers_slots(256)
