from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.selectors import BatchMatcher, Filter
from gapless.selectors.index import TOPICS_CACHED_MAX
from gapless.selectors.values import Value
from unit.gapless.selectors.strategies import events, headers, patterns, selectors, topics
from unit.held import assert_nothing_is_left, held

filters = st.builds(
    lambda chosen, selector: Filter(tuple(chosen), selector),
    st.lists(patterns, min_size=1, max_size=3),
    st.one_of(st.just(""), selectors),
)
rows_of_events = st.lists(st.tuples(topics, events, headers), max_size=8)


def by_key(found: list[tuple[int, Collection[int]]]) -> dict[int, int]:
    masks: dict[int, int] = {}
    for mask, keys in found:
        for key in keys:
            assert key not in masks, "a key has one result"
            masks[key] = mask
    return masks


def assert_finds(
    matcher: BatchMatcher,
    held: dict[int, Filter],
    rows: list[tuple[str, dict[str, Value], dict[str, Value]]],
) -> None:
    expected: dict[int, int] = {}
    for key, wanted in held.items():
        mask = sum(1 << event for event, row in enumerate(rows) if wanted.matches(*row))
        if mask:
            expected[key] = mask

    found = matcher.match([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows])
    assert by_key(found) == expected
    for event, row in enumerate(rows):
        one = matcher.match_one(*row)
        assert sorted(one) == [key for key in sorted(held) if expected.get(key, 0) >> event & 1]
        assert by_key(matcher.match([row[0]], [row[1]], [row[2]])) == dict.fromkeys(one, 1)


@given(st.data())
def test_it_finds_what_each_filter_matches_whatever_came_and_went(data: st.DataObject) -> None:
    matcher = BatchMatcher()
    held: dict[int, Filter] = {}
    next_key = 0
    for _ in range(data.draw(st.integers(1, 3))):
        for wanted in data.draw(st.lists(filters, max_size=10)):
            matcher.add(next_key, wanted)
            held[next_key] = wanted
            next_key += 1
        for key in data.draw(st.lists(st.sampled_from(sorted(held)), unique=True)) if held else []:
            matcher.remove(key)
            del held[key]
        assert len(matcher) == len(held)
        assert_finds(matcher, held, data.draw(rows_of_events))


def test_a_large_matcher_finds_the_same() -> None:
    """Large enough for slots, gates and several groups of one batch."""
    held = {
        key: Filter(
            ("a.#", f"b.{key % 5}") if key % 3 else (f"a.{key % 4}",),
            [f"x = {key % 50} AND y > {key}", f"y BETWEEN {key} AND {key + 9}", f"NOT z = 'z{key % 7}'", ""][key % 4],
        )
        for key in range(600)
    }
    matcher = BatchMatcher()
    for key, wanted in held.items():
        matcher.add(key, wanted)
    rows: list[tuple[str, dict[str, Value], dict[str, Value]]] = [
        (f"{'ab'[event % 2]}.{event % 6}", {"x": event % 60, "y": 3 * event, "z": f"z{event % 9}"}, {})
        for event in range(200)
    ]

    assert_finds(matcher, held, rows)
    assert_finds(matcher, held, rows[:3])


def test_equal_filters_are_one_result() -> None:
    matcher = BatchMatcher()
    for key in range(100):
        matcher.add(key, Filter(("a",), f"w = {key % 4}"))
    found = matcher.match(["a"] * 8, [{"w": event % 5} for event in range(8)], [{}] * 8)

    assert len(found) == 4
    assert {mask: list(keys) for mask, keys in found}[0b00100001] == list(range(0, 100, 4))


def test_spelling_makes_no_other_filter() -> None:
    matcher = BatchMatcher()
    matcher.add(1, Filter(("a", "b"), "x = 1 AND y"))
    matcher.add(2, Filter(("b", "a", "b"), "(y AND x=1.0)"))

    assert [(mask, list(keys)) for mask, keys in matcher.match(["a", "c"], [{"x": 1, "y": True}] * 2, [{}] * 2)] == [
        (1, [1, 2])
    ]


def test_overlapping_patterns_of_a_filter_are_one_result() -> None:
    matcher = BatchMatcher()
    matcher.add(1, Filter(("a.*", "a.b", "#")))

    assert by_key(matcher.match(["a.b", "c", "a.b"], [{}, {}, {}], [{}] * 3)) == {1: 0b111}
    assert matcher.match_one("a.b", {}, {}) == [1]


def test_a_key_has_one_filter() -> None:
    matcher = BatchMatcher()
    matcher.add(1, Filter(("a",)))

    with pytest.raises(ValueError, match="key 1"):
        matcher.add(1, Filter(("b",)))
    assert matcher.match_one("b", {}, {}) == []
    assert 1 in matcher
    assert 2 not in matcher


def test_an_unknown_key_cannot_be_removed() -> None:
    with pytest.raises(KeyError):
        BatchMatcher().remove(1)


@pytest.mark.parametrize("count", [1, 3])
def test_the_topic_of_all_may_be_given_once(count: int) -> None:
    matcher = BatchMatcher()
    matcher.add(1, Filter(("a.*",), "n > 0"))
    matcher.add(2, Filter(("b",), ""))
    properties = [{"n": n} for n in range(3 - count, 3)]

    assert matcher.match("a.b", properties, [{}] * count) == matcher.match(["a.b"] * count, properties, [{}] * count)
    assert len(matcher.match("a.b", properties, [{}] * count)) == 1


def test_an_empty_batch_matches_nothing() -> None:
    matcher = BatchMatcher()
    matcher.add(1, Filter(("#",)))

    assert matcher.match([], [], []) == []


def test_an_emptied_matcher_keeps_nothing() -> None:
    matcher = BatchMatcher()

    def come_and_go(number: int) -> None:
        for key in range(20):
            matcher.add(key, Filter((f"a{number}.{key % 3}", "b.*"), f"x{number} = {key % 5} AND y > {key}"))
        matcher.match([f"a{number}.1"] * 3, [{f"x{number}": 1}] * 3, [{}] * 3)
        for key in range(20):
            matcher.remove(key)

    assert_nothing_is_left(matcher, come_and_go)
    assert len(matcher) == 0


def test_what_is_remembered_of_topics_is_bounded_and_forgotten_when_patterns_change() -> None:
    matcher = BatchMatcher()
    matcher.add(1, Filter(("a.#",)))
    for topic in range(TOPICS_CACHED_MAX):
        matcher.match_one(f"a.{topic}", {}, {})
    before = held(matcher)
    for topic in range(TOPICS_CACHED_MAX, TOPICS_CACHED_MAX + 100):
        matcher.match_one(f"a.{topic}", {}, {})
    assert held(matcher) <= before

    matcher.add(2, Filter(("a.9",)))
    assert matcher.match_one("a.9", {}, {}) == [1, 2]
    matcher.remove(1)
    assert matcher.match_one("a.9", {}, {}) == [2]
