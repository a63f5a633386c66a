"""Each interest of the scenarios in both notations: the selector's and the one by hand."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.selectors import Filter
from gapless_sim.recording.accounts import Logged
from gapless_sim.workloads.headers import draw_headers
from gapless_sim.workloads.scenario_filters import (
    INTERESTS,
    METER_TOPICS,
    ORDER_TOPICS,
    STOCK_TOPICS,
    Interest,
    only,
    properties_of,
)
from gapless_sim.world.choices import Choices
from unit.gapless_sim.workloads.logged_events import logged, selects

TOPICS = (*ORDER_TOPICS, *METER_TOPICS, *STOCK_TOPICS)


def events() -> list[Logged]:
    draws = Choices(7).stream("letters")
    return [
        logged(topic, properties_of(topic, draws), draw_headers(draws), tick)
        for topic in TOPICS
        for tick in range(1, 251)
    ]


@pytest.mark.parametrize("interest", INTERESTS, ids=lambda interest: f"{interest.topics} {interest.selector}")
def test_both_notations_say_the_same(interest: Interest) -> None:
    matching = Filter(interest.topics, interest.selector)
    expected = [selects(matching, event) for event in events()]

    assert list(map(interest.matches, events())) == expected
    assert any(expected)
    assert not all(expected) or interest is INTERESTS[0]


def test_what_stands_beside_the_topics_is_not_meant() -> None:
    """Topics that no scenario publishes to, but that a filter must judge as well."""
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
            event = logged(topic, properties)
            assert interest.matches(event) == selects(matching, event), (interest, topic)


def test_a_marker_is_for_one_scenario_alone() -> None:
    mine = only("quiet1")
    matching = Filter(mine.topics, mine.selector)
    for properties in ({"marker": "quiet1"}, {"marker": "quiet2"}, {}):
        assert mine.matches(logged("a.b", properties)) == selects(matching, logged("a.b", properties))

    assert mine.matches(logged("a.b", {"marker": "quiet1"}))
    assert not mine.matches(logged("a.b", {}))


def test_everything_is_missing_somewhere() -> None:
    found = [event.publication.properties for event in events()]
    for name in ("amount", "currency", "customer", "urgent", "value", "station", "note"):
        assert any(name in properties for properties in found)
        assert any(name not in properties for properties in found)
