"""Publishers: what their applications keep, and how they go on after a crash."""

from __future__ import annotations

from gapless_sim.world.producer import Producer, Publication, key_of
from unit.gapless_sim.worlds import Small


def test_a_publication_is_known_by_its_body() -> None:
    assert key_of(Publication(77, "t", {}, padding=100).body) == 77


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


def test_a_nameless_publisher_does_not_know_what_became_of_its_publications() -> None:
    small = Small()
    small.writer.on_start = lambda client: setattr(small, "producer", Producer(client, small.outbox, named=False))
    small.begin()
    small.publish(3)
    small.writer.crash()
    small.writer.start()
    small.rest(3)
    small.publish(3)
    small.rest(1)

    assert small.told == [0, 1, 2, 3, 4, 5]
