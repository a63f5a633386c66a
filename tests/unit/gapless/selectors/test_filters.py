from __future__ import annotations

import pickle

import msgspec
import pytest

from gapless.errors import InvalidSelectorError, InvalidTopicError
from gapless.selectors import Filter
from gapless.selectors.filters import leaving_out


def test_it_asks_for_topics_and_for_a_condition() -> None:
    wanted = Filter(("flights.*", "news"), "delay > 60")

    assert wanted.matches("flights.JFK", {"delay": 75}, {})
    assert wanted.matches("news", {"delay": 75}, {})
    assert not wanted.matches("flights", {"delay": 75}, {})
    assert not wanted.matches("news", {"delay": 5}, {})


def test_headers_may_be_asked_for() -> None:
    assert Filter(("a",), "JMSPriority = 9").matches("a", {}, {"JMSPriority": 9})
    assert not Filter(("a",), "JMSPriority = 9").matches("a", {}, {})


def test_without_a_selector_everything_of_its_topics() -> None:
    assert Filter(("#",)).matches("a.b", {}, {})


@pytest.mark.parametrize("topics", [(), "flights", ["flights"], ("a..b",), ("a", "#.b")])
def test_topics_are_checked(topics: object) -> None:
    with pytest.raises(InvalidTopicError):
        Filter(topics)  # type: ignore[arg-type]


def test_the_selector_is_checked() -> None:
    with pytest.raises(InvalidSelectorError):
        Filter(("a",), "delay >")


def test_it_is_a_value() -> None:
    assert Filter(("a",), "b") == Filter(("a",), "b")
    assert hash(Filter(("a",), "b")) == hash(Filter(("a",), "b"))
    assert Filter(("a",), "b") != Filter(("a",), " b")
    assert pickle.loads(pickle.dumps(Filter(("a",), "b = 1"))) == Filter(("a",), "b = 1")


def test_it_travels_as_its_two_fields() -> None:
    encoded = msgspec.msgpack.encode(Filter(("a",), "b = 1"))

    assert msgspec.msgpack.decode(encoded) == {"topics": ["a"], "selector": "b = 1"}
    assert msgspec.msgpack.decode(encoded, type=Filter) == Filter(("a",), "b = 1")


@pytest.mark.parametrize("own", ["", "  ", "k = 1 OR k = 2"])
def test_the_events_of_one_publisher_are_left_out(own: str) -> None:
    """Not those of another one, nor those of which nobody knows whose they are."""
    wanted = Filter(("#",), leaving_out(own, "it's mine"))

    assert not wanted.matches("a", {"k": 1, "JMSXAppID": "it's mine"}, {})
    assert wanted.matches("a", {"k": 2, "JMSXAppID": "it"}, {})
    assert wanted.matches("a", {"k": 1}, {})
    assert wanted.matches("a", {"k": 3}, {}) is (not own.strip())
    assert leaving_out(own, "") == own
