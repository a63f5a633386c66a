"""Whether a batch would meet a gap: asked of the broker, and a hint is no verdict."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from gapless.core.client import Delivery, Gap
from gapless.core.wire.tokens import CheckpointToken
from gapless_spark.gaps import RangeGapError, check

GAP = Gap("p@1", 3, 9, "released early")


def position(**ticks: int) -> CheckpointToken:
    return CheckpointToken("0" * 32, {f"{name}@1": tick for name, tick in ticks.items()}, 1, 1, b"")


class Broker:
    """A connection that says from where on there is no gap, and what is found before."""

    def __init__(self, earliest: CheckpointToken, *found: Delivery | Gap) -> None:
        self._earliest = earliest
        self._found = found
        self.read: list[tuple[str, int, int]] = []

    def earliest(self, subscription: CheckpointToken, *, timeout: float) -> CheckpointToken:
        return self._earliest

    def read_range(self, subscription: CheckpointToken, pubend: str, start: int, end: int, *, on_gap: str) -> Any:
        assert on_gap == "deliver"
        self.read.append((pubend, start, end))
        return self

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def parts(self, away_timeout: float) -> Iterator[Delivery | Gap]:
        return iter(self._found)


def checked(broker: Any, start: CheckpointToken, end: CheckpointToken) -> None:
    check(broker, start, end, 1.0)


def test_nothing_is_read_where_no_gap_can_be() -> None:
    broker = Broker(position(p=3, q=2), GAP)
    checked(broker, position(p=3, q=2), position(p=9, q=9))

    assert broker.read == []


def test_a_gap_that_is_there_is_raised() -> None:
    broker = Broker(position(p=9), GAP)
    with pytest.raises(RangeGapError, match=r"^GAPLESS_GAP pubend=p@1 ticks=\(3,9\]: .*failOnGap=false"):
        checked(broker, position(p=3), position(p=20))

    assert broker.read == [("p@1", 3, 9)], "no more than may have one"


def test_a_subscription_for_which_nothing_was_there_is_no_gap() -> None:
    """The log forgot what it never selected."""
    broker = Broker(position(p=9))
    checked(broker, position(p=3), position(p=5))

    assert broker.read == [("p@1", 3, 5)]


def test_what_is_before_a_new_pubend_is_looked_at_too() -> None:
    broker = Broker(position(p=3, q=7))
    checked(broker, position(p=3), position(p=5, q=9))

    assert broker.read == [("q@1", 0, 7)]


def test_the_error_can_be_copied_and_sent() -> None:
    error = RangeGapError(GAP)

    for other in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (str(other), other.gap) == (str(error), GAP)
