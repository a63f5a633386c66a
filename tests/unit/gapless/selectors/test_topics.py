from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.errors import InvalidTopicError
from gapless.selectors.topics import (
    TOPIC_BYTES_MAX,
    PatternTree,
    check_new_patterns,
    check_pattern,
    check_topic,
    looks_foreign,
    pattern_covers,
    patterns_meet,
    topic_matches,
)
from unit.held import assert_nothing_is_left

level_names = st.sampled_from(("a", "b"))
some_topics = st.lists(level_names, min_size=1, max_size=4).map(".".join)
some_patterns = st.builds(
    lambda levels, rest: ".".join([*levels, *rest]) or "#",
    st.lists(st.one_of(level_names, st.just("*")), max_size=4),
    st.sampled_from(([], ["#"])),
)


@pytest.mark.parametrize("name", ["a", "flights.JFK", "größe.€", "a b", "👩‍🚀", "x" * TOPIC_BYTES_MAX, "é" * 127])
def test_topics(name: str) -> None:
    check_topic(name)
    check_pattern(name)


@pytest.mark.parametrize("name", ["", ".", "a.", ".a", "a..b", "x" * 256, "é" * 128, "\ud800"])
def test_what_is_neither_topic_nor_pattern(name: str) -> None:
    for check in (check_topic, check_pattern):
        with pytest.raises(InvalidTopicError):
            check(name)


@pytest.mark.parametrize("name", ["a.\x1b[2J", "a\x9bb", "a\u202e"])
def test_a_topic_has_no_control_characters_and_old_subscriptions_go_on(name: str) -> None:
    """A filter that another broker tells of is taken: a subscription may be older than this rule."""
    with pytest.raises(InvalidTopicError, match="holds the control character U"):
        check_topic(name)
    with pytest.raises(InvalidTopicError, match="holds the control character U"):
        check_new_patterns([name])
    assert check_pattern(name) == name


@pytest.mark.parametrize("pattern", ["*", "#", "a.*", "a.#", "*.*", "a.*.b", "*.#"])
def test_a_pattern_is_not_published_to(pattern: str) -> None:
    check_pattern(pattern)
    with pytest.raises(InvalidTopicError, match="wildcard"):
        check_topic(pattern)


@pytest.mark.parametrize("pattern", ["#.a", "a.#.b", "a*", "a.b#", "**", "a.*b.c", "##"])
def test_a_wildcard_is_a_whole_level_and_the_rest_comes_last(pattern: str) -> None:
    with pytest.raises(InvalidTopicError):
        check_pattern(pattern)


def test_only_text_is_a_topic() -> None:
    with pytest.raises(InvalidTopicError, match="not bytes"):
        check_topic(b"a")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("a.b", ["a.b"], ["a", "a.b.c", "a.c", "A.b"]),
        ("a.*", ["a.b", "a.c"], ["a", "a.b.c", "b.a"]),
        ("*.b", ["a.b", "b.b"], ["b", "a.b.b"]),
        ("a.#", ["a", "a.b", "a.b.c"], ["b", "ab"]),
        ("#", ["a", "a.b"], []),
        ("a.*.#", ["a.b", "a.b.c"], ["a"]),
    ],
)
def test_what_patterns_match(pattern: str, matching: list[str], others: list[str]) -> None:
    assert [topic for topic in (*matching, *others) if topic_matches(pattern, topic)] == matching


@given(st.dictionaries(some_patterns, st.integers()), st.data())
def test_a_tree_finds_what_matches_and_forgets_what_is_discarded(filed: dict[str, int], data: st.DataObject) -> None:
    tree: PatternTree[int] = PatternTree()
    for pattern, value in filed.items():
        tree.put(pattern, value)
    discarded = data.draw(st.lists(st.sampled_from(sorted(filed)), unique=True) if filed else st.just([]))
    for pattern in discarded:
        tree.discard(pattern)
    topic = data.draw(some_topics)

    assert sorted(tree.find(topic)) == sorted(
        value for pattern, value in filed.items() if pattern not in discarded and topic_matches(pattern, topic)
    )


def test_an_emptied_tree_keeps_nothing() -> None:
    tree: PatternTree[int] = PatternTree()

    def come_and_go(number: int) -> None:
        for pattern in ("a.b.*", "a.b.#", "a"):
            tree.put(f"{number}.{pattern}", 1)
        for pattern in ("a.b.#", "a", "a.b.*"):
            tree.discard(f"{number}.{pattern}")

    assert_nothing_is_left(tree, come_and_go)


def test_a_value_takes_the_place_of_the_one_before() -> None:
    tree: PatternTree[int] = PatternTree()
    tree.put("a.*", 1)
    tree.put("a.*", 2)

    assert tree.find("a.b") == [2]


@pytest.mark.parametrize(
    ("wide", "narrow", "covers"),
    [
        ("#", "a.*.#", True),
        ("a.#", "a", True),
        ("a.#", "a.b.#", True),
        ("a.#", "#", False),
        ("a.*", "a.b", True),
        ("a.*", "a.#", False),
        ("a.*", "a", False),
        ("a.b", "a.*", False),
        ("*.#", "#", True),
        ("*.*.#", "#", False),
        ("*.#", "a.#", True),
        ("*.*.#", "a.#", False),
        ("*.b", "a.b", True),
    ],
)
def test_a_pattern_covers_another(wide: str, narrow: str, covers: bool) -> None:
    assert pattern_covers(wide, narrow) is covers


@given(some_patterns, some_patterns)
def test_a_pattern_covers_another_if_and_only_if_no_topic_says_otherwise(wide: str, narrow: str) -> None:
    """All topics of up to five levels; a level `c` stands for those that no pattern names."""
    levels = ("a", "b", "c")
    topics = [".".join(each) for count in range(1, 6) for each in product(levels, repeat=count)]
    otherwise = [topic for topic in topics if topic_matches(narrow, topic) and not topic_matches(wide, topic)]
    assert pattern_covers(wide, narrow) is (not otherwise)


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [
        ("orders.>", "orders.#"),
        (">", "#"),
        ("orders/new", "orders.new"),
        ("/orders/+/new/", "orders.*.new"),
        ("orders.+", "orders.*"),
        ("orders.new", ""),
        ("orders.#", ""),
        ("a+b.c>d", ""),
        (">.a", ""),
    ],
)
def test_patterns_of_other_systems_look_foreign(pattern: str, meant: str) -> None:
    assert looks_foreign(check_pattern(pattern)) == meant
    assert not meant or check_pattern(meant)


@given(st.lists(some_patterns, max_size=8), some_patterns)
def test_a_tree_finds_the_patterns_that_cover_a_pattern_or_meet_it(filed: list[str], pattern: str) -> None:
    tree: PatternTree[str] = PatternTree()
    for each in filed:
        tree.put(each, each)

    assert sorted(tree.covering(pattern)) == sorted({each for each in filed if pattern_covers(each, pattern)})
    assert sorted(tree.meeting(pattern)) == sorted({each for each in filed if patterns_meet(each, pattern)})
