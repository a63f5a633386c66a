"""Two judges who know nothing of each other: what is written down here in Python, and the product's own filters."""

from __future__ import annotations

from itertools import product
from math import prod

import pytest

from gapless.errors import InvalidSelectorError, InvalidTopicError
from gapless.selectors.filters import Filter
from gapless.selectors.headers import HEADER_KINDS
from gapless_sim.workloads.filters import (
    NONSENSE_SELECTORS,
    NONSENSE_TOPICS,
    PATTERNS,
    SELECTORS,
    combine,
)
from gapless_sim.workloads.headers import CORRELATIONS, PRIORITIES, TYPES
from gapless_sim.workloads.publications import FLAGS, NUMBERS, PRICES, TOPICS, TREES, properties_of
from unit.gapless_sim.workloads.logged_events import logged, selects

HEADERS = [
    {name: value for name, value in (("priority", one), ("type", two), ("correlation_id", three)) if value is not None}
    for one, two, three in product(PRIORITIES, TYPES, CORRELATIONS)
]
COUNT = prod(map(len, (NUMBERS, FLAGS, PRICES, TREES)))
ALL = [
    logged("a", properties_of(number), HEADERS[number % len(HEADERS)], (1 << 40) + 1_234_567 * number)
    for number in range(COUNT)
]
"""Every combination of properties, and every one of headers."""


@pytest.mark.parametrize(("selector", "true_of"), SELECTORS, ids=[selector or "none" for selector, _ in SELECTORS])
def test_a_selector_means_what_is_written_beside_it(selector: str, true_of: object) -> None:
    terms = combine([PATTERNS[0]], selector, true_of)  # type: ignore[arg-type]
    judge = Filter(("#",), selector)

    assert [event for event in ALL if selects(judge, event) != terms.matches(event)] == []


@pytest.mark.parametrize(("pattern", "is_one"), PATTERNS, ids=[pattern for pattern, _ in PATTERNS])
def test_a_pattern_means_what_is_written_beside_it(pattern: str, is_one: object) -> None:
    terms = combine([(pattern, is_one)], "", lambda _: True)  # type: ignore[list-item]
    judge = Filter((pattern,))

    events = [logged(topic, {}) for topic in TOPICS]
    assert [event for event in events if selects(judge, event) != terms.matches(event)] == []


def test_all_but_the_last_of_each_matches_something_and_leaves_something_out() -> None:
    for pattern, is_one in PATTERNS[1:-1]:
        assert {is_one(topic) for topic in TOPICS} == {True, False}, pattern
    for selector, true_of in SELECTORS[1:-1]:
        if selector != "k = 1 AND k = 2":
            assert {true_of(event) for event in ALL} == {True, False}, selector


def test_each_header_field_is_asked_for() -> None:
    asked = " ".join(selector for selector, _ in SELECTORS)

    assert [name for name in HEADER_KINDS if name not in asked] == []


def test_nonsense_is_refused() -> None:
    for selector in NONSENSE_SELECTORS:
        with pytest.raises(InvalidSelectorError):
            Filter(("#",), selector)
    for topic in NONSENSE_TOPICS:
        with pytest.raises(InvalidTopicError):
            Filter((topic,))
