"""Sets and maps of intervals against Python's own sets and dicts of integers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless.core.stream.intervals import IntervalMap, IntervalSet

edges = st.integers(-3, 24)
intervals = st.tuples(edges, edges)
lists = st.lists(intervals, max_size=8)


def numbers(lo: int, hi: int) -> set[int]:
    """The integers of (lo, hi]."""
    return set(range(lo + 1, hi + 1))


def model(ranges: list[tuple[int, int]]) -> set[int]:
    return {number for lo, hi in ranges for number in numbers(lo, hi)}


def merged(members: set[int]) -> tuple[tuple[int, int], ...]:
    """The maximal runs of a set of integers, counted out one by one."""
    los = [number - 1 for number in sorted(members) if number - 1 not in members]
    his = [number for number in sorted(members) if number + 1 not in members]
    return tuple(zip(los, his, strict=True))


@given(lists)
def test_a_set_is_held_as_its_maximal_intervals(ranges: list[tuple[int, int]]) -> None:
    held = IntervalSet(ranges)

    assert held.ranges == merged(model(ranges))
    assert held.total == len(model(ranges))
    assert len(held) == len(merged(model(ranges)))
    assert IntervalSet(held.ranges) == held


@given(lists, lists)
def test_union_intersection_and_difference(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    one, other = IntervalSet(left), IntervalSet(right)

    assert (one | other).ranges == merged(model(left) | model(right))
    assert (one & other).ranges == merged(model(left) & model(right))
    assert (one - other).ranges == merged(model(left) - model(right))
    assert one == IntervalSet(left)
    assert other == IntervalSet(right)


@given(lists, st.lists(st.tuples(st.booleans(), intervals), max_size=8))
def test_adding_and_removing(start: list[tuple[int, int]], changes: list[tuple[bool, tuple[int, int]]]) -> None:
    held, expected = IntervalSet(start), model(start)
    for adds, (lo, hi) in changes:
        if adds:
            held.add(lo, hi)
            expected |= numbers(lo, hi)
        else:
            held.remove(lo, hi)
            expected -= numbers(lo, hi)

        assert held.ranges == merged(expected)


@given(lists, intervals)
def test_what_is_asked_of_one_interval(ranges: list[tuple[int, int]], asked: tuple[int, int]) -> None:
    held, members = IntervalSet(ranges), model(ranges)
    inside, outside = merged(members & numbers(*asked)), merged(numbers(*asked) - members)

    assert held.within(*asked) == inside
    assert held.gaps(*asked) == outside
    assert held.first_gap(*asked) == (outside[0] if outside else None)
    assert held.covers(*asked) == (outside == ())


@given(lists, edges)
def test_membership(ranges: list[tuple[int, int]], number: int) -> None:
    assert (number in IntervalSet(ranges)) == (number in model(ranges))


def test_a_copy_is_another_set() -> None:
    held = IntervalSet([(0, 5)])
    rival = held.copy()
    rival.add(7, 9)

    assert held.ranges == ((0, 5),)
    assert rival.ranges == ((0, 5), (7, 9))


def test_a_set_differs_from_other_things() -> None:
    assert IntervalSet([(0, 5)]) != ((0, 5),)
    assert repr(IntervalSet([(0, 5)])) == "IntervalSet([(0, 5)])"


# --------------------------------------------------------------------------------------------- maps

values = st.integers(0, 3)
joins = st.tuples(intervals, values)


def runs(expected: dict[int, int]) -> list[tuple[int, int, int]]:
    """The maximal runs of equal value, counted out one by one."""
    return [
        (lo, hi, value)
        for value in range(4)
        for lo, hi in merged({number for number in expected if expected[number] == value})
    ]


def filled(changes: list[tuple[tuple[int, int], int]]) -> tuple[IntervalMap[int], dict[int, int]]:
    """A map and its model, after these values were joined by maximum."""
    held: IntervalMap[int] = IntervalMap()
    expected: dict[int, int] = {}
    for (lo, hi), value in changes:
        held.join(lo, hi, value, max)
        expected.update({number: max(value, expected.get(number, 0)) for number in numbers(lo, hi)})
    return held, expected


@given(st.lists(joins, max_size=8), joins)
def test_joining_says_where_it_changed_something(
    before: list[tuple[tuple[int, int], int]], change: tuple[tuple[int, int], int]
) -> None:
    held, old = filled(before)
    (lo, hi), value = change
    changed = held.join(lo, hi, value, max)
    _, new = filled([*before, change])

    assert changed == merged({number for number in new if new[number] != old.get(number)})


@given(st.lists(joins, max_size=8))
def test_runs_are_maximal_and_in_order(changes: list[tuple[tuple[int, int], int]]) -> None:
    held, expected = filled(changes)

    assert list(held) == sorted(runs(expected))
    assert list(reversed(held)) == sorted(runs(expected), reverse=True)
    assert held.last == max(runs(expected), default=None)
    assert len(held) == len(runs(expected))


@given(st.lists(joins, max_size=8), intervals)
def test_what_overlaps_is_cut(changes: list[tuple[tuple[int, int], int]], asked: tuple[int, int]) -> None:
    held, expected = filled(changes)
    inside = {number: value for number, value in expected.items() if number in numbers(*asked)}

    assert list(held.overlapping(*asked)) == sorted(runs(inside))


@given(st.lists(joins, max_size=8), intervals, edges)
def test_what_is_removed_is_gone(
    changes: list[tuple[tuple[int, int], int]], removed: tuple[int, int], upto: int
) -> None:
    held, expected = filled(changes)
    held.remove(*removed)
    kept = {number: value for number, value in expected.items() if number not in numbers(*removed)}

    assert list(held) == sorted(runs(kept))

    held.trim(upto)

    assert list(held) == sorted(runs({number: value for number, value in kept.items() if number > upto}))


def test_what_is_appended_behind_extends_a_run_of_its_value() -> None:
    held: IntervalMap[str] = IntervalMap()
    held.append(0, 5, "a")
    held.append(5, 7, "a")
    held.append(7, 8, "b")
    held.append(9, 10, "b")

    assert list(held) == [(0, 7, "a"), (7, 8, "b"), (9, 10, "b")]
    assert repr(held) == "IntervalMap([(0, 7, 'a'), (7, 8, 'b'), (9, 10, 'b')])"


def test_runs_of_another_value_do_not_merge_when_what_was_between_them_is_filled() -> None:
    held: IntervalMap[str] = IntervalMap()
    held.append(0, 5, "a")
    held.append(9, 12, "b")

    assert held.join(5, 9, "a", max) == ((5, 9),)
    assert list(held) == [(0, 9, "a"), (9, 12, "b")]
