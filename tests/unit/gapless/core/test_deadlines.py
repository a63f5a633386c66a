"""The table of deadlines against a list that is searched through."""

from __future__ import annotations

from enum import Enum

from hypothesis import given
from hypothesis import strategies as st

from gapless.core.deadlines import Deadlines


class Timer(Enum):
    RETRY = "retry"
    REPORT = "report"
    PROBE = "probe"


timers = st.sampled_from(Timer)
times = st.integers(0, 9)
changes = st.lists(st.tuples(st.sampled_from(("set", "earlier", "clear", "clear all", "expire")), timers, times))


@given(changes)
def test_the_table_is_what_a_list_would_say(changes: list[tuple[str, Timer, int]]) -> None:
    deadlines: Deadlines[Timer] = Deadlines()
    expected: list[tuple[int, Timer]] = []  # in the order in which they were set
    for kind, timer, at in changes:
        before = next((time for time, other in expected if other is timer), None)
        match kind:
            case "set":
                deadlines.set(timer, at)
                expected = [*((time, other) for time, other in expected if other is not timer), (at, timer)]
            case "earlier":
                deadlines.set_earlier(timer, at)
                if before is None or at < before:
                    expected = [
                        *((time, other) for time, other in expected if other is not timer),
                        (at, timer),
                    ]
            case "clear all":
                deadlines.clear_all()
                expected = []
            case "clear":
                deadlines.clear(timer)
                expected = [(time, other) for time, other in expected if other is not timer]
            case "expire":
                due = sorted((row for row in expected if row[0] <= at), key=lambda row: row[0])
                expected = [row for row in expected if row[0] > at]

                assert list(deadlines.take_expired(at)) == [timer for _, timer in due]

        assert deadlines.next() == min((time for time, _ in expected), default=None)
        assert [timer for timer in Timer if timer in deadlines] == [
            timer for timer in Timer if timer in [other for _, other in expected]
        ]
        assert {timer: deadlines.at(timer) for timer in Timer} == {
            timer: next((time for time, other in expected if other is timer), None) for timer in Timer
        }


def test_timers_of_one_time_expire_in_the_order_in_which_they_were_set() -> None:
    deadlines: Deadlines[Timer] = Deadlines()
    deadlines.set(Timer.RETRY, 5)
    deadlines.set(Timer.PROBE, 5)
    deadlines.set(Timer.RETRY, 5)

    assert list(deadlines.take_expired(5)) == [Timer.PROBE, Timer.RETRY]


def test_an_expired_timer_is_unset_until_it_is_set_again() -> None:
    deadlines: Deadlines[Timer] = Deadlines()
    deadlines.set(Timer.RETRY, 5)

    assert list(deadlines.take_expired(4)) == []
    assert list(deadlines.take_expired(5)) == [Timer.RETRY]
    assert list(deadlines.take_expired(6)) == []
    assert deadlines.next() is None


def test_what_is_cleared_or_put_off_while_another_is_handled_does_not_expire() -> None:
    """Found by the simulator: a session ended of silence, and its heartbeat was sent all the same."""
    deadlines: Deadlines[Timer] = Deadlines()
    for timer in Timer:
        deadlines.set(timer, 5)
    first, second, third, *others = Timer
    came = []
    for timer in deadlines.take_expired(5):
        came.append(timer)
        if timer is first:
            deadlines.clear(second)
            deadlines.set(third, 6)

    assert came == [first, *others]
    assert deadlines.next() == 6
