"""Consumers: what their applications keep, and how they come back."""

from __future__ import annotations

from gapless.errors import TokenMismatchError
from gapless_sim.world.consumer import Consumer
from gapless_sim.world.options import SECOND
from unit.gapless_sim.worlds import Small, row


def test_a_crash_takes_back_what_was_not_committed() -> None:
    small = Small()
    small.reader.on_start = lambda client: setattr(
        small, "consumer", Consumer(client, small.row, small.row.wanted(), portion=1, commit_every=3)
    )
    small.begin()
    small.publish(5)
    small.rest(1)
    small.reader.crash()
    small.reader.start()
    small.rest(3)

    assert small.told == [0, 1, 2, 3, 4, 3, 4]


def test_one_without_a_token_resumes_where_it_acknowledged() -> None:
    small = Small()
    small.row.keeps_token = False
    small.begin()
    small.publish(3)
    small.rest(1)
    small.reader.crash()
    small.publish(2)
    small.reader.start()
    small.rest(3)

    assert small.told == list(range(5))


def test_one_that_stops_taking_goes_on_later() -> None:
    small = Small().begin()
    small.consumer.stopped = True
    small.publish(4)
    assert small.told == []

    small.consumer.go_on()
    small.rest(1)
    assert small.told == [0, 1, 2, 3]


def test_a_slow_one_takes_one_thing_at_a_time() -> None:
    small = Small().begin()
    small.consumer.pace = SECOND
    small.publish(1, 1, 1)
    small.world.run_until(small.world.now + SECOND)
    assert len(small.told) < 3

    small.rest()
    assert small.told == [0, 1, 2]


def test_one_that_leaves_hears_nothing_and_comes_back() -> None:
    small = Small().begin()
    small.publish(1)
    small.rest(1)
    small.consumer.leave()
    small.publish(2)
    assert small.told == [0]

    small.consumer = Consumer(small.reader, small.row, small.row.wanted())
    small.rest(2)
    assert small.told == [0, 1, 2]


def test_the_token_of_another_subscription_is_refused() -> None:
    small = Small().begin()
    other = row(2, name="other")
    stranger = Consumer(small.reader, other, other.wanted())
    small.rest(1)
    assert other.token is not None
    stranger.leave()
    small.consumer.leave()
    Consumer(small.reader, small.row, small.row.wanted(token=other.token))
    small.rest(2)

    assert [type(error) for error in small.ear.errors] == [TokenMismatchError]
