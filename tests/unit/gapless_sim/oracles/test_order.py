"""I11 where events are handed out, and where they are sent, each with something that breaks it and something near."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.wire.codec import decode_server, deliver_head
from gapless.core.wire.messages import DeliverGap, Detached, GapReason, Order, PubendNumber, Subscribed
from gapless.core.wire.messages.base import Code
from gapless_sim.oracles.delivery import I1Match, I3Gapless
from gapless_sim.oracles.order import I11Served, I11TotalOrder
from unit.gapless_sim.oracles.model_fixture import NODE, ModelFixture, P, violates

Q = "q@1"
SESSION = 77


def consuming(order: Order = Order.TOTAL) -> tuple[ModelFixture, Any]:
    fixture = ModelFixture(I1Match, I3Gapless, I11TotalOrder)
    fixture.opens(Q)
    fixture.log((10, 1), (20, 2), (30, 3))
    fixture.log((10, 4), (20, 5), pubend=Q)
    return fixture, fixture.attach(fixture.row(order=order))


def test_events_that_rise_by_tick_and_then_by_pubend_are_in_order() -> None:
    fixture, consumer = consuming()
    fixture.hand_out(consumer, (10, 1))
    fixture.hand_out(consumer, (10, 4), pubend=Q)
    fixture.hand_out(consumer, (20, 2))
    fixture.hand_out(consumer, (20, 5), pubend=Q)
    fixture.hand_out(consumer, (30, 3))


@pytest.mark.parametrize("tick", [10, 20])
def test_an_event_behind_one_of_another_pubend_is_not(tick: int) -> None:
    fixture, consumer = consuming()
    fixture.hand_out(consumer, (20, 5), pubend=Q)

    with violates("I11"):
        fixture.hand_out(consumer, (tick, tick // 10))


def test_without_total_order_pubends_are_independent() -> None:
    fixture, consumer = consuming(Order.PUBEND)
    fixture.hand_out(consumer, (20, 5), pubend=Q)
    fixture.hand_out(consumer, (10, 1))


def test_a_consumer_goes_on_behind_what_its_token_was_committed_with() -> None:
    fixture, consumer = consuming()
    fixture.hand_out(consumer, (20, 5), pubend=Q)
    fixture.commit(consumer, p=5, q=20)
    fixture.leave(consumer)
    again = fixture.attach(consumer.row, p=5, q=20)

    with violates("I11"):
        fixture.hand_out(again, (10, 1))


class Served:
    """A session to which subscription 1 was given, in total order if there is a group."""

    def __init__(self, group: str = "g") -> None:
        self.fixture = ModelFixture(I11Served)
        self.given = Subscribed(1, 1, 1, b"", True, [], group=group)
        self.say(PubendNumber(0, P), PubendNumber(1, Q), self.given)

    def say(self, *messages: object) -> None:
        for message in messages:
            self.fixture.observe.sent(NODE, SESSION, message)

    def send(self, number: int, *ticks: int) -> None:
        payload = self.fixture.batch([(tick, tick) for tick in ticks]).payload((1 << len(ticks)) - 1)
        self.say(decode_server(deliver_head(SESSION, 1, number) + payload))

    def gap(self, number: int, start: int, end: int) -> None:
        self.say(DeliverGap(1, number, start, end, GapReason.RELEASED_EARLY.value))


def test_a_gap_stands_where_it_begins() -> None:
    served = Served()
    served.send(0, 10)
    served.gap(1, 9, 40)
    served.send(0, 20, 30)

    with violates("I11"):
        served.gap(1, 15, 50)


@pytest.mark.parametrize("ticks", [(10,), (9, 30)])
def test_an_shb_sends_nothing_behind_what_it_has_sent(ticks: tuple[int, ...]) -> None:
    served = Served()
    served.send(1, 10)

    with violates("I11"):
        served.send(0, *ticks)


def test_whoever_is_given_it_anew_begins_anew() -> None:
    served = Served()
    served.send(1, 20)
    served.say(Detached(1, Code.TAKEN_OVER, ""), served.given)
    served.send(0, 10)
    Served(group="").send(1, 20)
