"""Range reads of a client: in order and once, whatever happens to the connection."""

from __future__ import annotations

from random import Random

import pytest

from gapless.core.client import Delivery, Gap
from gapless.core.client.link import effects as e
from gapless.core.client.link.attempts import Attempts
from gapless.core.client.link.backoff import Backoff
from gapless.core.client.link.outbox import ClientOutbox
from gapless.core.client.ranges.reading import WINDOW_BYTES, WINDOW_EVENTS, RangeReading
from gapless.core.deadlines import Deadlines
from gapless.core.wire import messages as m
from gapless.errors import ConnectionClosedError, SubscriptionNotFoundError
from unit.gapless.core.client.talk import Talk

TARGET = m.Target("s")


def reading(lo: int = 10, hi: int = 100) -> tuple[Talk, int]:
    """A client that reads a range."""
    talk = Talk()
    return talk, talk.core.ranges.read(TARGET, "p@1", lo, hi, talk.now)


def take(talk: Talk, number: int) -> list[object]:
    """Ticks and gaps that have arrived."""
    found: list[object] = []
    while (part := talk.core.ranges.take(number, talk.now)) is not None:
        if isinstance(part, Delivery):
            assert [event.tick for event in part.events()] == list(part.ticks)
            found += part.ticks
        else:
            assert isinstance(part, Gap)
            found.append((part.start, part.end))
    talk.take()
    return found


def test_events_and_gaps_are_handed_out_in_order() -> None:
    talk, number = reading()
    (asked,) = talk.all_said(m.ReadRange)
    assert (asked.lo, asked.hi, asked.credit_events, asked.credit_bytes) == (10, 100, WINDOW_EVENTS, WINDOW_BYTES)
    talk.hear_events(number, 20, 30)
    talk.hear(m.RangeGap(number, 30, 40, "released early"))
    talk.hear_events(number, 50)

    assert take(talk, number) == [20, 30, (30, 40), 50]
    assert not talk.core.ranges.is_complete(number)
    talk.hear(m.RangeRead(number))
    assert talk.core.ranges.is_complete(number)


def test_it_is_told_once_that_something_has_arrived() -> None:
    talk, number = reading()
    talk.hear_events(number, 20)
    talk.hear_events(number, 30)
    assert len(talk.all_told(e.Arrived)) == 1

    take(talk, number)
    talk.hear(m.RangeRead(number))
    assert len(talk.all_told(e.Arrived)) == 2


def test_after_a_reconnect_the_rest_is_asked_for() -> None:
    talk, number = reading()
    talk.hear_events(number, 20, 30)
    talk.reconnect()
    (asked,) = talk.all_said(m.ReadRange)
    assert (asked.lo, asked.credit_events) == (30, WINDOW_EVENTS - 2)
    talk.hear_events(number, 40)

    assert take(talk, number) == [20, 30, 40]


def test_what_is_complete_is_not_asked_for_again() -> None:
    talk, number = reading()
    talk.hear_events(number, 20)
    talk.hear(m.RangeRead(number))
    talk.reconnect()

    assert talk.all_said(m.ReadRange) == []
    assert take(talk, number) == [20]


def test_what_comes_twice_is_handed_out_once() -> None:
    """A read that was put off, and asked for again, may have been answered meanwhile."""
    talk, number = reading()
    talk.hear_events(number, 20, 30)
    talk.hear_events(number, 20, 30)
    talk.hear_events(number, 30, 40)
    talk.hear(m.RangeGap(number, 20, 45, ""), m.RangeGap(number, 20, 45, ""))

    assert take(talk, number) == [20, 30, 40, (40, 45)]


def test_room_is_granted_as_parts_are_taken() -> None:
    talk, number = reading(0, 10**9)
    half = WINDOW_EVENTS // 2
    talk.hear_events(number, *range(1, half))
    take(talk, number)
    assert talk.all_said(m.ReadOn) == []
    talk.hear_events(number, half)
    take(talk, number)

    (grant,) = talk.all_said(m.ReadOn)
    assert grant.events == half
    assert grant.bytes > 16 * half


def test_one_that_is_put_off_is_asked_for_again() -> None:
    talk, number = reading()
    talk.hear(m.RequestFailed(number, m.Code.RETRY, "too many"))
    assert len(talk.all_said(m.ReadRange)) == 1
    talk.wait(30)

    assert len(talk.all_said(m.ReadRange)) == 2


def test_one_that_is_refused_fails() -> None:
    talk, number = reading()
    talk.hear(m.RequestFailed(number, m.Code.NOT_FOUND, "gone"))
    (failed,) = talk.all_told(e.Failed)

    assert failed.request == number
    assert isinstance(failed.error, SubscriptionNotFoundError)
    assert talk.core.ranges.take(number, talk.now) is None
    assert talk.core.ranges.is_complete(number)


def test_who_wants_no_more_says_so() -> None:
    talk, number = reading()
    talk.core.ranges.end_read(number, talk.now)
    assert talk.all_said(m.EndRead) == [m.EndRead(number)]
    talk.hear_events(number, 20)
    talk.hear(m.RangeGap(number, 20, 30, ""), m.RangeRead(number))

    assert talk.all_told(e.Arrived) == []


def test_the_end_of_the_connection_is_the_end_of_its_reads() -> None:
    talk, _ = reading()
    talk.core.close(talk.now)
    (failed,) = talk.all_told(e.Failed)

    assert isinstance(failed.error, ConnectionClosedError)


def test_what_cannot_be_ends_the_link() -> None:
    for ticks in ((30, 20), (20, 20), (101,)):
        talk, number = reading()
        talk.hear_events(number, *ticks)
        assert talk.hung_up, ticks
    talk, number = reading()
    talk.hear(m.RangeGap(number, 50, 101, ""))
    assert talk.hung_up


def test_what_has_arrived_of_a_range_lies_within_it() -> None:
    asked = m.ReadRange(1, TARGET, "p@1", 10, 100, 0, 0)
    read = RangeReading(asked, Backoff(Random(1), 1, 1), ClientOutbox(1 << 20, Attempts("p")), Deadlines())
    read.horizon = 101

    with pytest.raises(AssertionError):
        read.request()
