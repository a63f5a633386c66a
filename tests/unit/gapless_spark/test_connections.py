"""How long a query waits for the home of its subscription."""

from __future__ import annotations

import pytest

from gapless.errors import SubscriptionElsewhereError
from gapless_spark import connections
from gapless_spark.connections import HomeWait

REFUSAL = SubscriptionElsewhereError("the subscription is kept by shb1", "shb1")


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


def test_a_home_that_is_away_is_waited_for_until_the_time_is_over(clock: Clock) -> None:
    home = HomeWait("gapless://a:1,b:2", 1.0)
    with pytest.raises(TimeoutError, match=r"^GAPLESS_UNREACHABLE gapless://a:1,b:2: not within 1 s .*kept by shb1"):
        while True:
            home.refused(REFUSAL)

    assert clock.slept == [0.1, 0.2, 0.4, pytest.approx(0.3)]


def test_an_answer_ends_the_wait_and_the_next_one_has_all_the_time(clock: Clock) -> None:
    home = HomeWait("gapless://a:1,b:2", 1.0)
    home.refused(REFUSAL)
    home.found()
    clock.now += 100
    home.refused(REFUSAL)

    assert clock.slept == [0.1, 0.1]


@pytest.mark.parametrize("brokers", ["gapless://a:1", "gapless+tls://a:1?ca=x,y"])
def test_with_one_broker_there_is_nothing_to_wait_for(brokers: str, clock: Clock) -> None:
    with pytest.raises(SubscriptionElsewhereError, match="kept by shb1"):
        HomeWait(brokers, 60.0).refused(REFUSAL)
    assert clock.slept == []
