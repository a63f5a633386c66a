"""What is counted of publishers: events that are logged, once each, and batches that are not."""

from __future__ import annotations

from gapless.core.gauges import value_of, values_by
from gapless_phb.core import gauges
from unit.gapless_phb.harness import Harness, TestPublisher
from unit.gapless_phb.model_log import ModelLog, NumberedRig


def counted(harness: Harness) -> tuple[float, ...]:
    """How many events were logged, their bytes, and how many batches are in the histogram."""
    told = list(harness.role.gauges())
    names = (gauges.PUBLISHED_EVENTS, gauges.PUBLISHED_BYTES, "gapless_phb_publish_seconds_count")
    return tuple(value_of(told, name) for name in names)


def test_an_event_counts_when_it_is_durable_and_once() -> None:
    harness = Harness()
    harness.sync()
    publisher = harness.publisher()
    publisher.send(3)
    assert counted(harness) == (0, 0, 0)

    harness.now += 20_000_000
    harness.sync()
    publisher.repeat(1, 3)
    harness.sync()

    assert counted(harness) == (3, publisher.batch(1, 3).events.size, 1)
    below = values_by(harness.role.gauges(), "gapless_phb_publish_seconds_bucket", "le")
    assert (below["0.01"], below["0.025"]) == (0, 1)


def test_batches_that_are_not_logged_count_by_their_answer() -> None:
    harness = Harness()
    harness.sync()
    publisher = harness.publisher()
    publisher.send()
    publisher.repeat(5)
    publisher.repeat(6)
    publisher.repeat(1, text="another")

    found = values_by(harness.role.gauges(), gauges.REJECTED_BATCHES, "verdict")

    assert found == {"resume": 2, "invalid": 1}


def test_on_a_log_of_others_what_came_through_this_broker_counts_when_it_is_met() -> None:
    rig = NumberedRig(ModelLog(topic="topic", rules=b"topic"))
    rig.open()
    publisher = TestPublisher(rig, "ann")
    publisher.open("topic")
    rig.sync()
    rig.serve()
    publisher.opened()
    rig.log.add("of another", "and one more")
    publisher.send(2)
    rig.serve()

    assert counted(rig) == (2, publisher.batch(1, 2).events.size, 1)
    assert value_of(rig.role.gauges(), gauges.FOLLOWED_EVENTS) == 4
