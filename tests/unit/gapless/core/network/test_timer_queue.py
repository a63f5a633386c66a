"""Deadlines by key."""

from __future__ import annotations

from gapless.core.network.timer_queue import TimerQueue


def test_the_earliest_comes_first_and_those_of_one_time_as_they_were_set() -> None:
    timers = TimerQueue()
    for name, at in (("c", 30), ("a", 10), ("b", 10), ("d", 40)):
        timers.set((name,), at)

    assert timers.next() == 10
    assert list(timers.take_due(30)) == [("a",), ("b",), ("c",)]
    assert timers.next() == 40
    assert ("d",) in timers
    assert ("a",) not in timers


def test_what_is_set_again_or_cancelled_does_not_come_then() -> None:
    timers = TimerQueue()
    timers.set(("a",), 10)
    timers.set(("b",), 10)
    timers.set(("a",), 20)
    timers.cancel(("b",))
    timers.cancel(("never",))

    assert timers.next() == 20
    assert list(timers.take_due(15)) == []
    assert list(timers.take_due(20)) == [("a",)]
    assert timers.next() is None


def test_what_is_to_be_earlier_is_never_later() -> None:
    timers = TimerQueue()
    timers.set_earlier(("a",), 20)
    timers.set_earlier(("a",), 10)
    timers.set_earlier(("a",), 30)

    assert list(timers.take_due(10)) == [("a",)]
    assert timers.next() is None
    timers.set_earlier(("a",), 30)
    assert timers.next() == 30


def test_one_that_is_due_may_cancel_another() -> None:
    timers = TimerQueue()
    timers.set(("a",), 10)
    timers.set(("b",), 10)
    due = timers.take_due(10)
    assert next(due) == ("a",)
    timers.cancel(("b",))

    assert list(due) == []
