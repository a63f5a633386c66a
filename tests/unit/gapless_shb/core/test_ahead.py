"""Positions beyond everything that is known: which of them can never be reached (algorithms.md 3.2; T11, U03)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gapless.core.ticks import SECOND, tick_at
from gapless_shb.core.ahead import Ahead

WALL = 1_800_000_000_000
NOW = tick_at(WALL)
BY_TOKEN = (2, 1, 99)


def standing(at: int, start: int, origin: tuple[int, int, int] | None = None) -> tuple[Ahead, Any]:
    """One consumer, and the pubend far behind it; it has been taken note of, and the pubend went on since."""
    stream = SimpleNamespace(
        pubend="p@1",
        head=NOW - 300 * SECOND,
        caught_up=True,
        floors={7: at},
        positions={7: SimpleNamespace(start=start)},
    )
    consumer = SimpleNamespace(subscription=SimpleNamespace(origin=origin))
    hosting: Any = SimpleNamespace(streams={"p@1": stream}, around=SimpleNamespace(consumers={7: consumer}))
    ahead = Ahead(hosting)
    assert ahead.watch()
    stream.head += SECOND
    return ahead, stream


def test_a_position_whose_time_has_passed_comes_from_data_that_was_lost() -> None:
    ahead, _ = standing(NOW - 1, start=NOW - 400 * SECOND)

    ((sid, reason),) = ahead.judge(WALL)
    assert sid == 7
    assert "p@1" in reason


def test_a_position_whose_time_has_not_come_may_still_be_reached() -> None:
    ahead, stream = standing(NOW + SECOND, start=NOW - 400 * SECOND)

    assert ahead.judge(WALL) == []
    stream.head += SECOND
    assert len(ahead.judge(WALL + 1_001)) == 1


@pytest.mark.parametrize("change", [{"caught_up": False}, {"head": NOW}])
def test_nothing_is_said_of_a_pubend_that_is_not_caught_up_or_has_come_there(change: dict[str, Any]) -> None:
    ahead, stream = standing(NOW - 1, start=NOW - 400 * SECOND)
    vars(stream).update(change)

    assert ahead.judge(WALL) == []


def test_who_asked_for_a_time_to_come_waits() -> None:
    ahead, _ = standing(NOW - 100 * SECOND, start=NOW - 100 * SECOND)

    assert ahead.judge(WALL) == []


def test_who_began_with_a_token_of_one_that_asked_for_a_time_to_come_is_given_what_clocks_may_differ() -> None:
    """Found by the simulator: the broker's clock was half a minute ahead of the pubend's."""
    at = NOW - 30 * SECOND
    ahead, stream = standing(at, start=at, origin=BY_TOKEN)

    assert ahead.judge(WALL) == []
    stream.head += SECOND
    assert len(ahead.judge(WALL + 30_001)) == 1
