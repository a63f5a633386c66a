"""V1 to V4: what must come right, and what nobody can demand."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.client.subscribing import SubscriptionPhase
from gapless.core.ports import Chop, Put
from gapless_phb.core import gauges
from gapless_sim.options import SECOND
from gapless_sim.oracles.delivery import I3Gapless
from gapless_sim.oracles.liveness import (
    SAME_WANT_MOST,
    V1LiveDelivery,
    V2LiveCuriosity,
    V3LiveRelease,
    V4NoStorm,
)
from unit.gapless_sim.oracles.hands import NODE, SHB, Hands, P, violates


def settled(hands: Hands, judge: Any) -> bool:
    """Whether it is; whoever is not must say why."""
    oracle = hands.oracles[judge]
    assert oracle.settled() == (oracle.unsettled() == "")
    return oracle.settled()


# V1


def delivering() -> tuple[Hands, Any]:
    """An application that was told of one letter of two."""
    hands = Hands(I3Gapless, V1LiveDelivery)
    hands.opens()
    reader = hands.attach(hands.row(), p=5)
    hands.log((10, 1), (20, 2))
    hands.hand(reader, (10, 1))
    return hands, reader


def test_v1_everything_arrives() -> None:
    hands, reader = delivering()

    assert not settled(hands, V1LiveDelivery)
    hands.hand(reader, (20, 2))
    assert settled(hands, V1LiveDelivery)


def test_v1_or_a_gap_does() -> None:
    hands, reader = delivering()

    hands.gap(reader, 10, 20)
    assert settled(hands, V1LiveDelivery)


@pytest.mark.parametrize("why", ["stopped", "over"])
def test_v1_to_those_who_take(why: str) -> None:
    hands, reader = delivering()

    setattr(reader, why, True)
    assert settled(hands, V1LiveDelivery)


def test_v1_to_those_who_can_be_reached() -> None:
    hands, _ = delivering()

    hands.world.network.cut(NODE, "client1")
    assert settled(hands, V1LiveDelivery)


def test_v1_while_their_broker_has_a_volume() -> None:
    hands, _ = delivering()

    hands.world.brokers[NODE].given_up = True
    assert settled(hands, V1LiveDelivery)


def test_v1_nothing_comes_of_a_pubend_that_is_gone() -> None:
    hands, _ = delivering()

    hands.model.histories[P].gone = True
    assert settled(hands, V1LiveDelivery)


def test_v1_a_subscription_is_given() -> None:
    hands = Hands(I3Gapless, V1LiveDelivery)
    hands.opens()
    row = hands.row()
    reader = hands.subscribe(row)

    assert not settled(hands, V1LiveDelivery)
    hands.attached(reader, p=0)
    assert settled(hands, V1LiveDelivery)


def test_v1_one_that_is_not_durable_waits_anew_in_each_session() -> None:
    """Found by the simulator: after a restart of its broker it waited for a pubend whose disk had been lost."""
    hands = Hands(I3Gapless, V1LiveDelivery)
    hands.opens()
    hands.opens("gone@1")
    hands.model.histories["gone@1"].gone = True
    reader = hands.attach(hands.row(name=None), p=5)
    hands.log((10, 1))

    assert not settled(hands, V1LiveDelivery)
    reader.core.phase = SubscriptionPhase.ASKING
    assert settled(hands, V1LiveDelivery)
    hands.model.histories["gone@1"].gone = False
    assert not settled(hands, V1LiveDelivery)


def test_v1_to_one_at_a_time() -> None:
    hands = Hands(I3Gapless, V1LiveDelivery)
    hands.opens()
    row = hands.row()
    holder = hands.attach(row, p=0)
    hands.subscribe(row)

    assert settled(hands, V1LiveDelivery)
    hands.leave(holder)
    assert not settled(hands, V1LiveDelivery)


def test_v1_publishers_get_their_receipts() -> None:
    hands = Hands(I3Gapless, V1LiveDelivery)
    hands.opens()
    hands.letter(1)

    hands.producer.waiting = 1
    assert not settled(hands, V1LiveDelivery)
    hands.producer.client.boots += 1
    assert settled(hands, V1LiveDelivery), "its process is gone"


def test_v1_a_publisher_may_wait_for_a_pubend_that_is_gone() -> None:
    hands = Hands(I3Gapless, V1LiveDelivery)
    hands.opens()
    hands.letter(1)
    hands.observe.ready(hands.producer, 0)
    hands.producer.waiting = 1
    hands.world.now = SECOND
    hands.observe.wiped(hands.world.brokers[NODE])

    assert settled(hands, V1LiveDelivery)
    hands.world.now = 2 * SECOND
    hands.observe.ready(hands.producer, 0)
    assert not settled(hands, V1LiveDelivery)


# V2


def asking() -> Hands:
    hands = Hands(V2LiveCuriosity)
    hands.opens()
    hands.observe.calm()
    hands.ask((10, 20))
    return hands


def test_v2_who_asks_no_more_has_his_answer() -> None:
    hands = asking()

    assert not settled(hands, V2LiveCuriosity)
    hands.world.now += 2 * SECOND
    assert settled(hands, V2LiveCuriosity)


def test_v2_who_asks_for_the_same_again_and_again_has_none() -> None:
    hands = asking()

    for pause in (4, 8, 16):
        hands.world.now += pause * SECOND
        hands.ask((10, 20))
    hands.world.now += 30 * SECOND
    assert not settled(hands, V2LiveCuriosity)
    hands.world.now += 10 * SECOND
    assert settled(hands, V2LiveCuriosity)


def test_v2_who_asks_for_something_else_comes_on() -> None:
    hands = asking()

    hands.ask((20, 30))
    assert settled(hands, V2LiveCuriosity)


def test_v2_before_the_calm_anybody_may_ask() -> None:
    hands = Hands(V2LiveCuriosity)
    hands.opens()
    hands.ask((10, 20))

    assert settled(hands, V2LiveCuriosity)


def test_v2_nobody_answers_for_a_pubend_that_is_gone() -> None:
    hands = asking()

    hands.model.histories[P].gone = True
    assert settled(hands, V2LiveCuriosity)


# V3


def releasing() -> tuple[Hands, Any]:
    """One letter, which one application has consumed and not acknowledged."""
    hands = Hands(V3LiveRelease)
    hands.opens()
    hands.world.brokers[NODE].gauges = lambda: [gauges.LOG_BYTES.gauge(0, P)]  # type: ignore[method-assign]
    reader = hands.attach(hands.row(), p=5)
    hands.log((10, 1))
    return hands, reader


def test_v3_what_nobody_needs_goes() -> None:
    hands, reader = releasing()

    assert settled(hands, V3LiveRelease), "it is not acknowledged"
    hands.acknowledge(reader, p=10)
    assert not settled(hands, V3LiveRelease)
    hands.chop(10)
    assert settled(hands, V3LiveRelease)


def test_v3_one_that_is_not_durable_and_waits_to_be_made_again_may_keep_something() -> None:
    """Found by the simulator (hostile 7349): a pubend was lost, and its successor's log was kept for its sake."""
    hands, reader = releasing()
    hands.acknowledge(reader, p=10)
    nameless = hands.attach(hands.row(name=None), sid=2, p=5)
    free = not settled(hands, V3LiveRelease)
    nameless.core.phase = SubscriptionPhase.ASKING

    assert free
    assert settled(hands, V3LiveRelease)


def test_v3_the_log_is_empty_then() -> None:
    hands, reader = releasing()
    hands.acknowledge(reader, p=10)
    hands.chop(10)
    full = [gauges.LOG_BYTES.gauge(7, P)]

    hands.world.brokers[NODE].gauges = lambda: full  # type: ignore[method-assign]
    assert not settled(hands, V3LiveRelease)


def test_v3_and_so_is_the_pfs() -> None:
    hands, reader = releasing()
    hands.acknowledge(reader, p=10)
    hands.chop(10)
    broker = hands.world.brokers[NODE]

    hands.observe.written(broker, [Put(f"pfs/{P}", 10, b"")])
    assert not settled(hands, V3LiveRelease)
    hands.observe.written(broker, [Chop(f"pfs/{P}", 10)])
    assert settled(hands, V3LiveRelease)


def test_v3_a_gap_is_acknowledged_like_an_event() -> None:
    hands, reader = releasing()
    hands.acknowledge(reader, p=10)
    hands.gap(reader, 10, 12)

    assert settled(hands, V3LiveRelease)
    hands.acknowledge(reader, p=12)
    assert not settled(hands, V3LiveRelease)


def test_v3_one_that_is_away_pins_what_its_broker_may_not_know() -> None:
    hands, reader = releasing()
    hands.acknowledge(reader, p=10)
    hands.leave(reader)

    assert settled(hands, V3LiveRelease)


def test_v3_one_that_is_removed_pins_nothing() -> None:
    hands, reader = releasing()
    hands.leave(reader)
    hands.observe.unsubscribing(reader.row)

    assert settled(hands, V3LiveRelease), "nobody knows yet"
    hands.observe.unsubscribed(reader.row)
    assert not settled(hands, V3LiveRelease)


def test_v3_an_shb_that_does_not_come_back_pins_everything() -> None:
    hands, reader = releasing()
    hands.acknowledge(reader, p=10)
    hands.opens(members=[(SHB, 0), ("node1@lost disk", 0)])

    assert settled(hands, V3LiveRelease)
    hands.observe.retired("node1@lost disk")
    assert not settled(hands, V3LiveRelease)


# V4


def test_v4_one_range_is_asked_for_a_few_times() -> None:
    hands = Hands(V4NoStorm)
    for _ in range(SAME_WANT_MOST):
        hands.ask((10, 20))
    hands.observe.calm()

    for _ in range(SAME_WANT_MOST):
        hands.ask((10, 20))
    hands.ask((10, 30))
    with violates("V4"):
        hands.ask((10, 20))


@pytest.mark.parametrize("by_ranges", [False, True])
def test_v3_nobody_goes_on_in_the_name_of_one_who_reads_by_ranges(by_ranges: bool) -> None:
    """Where he cannot be reached any more, what he has not said keeps the log; a consumer's home goes on for him."""
    hands, reader = releasing()
    hands.acknowledge(reader, p=10)
    reader.by_ranges = by_ranges
    oracle: Any = hands.oracles[V3LiveRelease]
    account = hands.model.accounts[reader.row.number]
    assert oracle._is_current(account, P)
    oracle._reach.is_served = lambda _: False

    assert oracle._is_current(account, P) is not by_ranges


def test_v3_an_acknowledgement_that_was_cut_off_counts_for_nothing() -> None:
    """Found by the simulator (hostile 19396): a gap was acknowledged while nothing reached the broker any more."""
    hands, reader = releasing()
    hands.acknowledge(reader, heard=False, p=10)
    needed = not settled(hands, V3LiveRelease)
    hands.world.network.cut("client1", NODE)

    assert needed
    assert settled(hands, V3LiveRelease)
