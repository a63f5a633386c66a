"""Applications: what they keep, and how they come back."""

from __future__ import annotations

from gapless.core.client import Gap
from gapless.errors import TokenMismatchError
from gapless.testing.sim.application import Consumer, Letter, key_of
from gapless.testing.sim.options import SECOND
from unit.gapless.testing.sim.worlds import Small, row


def test_a_letter_is_known_by_its_body() -> None:
    assert key_of(Letter(77, "t", {}, padding=100).body) == 77


def test_a_publisher_that_recovers_publishes_nothing_twice() -> None:
    small = Small().begin()
    small.publish(3)
    small.producer.publish(2)
    small.writer.crash()
    small.rest(1)
    small.writer.start()
    small.rest(3)
    while small.producer.publish(5):
        small.rest(1)

    assert small.told == list(range(40))


def test_a_nameless_publisher_does_not_know_what_became_of_its_letters() -> None:
    small = Small()
    from gapless.testing.sim.application import Producer

    small.writer.on_start = lambda client: setattr(small, "producer", Producer(client, small.outbox, named=False))
    small.begin()
    small.publish(3)
    small.writer.crash()
    small.writer.start()
    small.rest(3)
    small.publish(3)
    small.rest(1)

    assert small.told == [0, 1, 2, 3, 4, 5]


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


def test_an_orderly_end_leaves_the_subscription_where_it_is() -> None:
    small = Small().begin()
    small.publish(2)
    small.rest(1)
    small.reader.close()
    small.publish(2)
    small.reader.start()
    small.rest(3)

    assert small.told == [0, 1, 2, 3]
    assert not any(isinstance(item, Gap) for item in small.ear.items)


def test_a_paused_client_hears_everything_later() -> None:
    small = Small().begin()
    small.reader.pause(3 * SECOND)
    small.publish(2)
    assert small.told == []

    small.rest()
    assert small.told == [0, 1]
