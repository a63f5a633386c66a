"""Deadlines and delays."""

from __future__ import annotations

from random import Random

from gapless.core.client.backoff import Backoff
from gapless.core.client.deadlines import Deadlines, Timer


def test_the_world_sees_the_next_deadline_only() -> None:
    one = Deadlines()
    assert one.next() is None
    one.set(Timer.CONNECT, 30)
    one.set(Timer.PUBLISHER, 20, 7)
    one.set(Timer.PUBLISHER, 25, 8)
    assert one.next() == 20
    assert one.take_expired(19) == []
    assert one.take_expired(25) == [(Timer.PUBLISHER, 7), (Timer.PUBLISHER, 8)]
    one.set_earlier(Timer.CONNECT, 40)
    assert one.next() == 30
    one.set_earlier(Timer.CONNECT, 10)
    one.set_later(Timer.CONNECT, 5)
    assert one.next() == 10
    one.set_later(Timer.CONNECT, 50)
    assert one.next() == 50
    one.stop(Timer.CONNECT)
    one.stop(Timer.CONNECT)
    assert one.next() is None
    one.set(Timer.SILENCE, 1)
    one.clear()
    assert one.next() is None


def test_delays_double_up_to_a_limit() -> None:
    backoff = Backoff(Random(3), 100, 1000)
    delays = [backoff.next() for _ in range(50)]
    assert all(
        most / 2 <= delay <= most for delay, most in zip(delays, [100, 200, 400, 800, *[1000] * 46], strict=True)
    )
    backoff.reset()
    assert backoff.next() <= 100
