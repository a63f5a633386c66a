"""I7: receipts, refusals, and what a publisher that comes back is told."""

from __future__ import annotations

import pytest

from gapless.errors import PublishRejectedError, PublishUncertainError, VolumeCorruptError
from gapless_phb.core import gauges
from gapless_sim.oracles.publishing import I7Publish, V3LiveForgetting
from unit.gapless_sim.oracles.hands import Hands, violates


def test_a_receipt_names_the_place() -> None:
    hands = Hands(I7Publish)
    hands.log((10, 1), (20, 2))

    hands.receipt(1, 10)
    with violates("I7"):
        hands.receipt(2, 30)


def test_and_not_the_place_of_another() -> None:
    hands = Hands(I7Publish)
    hands.log((10, 1), (20, 2))

    with violates("I7"):
        hands.receipt(2, 10)


def test_a_receipt_may_come_before_the_phb_has_told_of_the_event_again() -> None:
    hands = Hands(I7Publish)
    hands.say(0, 5)

    hands.receipt(1, 10)
    hands.say(5, 10, (10, 1), reply=True)
    hands.observe.ended()


def test_a_receipt_is_durable() -> None:
    hands = Hands(I7Publish)
    hands.log((10, 1))

    with violates("I7"):
        hands.receipt(1, 10, durable=False)


def test_a_letter_is_logged_once() -> None:
    hands = Hands(I7Publish)
    hands.log((10, 1))
    hands.say(0, 10, (10, 1), reply=True)

    with violates("I7"):
        hands.log((20, 1))


def test_also_of_two_pubends() -> None:
    hands = Hands(I7Publish)
    hands.log((10, 1))

    with violates("I7"):
        hands.say(0, 10, (10, 1), pubend="q@1", broker="node1")


def test_a_pubend_whose_disk_is_gone_does_not_count() -> None:
    hands = Hands(I7Publish)
    hands.opens()
    hands.log((10, 1))
    hands.observe.wiped(hands.world.brokers["node1"])

    hands.say(0, 10, (10, 1), pubend="p@2")


def test_what_is_refused_is_not_logged() -> None:
    hands = Hands(I7Publish)
    letter = hands.letter(1)
    hands.observe.not_published(hands.producer, [letter], PublishRejectedError("no"))

    with violates("I7"):
        hands.log((10, 1))


def test_and_was_not_logged() -> None:
    hands = Hands(I7Publish)
    hands.log((10, 1))

    with violates("I7"):
        hands.observe.not_published(hands.producer, [hands.letter(1)], PublishRejectedError("no"))


def test_what_is_uncertain_may_be() -> None:
    hands = Hands(I7Publish)
    hands.observe.not_published(hands.producer, [hands.letter(1)], PublishUncertainError("who knows"))

    hands.log((10, 1))


def test_a_refused_letter_may_be_published_anew() -> None:
    hands = Hands(I7Publish)
    letter = hands.letter(1)
    hands.observe.not_published(hands.producer, [letter], PublishRejectedError("no"))
    hands.observe.published(hands.producer, [letter])

    hands.log((10, 1))


def test_a_publisher_that_comes_back_is_told_of_every_receipt() -> None:
    hands = Hands(I7Publish)
    hands.log((10, 1), (20, 2))
    hands.receipt(1, 10)
    hands.receipt(2, 20)

    hands.observe.ready(hands.producer, 2)
    with violates("I7"):
        hands.observe.ready(hands.producer, 1)


def test_and_of_every_letter_that_is_logged() -> None:
    hands = Hands(I7Publish)
    hands.log((10, 1), (20, 2))

    with violates("I7"):
        hands.observe.ready(hands.producer, 1)


@pytest.mark.parametrize("comes", [True, False])
def test_and_of_none_that_is_not(comes: bool) -> None:
    hands = Hands(I7Publish)
    hands.log((10, 1))
    hands.letter(2)
    hands.observe.ready(hands.producer, 2)

    if comes:
        hands.say(10, 20, (20, 2), reply=True)
        hands.observe.ended()
    else:
        with violates("I7"):
            hands.observe.ended()


def test_a_twin_may_log_more_meanwhile() -> None:
    hands = Hands(I7Publish)
    twin = hands.publisher()
    twin.outbox = hands.producer.outbox
    hands.log((10, 1), (20, 2))

    hands.observe.published(hands.producer, [])
    hands.producer.alive = True
    hands.observe.ready(twin, 1)
    hands.producer.alive = False
    hands.observe.ready(twin, 1)  # found by the simulator (local 8009): it lived when this one asked
    twin.asked_at = hands.world.now + 1
    with violates("I7"):
        hands.observe.ready(twin, 1)


def test_a_broker_opens_its_own_volume() -> None:
    hands = Hands(I7Publish)
    broker = hands.world.brokers["node1"]

    with violates("I7"):
        hands.observe.refused(broker, VolumeCorruptError("a hole"))
    hands.model.restored(broker)
    hands.observe.refused(broker, VolumeCorruptError("a hole"))


def test_a_receipt_is_of_one_sending_alone() -> None:
    """Equal events of two publishers are two events: what one of them sent is no receipt for the other."""
    hands = Hands(I7Publish)
    hands.log((10, 1))
    hands.receipt(1, 10)
    hands.producer = hands.publisher("twin")

    with violates("I7"):
        hands.receipt(1, 10)


def often(hands: Hands, sendings: int) -> None:
    """A letter that was sent so many times, by two publishers."""
    hands.letter(1).often = True
    hands.letter(1).sender = "pub"
    for number in range(sendings):
        hands.observe.published(hands.publisher(f"pub{number}"), [hands.letter(1)])


def test_a_letter_that_is_sent_often_is_logged_as_often_as_it_was_sent() -> None:
    hands = Hands(I7Publish)
    often(hands, 2)
    hands.log((10, 1), (20, 1))
    hands.receipt(1, 10)
    hands.receipt(1, 20)

    with violates("I7"):
        hands.log((30, 1))


def test_a_sending_that_was_refused_is_not_logged() -> None:
    hands = Hands(I7Publish)
    often(hands, 2)
    hands.log((10, 1))
    hands.observe.not_published(hands.producer, [hands.letter(1)], PublishUncertainError("who knows"))
    hands.observe.not_published(hands.producer, [hands.letter(1)], PublishRejectedError("no"))

    with violates("I7"):
        hands.observe.not_published(hands.producer, [hands.letter(1)], PublishRejectedError("no"))


class TestForgetting:
    """Of publishers without a name those are known that live."""

    def hands(self, router: str, lease: float, known: int) -> Hands:
        hands = Hands(V3LiveForgetting, router=router, publisher_lease_seconds=lease)
        for broker in hands.world.brokers.values():
            broker.gauges = lambda: [gauges.UNNAMED_PUBLISHERS.gauge(known, "p@1")]  # type: ignore[method-assign]
        for named in (True, False, False):
            hands.observe.ready(hands.publisher("one", named=named, alive=True), 0)
        hands.observe.ready(hands.publisher("two", named=False, alive=False), 0)
        return hands

    @pytest.mark.parametrize(
        ("router", "lease", "known", "settled"),
        [("local", 1.0, 2, True), ("local", 1.0, 3, False), ("local", 900.0, 3, True), ("hostile", 1.0, 3, True)],
    )
    def test_when_it_is_settled(self, router: str, lease: float, known: int, settled: bool) -> None:
        oracle = self.hands(router, lease, known).oracles[V3LiveForgetting]

        assert oracle.settled() is settled
        assert settled or "[3] publishers without a name; 2 live" in oracle.unsettled()


def test_what_an_operator_gave_up_may_be_logged_once_more_and_counts_as_never_sent() -> None:
    hands = Hands(I7Publish)
    hands.opens()
    hands.log((20, 1), (30, 2))
    hands.receipt(1, 20)
    hands.receipt(2, 30)
    hands.spoil(20, 30, 2)
    hands.repair(20, 30)

    hands.observe.ready(hands.producer, 1)
    hands.log((40, 2))
    with violates("I7"):
        hands.observe.ready(hands.producer, 0)
    with violates("I7"):
        hands.log((50, 1))
