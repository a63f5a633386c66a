"""Where a query looks for the home of its subscription, and for how long."""

from __future__ import annotations

import pytest

from gapless.errors import ConfigurationError
from gapless_spark import connections
from gapless_spark.connections import HomeSearch, orders_of

REFUSAL = ConfigurationError("the subscription is kept by shb1")


class Clock:
    """Time passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(connections, "time", clock)
    return clock


@pytest.mark.parametrize(
    ("brokers", "orders"),
    [
        ("gapless://a:1", ["gapless://a:1"]),
        ("gapless://a:1,b:2,c:3", ["gapless://a:1,b:2,c:3", "gapless://b:2,c:3,a:1", "gapless://c:3,a:1,b:2"]),
        ("gapless+tls://a:1,b:2?ca=x,y", ["gapless+tls://a:1,b:2?ca=x,y", "gapless+tls://b:2,a:1?ca=x,y"]),
        ("embedded:./a,b", ["embedded:./a,b"]),
    ],
)
def test_each_broker_is_first_once(brokers: str, orders: list[str]) -> None:
    assert orders_of(brokers) == orders


def test_a_refusal_has_the_next_broker_tried_until_the_time_is_over(clock: Clock) -> None:
    search = HomeSearch("gapless://a:1,b:2", 1.0)
    tried = [search.brokers]
    with pytest.raises(TimeoutError, match=r"^GAPLESS_UNREACHABLE gapless://a:1,b:2: not within 1 s .*kept by shb1"):
        while True:
            search.refused(REFUSAL)
            tried.append(search.brokers)

    assert tried == ["gapless://a:1,b:2", "gapless://b:2,a:1"] * 2 + ["gapless://a:1,b:2"]
    assert clock.slept == [0.1, 0.2, 0.4, pytest.approx(0.3)]


def test_an_answer_ends_the_search_and_the_next_one_has_all_the_time(clock: Clock) -> None:
    search = HomeSearch("gapless://a:1,b:2", 1.0)
    search.refused(REFUSAL)
    search.found()
    clock.now += 100
    search.refused(REFUSAL)

    assert clock.slept == [0.1, 0.1]


def test_with_one_broker_there_is_nothing_to_try(clock: Clock) -> None:
    with pytest.raises(ConfigurationError, match="kept by shb1"):
        HomeSearch("gapless://a:1", 60.0).refused(REFUSAL)
    assert clock.slept == []
