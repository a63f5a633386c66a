"""I7: receipts, refusals, and what a publisher that comes back is told."""

from __future__ import annotations

import pytest

from gapless.errors import PublishRejectedError, PublishUncertainError, VolumeCorruptError
from gapless_phb.core import gauges
from gapless_sim.oracles.receipts import I7Publish, V3LiveForgetting
from unit.gapless_sim.oracles.model_fixture import ModelFixture, violates


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
        fixture = ModelFixture(V3LiveForgetting, router=router, publisher_expiry_seconds=lease)
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
