"""Early release by age and by bytes."""

from __future__ import annotations

from gapless.core.ports import PubendState
from gapless_phb.core.own_log.byte_index import ByteIndex
from gapless_phb.policies import Limits
from unit.gapless_phb.harness import at

NOW = at(100_000)


def state() -> PubendState:
    """Three records of 1,000 bytes, at 10, 20 and 30 seconds."""
    index = ByteIndex()
    for ms in (10_000, 20_000, 30_000):
        index.add(at(ms), 1000)
    return PubendState("p@1", NOW, 0, at(30_000), 0, at(30_000), index)


def test_without_limits_nothing_goes() -> None:
    assert Limits().release(state()) == 0


def test_what_is_older_goes() -> None:
    """At exactly that age it is there still."""
    assert Limits(seconds=80).release(state()) == at(20_000) - 1


def test_what_has_more_bytes_above_it_goes() -> None:
    """With exactly so many above it, it is there still."""
    assert Limits(bytes=1999).release(state()) == at(10_000)
    assert Limits(bytes=2000).release(state()) == 0


def test_of_two_limits_the_one_that_is_reached_first_counts() -> None:
    assert Limits(95, 999).release(state()) == at(20_000)
    assert Limits(75, 1999).release(state()) == at(25_000) - 1
