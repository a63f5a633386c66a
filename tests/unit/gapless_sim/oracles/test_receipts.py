"""I7: receipts, refusals, and what a publisher that comes back is told."""

from __future__ import annotations

import pytest

from gapless.errors import PublishRejectedError, PublishUncertainError, VolumeCorruptError
from gapless_phb.core import gauges
from gapless_sim.oracles.receipts import I7Publish, V3LiveForgetting
from unit.gapless_sim.oracles.model_fixture import NODE, ModelFixture, violates


def test_a_receipt_names_the_place() -> None:
    fixture = ModelFixture(I7Publish)
    fixture.log((10, 1), (20, 2))

    fixture.receipt(1, 10)
    with violates("I7"):
        fixture.receipt(2, 30)


def test_and_not_the_place_of_another() -> None:
    fixture = ModelFixture(I7Publish)
    fixture.log((10, 1), (20, 2))

    with violates("I7"):
        fixture.receipt(2, 10)


def test_a_receipt_may_come_before_the_phb_has_told_of_the_event_again() -> None:
    fixture = ModelFixture(I7Publish)
    fixture.say(0, 5)

    fixture.receipt(1, 10)
    fixture.say(5, 10, (10, 1), reply=True)
    fixture.observe.ended()


@pytest.mark.parametrize("durable", [True, False])
def test_a_receipt_says_what_the_volume_of_the_pubends_broker_says(*, durable: bool) -> None:
    fixture = ModelFixture(I7Publish)
    fixture.world.brokers[NODE].durable = durable
    fixture.log((10, 1), (20, 2))

    fixture.receipt(1, 10, durable=durable)
    with violates("I7"):
        fixture.receipt(2, 20, durable=not durable)


def test_a_publication_is_logged_once() -> None:
    fixture = ModelFixture(I7Publish)
    fixture.log((10, 1))
    fixture.say(0, 10, (10, 1), reply=True)

    with violates("I7"):
        fixture.log((20, 1))


def test_also_of_two_pubends() -> None:
    fixture = ModelFixture(I7Publish)
    fixture.log((10, 1))

    with violates("I7"):
        fixture.say(0, 10, (10, 1), pubend="q@1", broker="node1")


def test_a_pubend_whose_disk_is_gone_does_not_count() -> None:
    fixture = ModelFixture(I7Publish)
    fixture.opens()
    fixture.log((10, 1))
    fixture.observe.wiped(fixture.world.brokers["node1"])

    fixture.say(0, 10, (10, 1), pubend="p@2")


def test_what_is_refused_is_not_logged() -> None:
    fixture = ModelFixture(I7Publish)
    publication = fixture.publication(1)
    fixture.observe.not_published(fixture.producer, [publication], PublishRejectedError("no"))

    with violates("I7"):
        fixture.log((10, 1))


def test_and_was_not_logged() -> None:
    fixture = ModelFixture(I7Publish)
    fixture.log((10, 1))

    with violates("I7"):
        fixture.observe.not_published(fixture.producer, [fixture.publication(1)], PublishRejectedError("no"))


def test_what_is_uncertain_may_be() -> None:
    fixture = ModelFixture(I7Publish)
    fixture.observe.not_published(fixture.producer, [fixture.publication(1)], PublishUncertainError("who knows"))

    fixture.log((10, 1))


def test_a_refused_publication_may_be_published_anew() -> None:
    fixture = ModelFixture(I7Publish)
    publication = fixture.publication(1)
    fixture.observe.not_published(fixture.producer, [publication], PublishRejectedError("no"))
    fixture.observe.published(fixture.producer, [publication])

    fixture.log((10, 1))


def test_a_publisher_that_comes_back_is_told_of_every_receipt() -> None:
    fixture = ModelFixture(I7Publish)
    fixture.log((10, 1), (20, 2))
    fixture.receipt(1, 10)
    fixture.receipt(2, 20)

    fixture.observe.ready(fixture.producer, 2)
    with violates("I7"):
        fixture.observe.ready(fixture.producer, 1)


def test_and_of_every_publication_that_is_logged() -> None:
    fixture = ModelFixture(I7Publish)
    fixture.log((10, 1), (20, 2))

    with violates("I7"):
        fixture.observe.ready(fixture.producer, 1)


@pytest.mark.parametrize("comes", [True, False])
def test_and_of_none_that_is_not(comes: bool) -> None:
    fixture = ModelFixture(I7Publish)
    fixture.log((10, 1))
    fixture.publication(2)
    fixture.observe.ready(fixture.producer, 2)

    if comes:
        fixture.say(10, 20, (20, 2), reply=True)
        fixture.observe.ended()
    else:
        with violates("I7"):
            fixture.observe.ended()


def test_another_process_may_log_more_meanwhile() -> None:
    fixture = ModelFixture(I7Publish)
    other = fixture.publisher()
    other.outbox = fixture.producer.outbox
    fixture.log((10, 1), (20, 2))

    fixture.observe.published(fixture.producer, [])
    fixture.producer.alive = True
    fixture.observe.ready(other, 1)
    fixture.producer.alive = False
    fixture.observe.ready(other, 1)  # found by the simulator (local 8009): it lived when this one asked
    other.asked_at = fixture.world.now + 1
    with violates("I7"):
        fixture.observe.ready(other, 1)


def test_a_broker_opens_its_own_volume() -> None:
    fixture = ModelFixture(I7Publish)
    broker = fixture.world.brokers["node1"]

    with violates("I7"):
        fixture.observe.refused(broker, VolumeCorruptError("a hole"))
    fixture.model.restored(broker)
    fixture.observe.refused(broker, VolumeCorruptError("a hole"))


def test_a_receipt_is_of_one_sending_alone() -> None:
    """Equal events of two publishers are two events: what one of them sent is no receipt for the other."""
    fixture = ModelFixture(I7Publish)
    fixture.log((10, 1))
    fixture.receipt(1, 10)
    fixture.producer = fixture.publisher("other")

    with violates("I7"):
        fixture.receipt(1, 10)


def often(fixture: ModelFixture, sendings: int) -> None:
    """A publication that was sent so many times, by two publishers."""
    fixture.publication(1).often = True
    fixture.publication(1).sender = "pub"
    for number in range(sendings):
        fixture.observe.published(fixture.publisher(f"pub{number}"), [fixture.publication(1)])


def test_a_publication_that_is_sent_often_is_logged_as_often_as_it_was_sent() -> None:
    fixture = ModelFixture(I7Publish)
    often(fixture, 2)
    fixture.log((10, 1), (20, 1))
    fixture.receipt(1, 10)
    fixture.receipt(1, 20)

    with violates("I7"):
        fixture.log((30, 1))


def test_a_sending_that_was_refused_is_not_logged() -> None:
    fixture = ModelFixture(I7Publish)
    often(fixture, 2)
    fixture.log((10, 1))
    fixture.observe.not_published(fixture.producer, [fixture.publication(1)], PublishUncertainError("who knows"))
    fixture.observe.not_published(fixture.producer, [fixture.publication(1)], PublishRejectedError("no"))

    with violates("I7"):
        fixture.observe.not_published(fixture.producer, [fixture.publication(1)], PublishRejectedError("no"))


class TestForgetting:
    """Of publishers without a name those are known that live."""

    def fixture(self, router: str, lease: float, known: int) -> ModelFixture:
        fixture = ModelFixture(V3LiveForgetting, router=router, publisher_lease_seconds=lease)
        for broker in fixture.world.brokers.values():
            broker.gauges = lambda: [gauges.UNNAMED_PUBLISHERS.gauge(known, "p@1")]  # type: ignore[method-assign]
        for named in (True, False, False):
            fixture.observe.ready(fixture.publisher("one", named=named, alive=True), 0)
        fixture.observe.ready(fixture.publisher("two", named=False, alive=False), 0)
        return fixture

    @pytest.mark.parametrize(
        ("router", "lease", "known", "settled"),
        [("local", 1.0, 2, True), ("local", 1.0, 3, False), ("local", 900.0, 3, True), ("hostile", 1.0, 3, True)],
    )
    def test_when_it_is_settled(self, router: str, lease: float, known: int, settled: bool) -> None:
        oracle = self.fixture(router, lease, known).oracles[V3LiveForgetting]

        assert oracle.settled() is settled
        assert settled or "[3] publishers without a name; 2 live" in oracle.unsettled()


def test_what_an_operator_gave_up_may_be_logged_once_more_and_counts_as_never_sent() -> None:
    fixture = ModelFixture(I7Publish)
    fixture.opens()
    fixture.log((20, 1), (30, 2))
    fixture.receipt(1, 20)
    fixture.receipt(2, 30)
    fixture.spoil(20, 30, 2)
    fixture.repair(20, 30)

    fixture.observe.ready(fixture.producer, 1)
    fixture.log((40, 2))
    with violates("I7"):
        fixture.observe.ready(fixture.producer, 0)
    with violates("I7"):
        fixture.log((50, 1))
