from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless.selectors.group import LIMIT_MAX, Bucket, Entry, Filed, Spans, cells_of, grid_of
from unit.held import assert_nothing_is_left

bounds = st.floats(-LIMIT_MAX, LIMIT_MAX) | st.integers(-20, 20) | st.floats(-5, 5, width=16)


def names_around(spans: Spans[Bucket], value: float) -> list[str]:
    found: list[Entry] = []
    for bucket in spans.around(value):
        bucket.find({}, {}, found)
    return [entry.patterns[0] for entry in found]


@given(st.lists(st.tuples(bounds, bounds), max_size=20), st.lists(bounds, max_size=10), st.integers(0, 20))
def test_whoever_contains_a_number_is_found_and_nobody_twice(
    intervals: list[tuple[float, float]], values: list[float], gone: int
) -> None:
    spans = Spans(Bucket)
    entries = [Entry((str(at),), None) for at in range(len(intervals))]
    for entry, (low, high) in zip(entries, intervals, strict=True):
        for bucket in spans.take(low, high):
            bucket.add(Filed(entry, None))
    for entry, (low, high) in zip(entries[:gone], intervals[:gone], strict=True):
        for bucket in spans.give(low, high):
            bucket.remove(entry)

    for value in (*values, *(bound for interval in intervals for bound in interval)):
        found = names_around(spans, value)
        assert len(found) == len(set(found))
        kept = list(enumerate(intervals))[gone:]
        assert {str(at) for at, (low, high) in kept if low <= value <= high} <= set(found)
    assert len(spans) == len(entries[gone:])


def test_nothing_is_left_behind() -> None:
    spans = Spans(Bucket)

    def come_and_go(number: int) -> None:
        for low, high in ((1, 5), (5, 1), (3, 3), (-1e9, 1e9)):
            entry = Entry(("a",), None)
            for bucket in spans.take(low + number, high * (number + 1)):
                bucket.add(Filed(entry, None))
            for bucket in spans.give(low + number, high * (number + 1)):
                bucket.remove(entry)

    assert_nothing_is_left(spans, come_and_go)
    assert len(spans) == 0


def test_those_far_away_are_not_looked_at() -> None:
    spans = Spans(Bucket)
    for number in range(1000):
        for bucket in spans.take(number, number + 4.5):
            bucket.add(Filed(Entry((str(number),), None), None))

    assert len(names_around(spans, 500.25)) < 20


@given(bounds, bounds)
def test_an_interval_touches_one_cell_or_two(low: float, high: float) -> None:
    assert len(cells_of(grid_of(low, high), low, high)) == (0 if low > high else 1) or low < high
    assert len(cells_of(grid_of(low, high), low, high)) <= 2


def test_what_is_no_place_on_the_line_is_nowhere() -> None:
    spans = Spans(Bucket)
    for bucket in spans.take(0, LIMIT_MAX):
        bucket.add(Filed(Entry(("a",), None), None))

    assert [names_around(spans, value) for value in (float("inf"), float("nan"), 1 << 63, -1)] == [[], [], [], []]
