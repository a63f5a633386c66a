from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.selectors import group as groups
from gapless.selectors.columns import ColumnBatch
from gapless.selectors.compile import MaskCompiler, SharedPredicate
from gapless.selectors.group import FEW_MAX, Entry, Filed, SelectorGroup
from gapless.selectors.selector import Selector
from gapless.selectors.slots import SlotIndex
from gapless.selectors.values import Value
from unit.gapless.selectors.strategies import events, headers, selectors, truth
from unit.held import assert_nothing_is_left

BITS = [1 << event for event in range(512)]
COMPILER = MaskCompiler()


def entry(expression: str) -> Entry:
    return Entry((expression,), COMPILER.acquire(Selector(expression).normal) if expression else None)


def group_of(entries: list[Entry]) -> SelectorGroup:
    group = SelectorGroup()
    for one in entries:
        group.add(Filed(one, one.node))
    return group


def found_alone(
    group: SelectorGroup, properties: dict[str, Value], fields: dict[str, Value] | None = None
) -> list[Entry]:
    found: list[Entry] = []
    group.find(properties, fields or {}, found)
    return found


@given(st.lists(selectors, max_size=12), st.lists(st.tuples(events, headers), min_size=1, max_size=6), st.data())
@pytest.mark.parametrize("slots_always", [0, 256])
def test_both_forms_find_what_the_rules_select(
    slots_always: int,
    expressions: list[str],
    rows: list[tuple[dict[str, Value], dict[str, Value]]],
    data: st.DataObject,
) -> None:
    """Whatever came and went; each once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups, "SLOTS_ALWAYS", slots_always)
        patch.setattr(groups, "SLOTS_MAX", 3)
        entries = [entry(expression) for expression in expressions]
        group = group_of(entries)
        for gone in data.draw(st.lists(st.sampled_from(entries), unique=True)) if entries else []:
            group.remove(gone)
            entries.remove(gone)
        for expression in data.draw(st.lists(selectors, max_size=3)):
            entries.append(entry(expression))
            group.add(Filed(entries[-1], entries[-1].node))
    batch = ColumnBatch([properties for properties, _ in rows], [fields for _, fields in rows])
    mask = data.draw(st.integers(1, batch.full))
    expected: dict[Entry, int] = {}
    for one in entries:
        selected = [truth(one.patterns[0], *row) is True for row in rows]
        if found := mask & sum(BITS[event] for event, holds in enumerate(selected) if holds):
            expected[one] = found

    found_by: dict[Entry, int] = {}
    finds = group.match(batch, mask, found_by)
    assert found_by == expected
    assert finds == sum(found.bit_count() for found in expected.values())
    by_slots: dict[Entry, int] = {}
    group.match_open_by_slots(batch, mask, by_slots)
    assert by_slots == {one: found for one, found in expected.items() if one in group._open}
    assert len(group) == len(entries)
    for properties, fields in rows:
        found_one = found_alone(group, properties, fields)
        assert len(found_one) == len(set(found_one))
        assert set(found_one) == {one for one in entries if truth(one.patterns[0], properties, fields) is True}


def test_what_it_finds_joins_what_was_found_before() -> None:
    batch = ColumnBatch([{"a": 1}, {"a": 1}, {}], [{}] * 3)

    for one in (entry("a = 1"), entry("a > 0"), entry("a BETWEEN 0 AND 2")):
        found = {one: 0b100}
        group_of([one]).match(batch, 0b010, found)
        assert found == {one: 0b110}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[SharedPredicate]:
    """The predicates that were evaluated, one event at a time."""
    asked: list[SharedPredicate] = []
    holds = SharedPredicate.holds

    def noted(predicate: SharedPredicate, *event: Mapping[str, Value]) -> bool:
        asked.append(predicate)
        return holds(predicate, *event)

    monkeypatch.setattr(SharedPredicate, "holds", noted)
    return asked


def test_a_filter_waits_behind_its_least_crowded_equality(asked: list[SharedPredicate]) -> None:
    group = group_of([entry(f"kind = 'quote' AND symbol = 'S{n}'") for n in range(20)])

    assert len(found_alone(group, {"kind": "quote", "symbol": "S7"})) == 1
    assert len(asked) <= 2


def test_filters_behind_one_equality_are_told_apart_by_the_next(asked: list[SharedPredicate]) -> None:
    """A crowded bucket is a group of its own; intervals of one name are looked at once on the way."""
    group = group_of([entry(f"kind = 'quote' AND price BETWEEN {n} AND {n + 1.5}") for n in range(1000)])

    assert len(found_alone(group, {"kind": "quote", "price": 500.25})) == 2
    assert len(asked) < 20


@pytest.mark.parametrize(
    "expression",
    ["a = 1 AND b > 2", "a IN ('x', 'y')", "NOT a", "", "a = 1 OR b = 2", "a BETWEEN 1 AND 5 AND b < 2", "a > 1"],
)
@pytest.mark.parametrize("count", [1, FEW_MAX + 1])
def test_nothing_is_left_behind(expression: str, count: int) -> None:
    group = group_of([])

    def come_and_go(number: int) -> None:
        entries = [entry(expression.replace("a", f"a{number}")) for _ in range(count)]
        for one in entries:
            group.add(Filed(one, one.node))
        found_alone(group, {f"a{number}": 1, "b": 3})
        for one in entries:
            group.remove(one)

    assert_nothing_is_left(group, come_and_go)
    assert len(group) == 0


class Slots(SlotIndex[Entry]):
    """Notes that it was made and that it was asked."""

    made: ClassVar[list[Slots]] = []
    asked: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        Slots.made.append(self)

    def match(self, properties: Mapping[str, Value], headers: Mapping[str, Value]) -> list[Entry]:
        Slots.asked += 1
        return super().match(properties, headers)


@pytest.fixture
def slots(monkeypatch: pytest.MonkeyPatch) -> type[Slots]:
    monkeypatch.setattr(groups, "SlotIndex", Slots)
    monkeypatch.setattr(Slots, "made", [])
    monkeypatch.setattr(Slots, "asked", 0)
    return Slots


@pytest.mark.parametrize(
    ("expression", "count", "uses_slots"),
    [
        ("a > {0} AND b < {1}", FEW_MAX, False),
        ("a > {0} AND b < {1}", 3000, True),
        ("a = {0} AND b > {0}", 3000, False),
        ("a > {0} AND a < {1}", 3000, False),
    ],
    ids=["few", "many", "gated", "intervals"],
)
def test_many_filters_without_a_gate_are_matched_by_slots(
    slots: type[Slots], expression: str, count: int, uses_slots: bool
) -> None:
    batch = ColumnBatch([{"a": event, "b": event} for event in range(256)], [{}] * 256)
    group_of([entry(expression.format(n, n + 2)) for n in range(count)]).match(batch, batch.full, {})

    assert (slots.asked > 0) is uses_slots


def test_slots_are_shared_by_so_many_and_used_again(slots: type[Slots], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "SLOTS_MAX", 100)
    entries = [entry(f"a > {n}") for n in range(1000)]
    group = group_of(entries)
    assert [len(index) for index in slots.made] == [100] * 10

    for one in entries[:300]:
        group.remove(one)
    for one in entries[:150]:
        group.add(Filed(one, one.node))

    assert sorted(len(index) for index in slots.made if len(index)) == [50] + [100] * 8
    assert set(found_alone(group, {"a": 200})) == set(entries[:150])


def test_slots_are_left_when_they_find_too_much(slots: type[Slots]) -> None:
    """What they cost follows what they find, so the last batch tells what to expect of the next."""
    group = group_of([entry(f"a > {n}") for n in range(1000)])
    sparse = ColumnBatch([{"a": 1} for _ in range(256)], [{}] * 256)
    dense = ColumnBatch([{"a": 1000} for _ in range(256)], [{}] * 256)

    used = []
    for batch in (sparse, dense, dense):
        before = slots.asked
        group.match(batch, batch.full, {})
        used.append(slots.asked > before)

    assert used == [True, True, False]
