"""How long a client waits before it tries again."""

from __future__ import annotations

from random import Random

from gapless.core.client.link.backoff import Backoff


def test_delays_double_up_to_a_limit() -> None:
    backoff = Backoff(Random(3), 100, 1000)
    delays = [backoff.next() for _ in range(50)]
    assert all(
        most / 2 <= delay <= most for delay, most in zip(delays, [100, 200, 400, 800, *[1000] * 46], strict=True)
    )
    backoff.reset()
    assert backoff.next() <= 100
