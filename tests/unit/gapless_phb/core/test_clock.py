"""The HLC rule of algorithms.md 1.1, and C01 of reliability.md: no wall clock can make ticks go back or leap."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless.core.ticks import EPOCH_MS, MILLISECOND, SECOND, STEP
from gapless_phb.core.clock import TickClock
from unit.gapless_phb.harness import NANOSECONDS, at

MINUTE_MS = 60_000


def clock(number: int = 0, floor: int = 0, wall: int = 1000) -> TickClock:
    return TickClock(number, floor, 0, EPOCH_MS + wall)


def read(one: TickClock, ms: int, wall: int) -> int:
    return one.read(ms * NANOSECONDS, EPOCH_MS + wall)


def test_the_present_follows_the_wall_clock() -> None:
    one = clock()

    assert read(one, 5, 1005) == at(1005)
    assert read(one, 6, 1900) == at(1900)


def test_a_step_back_costs_nothing() -> None:
    """The monotonic clock goes on from where the wall clock had been."""
    one = clock()
    read(one, 10, 1010)

    assert read(one, 15, 3) == at(1015)


def test_time_below_a_millisecond_is_the_monotonic_clocks() -> None:
    one = clock()

    assert one.read(250_000, EPOCH_MS + 1000) == at(1000) + MILLISECOND // 4


def test_reading_often_loses_nothing() -> None:
    """Each reading begins at the same place, so the roundings do not add up."""
    one, other = clock(), clock()
    for now in range(0, 3_000_001, 7):
        one.read(now, EPOCH_MS)

    assert one.read(3_000_001, EPOCH_MS) == other.read(3_000_001, EPOCH_MS)


def test_c01_a_leap_of_the_wall_clock_is_not_followed() -> None:
    one = clock()

    walls = {10: 1010 + MINUTE_MS, 20: 1021 + 2 * MINUTE_MS, 30: 1000 * MINUTE_MS, 40: 1040 + MINUTE_MS}
    readings = [(read(one, ms, wall), one.suspect) for ms, wall in walls.items()]

    assert readings == [
        (at(1010 + MINUTE_MS), False),
        (at(1020 + MINUTE_MS), True),
        (at(1030 + MINUTE_MS), True),
        (at(1040 + MINUTE_MS), False),
    ]


def test_it_goes_on_above_its_floor_even_if_the_wall_clock_is_behind() -> None:
    """1.4 recover: T = max(wall, last)."""
    one = clock(floor=at(5000))

    assert read(one, 10, 1010) == at(5010)
    assert one.take(1, 10 * NANOSECONDS, EPOCH_MS + 1010) == at(5010)


def test_ticks_are_of_the_pubends_own_class() -> None:
    first, second = clock(number=3), clock(number=4)

    assert first.take(1, 0, EPOCH_MS + 1000) == at(1000) + 3
    assert second.take(1, 0, EPOCH_MS + 1000) == at(1000) + 4


def test_a_batch_gets_an_arithmetic_run() -> None:
    one = clock()

    assert one.take(10, 0, EPOCH_MS + 1000) == at(1000)
    assert one.take(1, 0, EPOCH_MS + 1000) == at(1000, 10)


def test_a_counter_that_overflows_carries_into_the_milliseconds() -> None:
    one = clock()

    one.take(4096, 0, EPOCH_MS + 1000)

    assert one.take(1, 0, EPOCH_MS + 1000) == at(1001)


def test_nothing_is_assigned_below_a_promise() -> None:
    one = clock()
    one.promise(at(1002) + 5)

    assert one.take(1, 0, EPOCH_MS + 1000) == at(1002, 1)


@given(
    number=st.integers(0, 1023),
    moves=st.lists(
        st.tuples(st.integers(0, 10**9), st.integers(-(10**7), 10**7), st.integers(1, 5000), st.booleans()), max_size=30
    ),
)
def test_whatever_the_clocks_do_ticks_only_rise(number: int, moves: list[tuple[int, int, int, bool]]) -> None:
    one = TickClock(number, 0, 0, EPOCH_MS + 10**8)
    now, wall, above, before = 0, EPOCH_MS + 10**8, 0, 0
    for elapsed, step, count, promise in moves:
        now, wall = now + elapsed, wall + step
        present = one.read(now, wall)
        assert before <= present <= before + elapsed * MILLISECOND // NANOSECONDS + 60 * SECOND + 1 or not before
        before = present
        if promise:
            one.promise(present)
            above = max(above, present)
        first = one.take(count, now, wall)
        assert first > above
        assert first % STEP == number
        above = first + (count - 1) * STEP
