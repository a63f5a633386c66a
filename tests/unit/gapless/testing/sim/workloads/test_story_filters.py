"""Each interest of the stories in both notations: the selector's and the one by hand."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.selectors import Filter
from gapless.testing.sim.choices import Choices
from gapless.testing.sim.workloads.story_filters import (
    INTERESTS,
    METER_TOPICS,
    ORDER_TOPICS,
    STOCK_TOPICS,
    Interest,
    only,
    properties_of,
)

TOPICS = (*ORDER_TOPICS, *METER_TOPICS, *STOCK_TOPICS)


def letters() -> list[tuple[str, dict[str, Any]]]:
    draws = Choices(7).stream("letters")
    return [(topic, properties_of(topic, draws)) for topic in TOPICS for _ in range(250)]


@pytest.mark.parametrize("interest", INTERESTS, ids=lambda interest: f"{interest.topics} {interest.selector}")
def test_both_notations_say_the_same(interest: Interest) -> None:
    matching = Filter(interest.topics, interest.selector)
    expected = [matching.matches(topic, properties) for topic, properties in letters()]

    assert [interest.matches(topic, properties) for topic, properties in letters()] == expected
    assert any(expected)
    assert not all(expected) or interest is INTERESTS[0]


def test_what_stands_beside_the_topics_is_not_meant() -> None:
    """Topics that no story publishes to, but that a filter must judge as well."""
    properties: dict[str, Any] = {
        "amount": 200,
        "currency": "EUR",
        "customer": "Ada",
        "urgent": True,
        "value": 1.0,
        "station": "west",
    }
    for interest in INTERESTS:
        matching = Filter(interest.topics, interest.selector)
        for topic in (
            "shop",
            "meters",
            "other.eu",
            "shop.orders",
            "shop.a.eu",
            "shop.orders.eu.new.more",
            "meters.a.b.c",
        ):
            assert interest.matches(topic, properties) == matching.matches(topic, properties), (interest, topic)


def test_a_marker_is_for_one_story_alone() -> None:
    mine = only("quiet1")
    matching = Filter(mine.topics, mine.selector)
    for properties in ({"marker": "quiet1"}, {"marker": "quiet2"}, {}):
        assert mine.matches("a.b", properties) == matching.matches("a.b", properties)

    assert mine.matches("a.b", {"marker": "quiet1"})
    assert not mine.matches("a.b", {})


def test_everything_is_missing_somewhere() -> None:
    found = letters()
    for name in ("amount", "currency", "customer", "urgent", "value", "station", "note"):
        assert any(name in properties for _, properties in found)
        assert any(name not in properties for _, properties in found)
