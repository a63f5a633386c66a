"""Ticks are times where that is asked, and only numbers elsewhere (protocol: ticks)."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.stream.ticks import FOREVER, MILLISECOND, STEP, tick_at, tick_at_time, time_at, wall_at


@given(st.integers(1_577_836_800_000, 3_000_000_000_000))
def test_a_wall_time_and_its_tick_convert_both_ways(wall: int) -> None:
    assert wall_at(tick_at(wall)) == wall
    assert wall_at(tick_at(wall) + MILLISECOND - 1) == wall


@given(st.datetimes(datetime(2020, 1, 1), datetime(2080, 1, 1)))  # noqa: DTZ001 - the zone is added below
def test_a_datetime_and_its_tick_convert_to_the_millisecond(naive: datetime) -> None:
    time = naive.replace(tzinfo=timezone(timedelta(hours=2)))

    assert timedelta(0) <= time - time_at(tick_at_time(time)) < timedelta(milliseconds=1) or tick_at_time(time) == 0


def test_a_naive_datetime_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        tick_at_time(datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point


def test_times_before_2020_are_the_beginning_and_none_is_beyond_the_end() -> None:
    assert tick_at(0) == 0
    assert tick_at(1 << 62) == FOREVER


def test_a_millisecond_holds_4096_ticks_of_a_pubend() -> None:
    """Twelve bits of counter above ten bits of pubend number."""
    assert MILLISECOND // STEP == 4096
