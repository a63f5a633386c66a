"""The clock's rule (protocol: the-clock; C01): no wall clock can make ticks go back or leap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.stream.ticks import EPOCH_MS, MILLISECOND, SECOND, STEP
from gapless_phb.core.own_log.clock import TickClock
from gapless_phb.core.rows import AgeRow
from unit.gapless_phb.harness import at
from unit.rig import NANOSECONDS

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DOUBT_NS = 10 * MINUTE_MS * NANOSECONDS


def clock(number: int = 0, floor: int = 0, wall: int = 1000) -> TickClock:
    return TickClock(number, floor, AgeRow(at(wall)), "", DOUBT_NS, 0, EPOCH_MS + wall)


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
    """Each reading begins at the same context, so the roundings do not add up."""
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


def restarted(certain: int, wall: int, floor: int | None = None) -> TickClock:
    """A clock that was sure of `certain` before the broker ended, both in milliseconds."""
    return TickClock(0, at(certain if floor is None else floor), AgeRow(at(certain)), "", DOUBT_NS, 0, EPOCH_MS + wall)


def aged(one: TickClock, ms: int, wall: int) -> tuple[int, bool]:
    read(one, ms, wall)
    return one.aged, one.doubtful


def test_c01_events_grow_old_with_the_present() -> None:
    one = clock()

    assert aged(one, 5, 1005) == (at(1005), False)
    assert aged(one, 6, 1900) == (at(1900), False)
    assert aged(one, 10, 3) == (at(1904), False)
    assert aged(one, 20, 1020 + HOUR_MS) == (at(1914), False)
    assert one.suspect


def test_c01_after_a_leap_across_a_stop_events_are_stamped_by_it_and_grow_old_without_it() -> None:
    one = restarted(1000, 1000 + 2 * HOUR_MS)

    assert one.latest == at(1000 + 2 * HOUR_MS)
    assert (one.aged, one.doubtful) == (at(1000), True)
    assert aged(one, MINUTE_MS, 1000 + 2 * HOUR_MS + MINUTE_MS) == (at(1000 + MINUTE_MS), True)


def test_c01_in_the_end_a_leap_across_a_stop_is_believed() -> None:
    one = restarted(1000, 1000 + 2 * HOUR_MS)

    assert aged(one, 10 * MINUTE_MS - 1, 1000 + 2 * HOUR_MS) == (at(1000 + 10 * MINUTE_MS - 1), True)
    assert aged(one, 10 * MINUTE_MS, 1000 + 2 * HOUR_MS) == (at(1000 + 2 * HOUR_MS), False)


def test_c01_a_leap_that_is_taken_back_in_time_is_forgotten() -> None:
    one = restarted(1000, 1000 + 2 * HOUR_MS)

    assert aged(one, MINUTE_MS, 1000 + MINUTE_MS) == (at(1000 + MINUTE_MS), False)
    assert one.ahead == at(2 * HOUR_MS)
    assert aged(one, 11 * MINUTE_MS, 1000 + 2 * HOUR_MS) == (at(1000 + 11 * MINUTE_MS), True)


def test_c01_ticks_that_are_ahead_of_the_wall_clock_make_nothing_older() -> None:
    """The run before was stamped by a clock two hours ahead; it leaps there again, and T sees nothing of that."""
    one = restarted(1000, 2000, floor=1000 + 2 * HOUR_MS)

    assert one.latest == at(1000 + 2 * HOUR_MS)
    assert aged(one, 1000, 3000) == (at(3000), False)
    assert aged(one, 2000, 2000 + 2 * HOUR_MS) == (at(4000), True)
    assert not one.suspect


def test_it_goes_on_above_its_floor_even_if_the_wall_clock_is_behind() -> None:
    """T = max(wall, last) (protocol: pubend-recovery)."""
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
    one = TickClock(number, 0, AgeRow(at(10**8)), "", DOUBT_NS, 0, EPOCH_MS + 10**8)
    now, wall, above, before, certain = 0, EPOCH_MS + 10**8, 0, 0, 0
    for elapsed, step, count, promise in moves:
        now, wall = now + elapsed, wall + step
        present = one.read(now, wall)
        assert certain <= one.aged <= present
        assert one.aged <= (certain or one.aged) + elapsed * MILLISECOND // NANOSECONDS + 60 * SECOND + 1
        certain = one.aged
        assert before <= present <= before + elapsed * MILLISECOND // NANOSECONDS + 60 * SECOND + 1 or not before
        before = present
        if promise:
            one.promise(present)
            above = max(above, present)
        first = one.take(count, now, wall)
        assert first > above
        assert first % STEP == number
        above = first + (count - 1) * STEP


def test_a_leap_makes_no_event_older_by_what_ticks_are_ahead_of_the_time() -> None:
    """Local 1001373: a pubend that starts within a reservation is ahead of its clock, and then that leaps."""
    one = TickClock(0, at(3000), AgeRow(at(1000)), "", DOUBT_NS, 0, EPOCH_MS + 1000)

    read(one, 10, 1010 + HOUR_MS)

    assert one.suspect
    assert one.latest == at(3010)
    assert one.aged == at(1010)


# ------------------------------------------------------------- how long the broker was down, told by its machine


def run(age: AgeRow, *, now_ms: int, wall: int, boot: str = "boot") -> TickClock:
    """A run that begins at these times of the machine's two clocks."""
    return TickClock(0, age.aged, age, boot, DOUBT_NS, now_ms * NANOSECONDS, EPOCH_MS + wall)


def first_run() -> AgeRow:
    """What a run leaves that ended at 1000 by the monotonic clock, and at 5000 by the wall clock."""
    return run(AgeRow(at(5000)), now_ms=1000, wall=5000).age()


def test_while_the_machine_runs_a_broker_that_was_down_knows_for_how_long() -> None:
    """The application with a broker in it that is started every hour: nothing is doubtful, and events grow old."""
    age = first_run()
    for hour in range(1, 5):
        one = run(age, now_ms=1000 + hour * HOUR_MS, wall=5000 + hour * HOUR_MS)
        age = one.age()

        assert (one.aged, one.doubtful) == (at(5000 + hour * HOUR_MS), False)


def test_a_wall_clock_that_was_set_meanwhile_is_doubted_by_as_much_as_it_was_set() -> None:
    one = run(first_run(), now_ms=1000 + HOUR_MS, wall=5000 + 3 * HOUR_MS)

    assert (one.aged, one.doubtful) == (at(5000 + HOUR_MS), True)
    assert one.age().leap == at(2 * HOUR_MS)


@pytest.mark.parametrize(
    ("boot", "now_ms"),
    [("another", 1000 + HOUR_MS), ("", 1000 + HOUR_MS), ("boot", 10)],
    ids=["new", "unknown", "less"],
)
def test_the_clock_of_another_run_of_the_machine_tells_nothing(boot: str, now_ms: int) -> None:
    one = run(first_run(), boot=boot, now_ms=now_ms, wall=5000 + HOUR_MS)

    assert (one.aged, one.doubtful) == (at(5000), True)


def test_a_leap_is_believed_ten_minutes_after_the_first_run_that_found_it() -> None:
    """A program that runs for a second each time ends the doubt, too."""
    age = run(first_run(), boot="another", now_ms=0, wall=5000 + HOUR_MS).age()
    later = 5000 + HOUR_MS + 4 * MINUTE_MS
    age = run(age, boot="another", now_ms=4 * MINUTE_MS, wall=later).age()
    assert age.doubt_began == 0
    one = run(age, boot="another", now_ms=10 * MINUTE_MS, wall=5000 + HOUR_MS + 10 * MINUTE_MS)

    assert (one.aged, one.doubtful) == (at(5000 + HOUR_MS + 10 * MINUTE_MS), False)
    assert one.age().doubt_began is None


def test_a_second_leap_is_doubted_anew() -> None:
    """Nobody had ten minutes to correct that one."""
    age = run(first_run(), boot="another", now_ms=0, wall=5000 + HOUR_MS).age()
    one = run(age, boot="another", now_ms=11 * MINUTE_MS, wall=5000 + 3 * HOUR_MS)

    assert (one.aged, one.doubtful) == (at(5000 + 11 * MINUTE_MS), True)


def test_a_wall_clock_that_was_set_back_makes_nothing_older_than_it() -> None:
    one = run(first_run(), now_ms=1000 + HOUR_MS, wall=6000)

    assert (one.aged, one.doubtful) == (at(6000), False)


@given(
    starts=st.lists(
        st.tuples(st.integers(0, 10**7), st.integers(-(10**7), 10**7), st.integers(0, 10**6), st.booleans()),
        max_size=12,
    )
)
def test_whatever_the_wall_clock_does_across_runs_nothing_grows_old_before_its_time(
    starts: list[tuple[int, int, int, bool]],
) -> None:
    """Without the doubt ever ending, `aged` follows true time, but for the minute by which each run may be led."""
    age, true, boot = AgeRow(at(10**9)), 0, 0
    for runs, (down, step, up, restarted) in enumerate(starts, 1):
        boot += restarted
        true += down
        one = TickClock(0, 0, age, f"boot {boot}", 10**30, true * NANOSECONDS, EPOCH_MS + 10**9 + true + step)
        true += up
        one.read(true * NANOSECONDS, EPOCH_MS + 10**9 + true + step)
        age = one.age()

        assert one.aged <= at(10**9 + true) + 2 * runs * 60 * SECOND + 1
