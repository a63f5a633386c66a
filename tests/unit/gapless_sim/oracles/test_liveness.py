"""V1 to V4: what must come right, and what nobody can demand."""

from __future__ import annotations

from typing import Any, cast

import pytest

from gapless.core.client.consuming.subscription import SubscriptionPhase
from gapless.core.ports import Chop, Put
from gapless.core.wire.messages import GapReason
from gapless_phb.core import gauges
from gapless_sim.oracles.delivery import I3Gapless
from gapless_sim.oracles.liveness import (
    SAME_WANT_MOST,
    V1LiveDelivery,
    V2LiveCuriosity,
    V3LiveRelease,
    V4NoStorm,
)
from gapless_sim.world.options import SECOND
from unit.gapless_sim.oracles.model_fixture import NODE, SHB, ModelFixture, P, violates


def settled(fixture: ModelFixture, judge: Any) -> bool:
    """Whether it is; whoever is not must say why."""
    oracle = fixture.oracles[judge]
    assert oracle.settled() == (oracle.unsettled() == "")
    return oracle.settled()


# V1


def delivering() -> tuple[ModelFixture, Any]:
    """An application that was told of one publication of two."""
    fixture = ModelFixture(I3Gapless, V1LiveDelivery)
    fixture.opens()
    reader = fixture.attach(fixture.row(), p=5)
    fixture.log((10, 1), (20, 2))
    fixture.hand_out(reader, (10, 1))
    return fixture, reader


@pytest.mark.parametrize(("waits", "cut"), [(True, True), (True, False), (False, True)])
def test_v1_a_transaction_may_need_a_pubend_that_is_cut_off(*, waits: bool, cut: bool) -> None:
    """Found by the simulator: its application is handed nothing of other pubends, either, until it has ended."""
    fixture, reader = delivering()
    fixture.opens("other@1")
    fixture.model.histories["other@1"].damaged = cut
    reader.waits = waits

    assert settled(fixture, V1LiveDelivery) is (waits and cut)


def test_v1_of_a_pubend_that_is_gone_each_subscription_is_told_so() -> None:
    fixture, reader = delivering()
    fixture.world.now = SECOND
    fixture.observe.wiped(fixture.world.brokers[NODE])

    assert not settled(fixture, V1LiveDelivery)
    fixture.gap(reader, 10, 15, reason=GapReason.VOLUME_LOST.value)
    assert settled(fixture, V1LiveDelivery), "whatever it had behind the gap is lost with it"


@pytest.mark.parametrize("knows", [True, False])
def test_v1_what_a_former_consumer_may_have_committed(knows: bool) -> None:
    """A consumer whose broker commits for it, and did not know the pubend yet when it came, may owe nothing of it."""
    fixture = ModelFixture(I3Gapless, V1LiveDelivery)
    fixture.opens()
    reader = fixture.attach(fixture.row(), p=5) if knows else fixture.attach(fixture.row())
    reader.commits = True
    fixture.log((10, 1))

    assert settled(fixture, V1LiveDelivery) is not knows


def test_v1_one_that_is_not_durable_waits_anew_in_each_session() -> None:
    """Found by the simulator: after a restart of its broker it waited for a pubend whose disk had been lost."""
    fixture = ModelFixture(I3Gapless, V1LiveDelivery)
    fixture.opens()
    fixture.opens("gone@1")
    fixture.model.histories["gone@1"].damaged = True
    reader = fixture.attach(fixture.row(name=None), p=5)
    fixture.log((10, 1))

    assert not settled(fixture, V1LiveDelivery)
    reader.core.phase = SubscriptionPhase.ASKING
    assert settled(fixture, V1LiveDelivery)
    fixture.model.histories["gone@1"].damaged = False
    assert not settled(fixture, V1LiveDelivery)


def test_v1_a_publisher_may_wait_for_a_pubend_that_is_not_what_it_was_and_not_for_one_that_is_gone() -> None:
    fixture = ModelFixture(I3Gapless, V1LiveDelivery)
    fixture.opens()
    fixture.publication(1)
    fixture.observe.ready(fixture.producer, 0)
    fixture.producer.waiting = 1
    fixture.world.now = SECOND
    fixture.observe.wiped(fixture.world.brokers[NODE])

    assert not settled(fixture, V1LiveDelivery), "it is told that its pubend is gone"
    fixture.observe.restored(fixture.world.brokers[NODE])
    assert settled(fixture, V1LiveDelivery)
    fixture.world.now = 2 * SECOND
    fixture.observe.ready(fixture.producer, 0)
    assert not settled(fixture, V1LiveDelivery)


# V2


def asking() -> ModelFixture:
    fixture = ModelFixture(V2LiveCuriosity)
    fixture.opens()
    fixture.observe.liveness_begins()
    fixture.ask((10, 20))
    return fixture


def test_v2_who_asks_for_the_same_again_and_again_has_none() -> None:
    fixture = asking()

    for pause in (4, 8, 16):
        fixture.world.now += pause * SECOND
        fixture.ask((10, 20))
    fixture.world.now += 30 * SECOND
    assert not settled(fixture, V2LiveCuriosity)
    fixture.world.now += 10 * SECOND
    assert settled(fixture, V2LiveCuriosity)


# V3


def releasing() -> tuple[ModelFixture, Any]:
    """One publication, which one application has consumed and not acknowledged."""
    fixture = ModelFixture(V3LiveRelease)
    fixture.opens()
    fixture.world.brokers[NODE].gauges = lambda: [gauges.LOG_BYTES.gauge(0, P)]  # type: ignore[method-assign]
    reader = fixture.attach(fixture.row(), p=5)
    fixture.log((10, 1))
    return fixture, reader


def test_v3_one_that_is_not_durable_and_waits_to_be_made_again_may_keep_something() -> None:
    """Found by the simulator (hostile 7349): a pubend was lost, and its successor's log was kept for its sake."""
    fixture, reader = releasing()
    fixture.acknowledge(reader, p=10)
    nameless = fixture.attach(fixture.row(name=None), sid=2, p=5)
    free = not settled(fixture, V3LiveRelease)
    nameless.core.phase = SubscriptionPhase.ASKING

    assert free
    assert settled(fixture, V3LiveRelease)


def test_v3_and_so_is_the_pfs() -> None:
    fixture, reader = releasing()
    fixture.acknowledge(reader, p=10)
    fixture.chop(10)
    broker = fixture.world.brokers[NODE]

    fixture.observe.written(broker, [Put(f"pfs/{P}", 10, b"")])
    assert not settled(fixture, V3LiveRelease)
    fixture.observe.written(broker, [Chop(f"pfs/{P}", 10)])
    assert settled(fixture, V3LiveRelease)


def test_v3_a_gap_is_acknowledged_like_an_event() -> None:
    fixture, reader = releasing()
    fixture.acknowledge(reader, p=10)
    fixture.gap(reader, 10, 12)

    assert settled(fixture, V3LiveRelease)
    fixture.acknowledge(reader, p=12)
    assert not settled(fixture, V3LiveRelease)


def test_v3_one_that_is_away_pins_what_its_broker_may_not_know() -> None:
    fixture, reader = releasing()
    fixture.acknowledge(reader, p=10)
    fixture.leave(reader)

    assert settled(fixture, V3LiveRelease)


def test_v3_one_that_is_removed_pins_nothing() -> None:
    fixture, reader = releasing()
    fixture.leave(reader)
    fixture.observe.unsubscribing(reader.row)

    assert settled(fixture, V3LiveRelease), "nobody knows yet"
    fixture.observe.unsubscribed(reader.row)
    assert not settled(fixture, V3LiveRelease)


def test_v3_an_shb_that_does_not_come_back_pins_everything() -> None:
    fixture, reader = releasing()
    fixture.acknowledge(reader, p=10)
    fixture.opens(members=[(SHB, 0), ("node1@lost disk", 0)])

    assert settled(fixture, V3LiveRelease)
    fixture.observe.retired("node1@lost disk")
    assert not settled(fixture, V3LiveRelease)


# V4


def test_v4_one_range_is_asked_for_a_few_times() -> None:
    fixture = ModelFixture(V4NoStorm)
    for _ in range(SAME_WANT_MOST):
        fixture.ask((10, 20))
    fixture.observe.liveness_begins()

    for _ in range(SAME_WANT_MOST):
        fixture.ask((10, 20))
        fixture.ask((10, 20), shb="")
        fixture.ask((10, 20), shb="")
    fixture.ask((10, 30))
    with violates("V4"):
        fixture.ask((10, 20))


@pytest.mark.parametrize("by_ranges", [False, True])
def test_v3_nobody_goes_on_in_the_name_of_one_who_reads_by_ranges(by_ranges: bool) -> None:
    """Where he cannot be reached any more, what he has not said keeps the log; a consumer's home goes on for him."""
    fixture, reader = releasing()
    fixture.acknowledge(reader, p=10)
    reader.by_ranges = by_ranges
    oracle: Any = fixture.oracles[V3LiveRelease]
    account = fixture.model.accounts[reader.row.number]
    assert oracle._is_current(account, P)
    oracle._reach.is_served = lambda _: False

    assert oracle._is_current(account, P) is not by_ranges


def test_v3_nor_in_the_name_of_a_guest_whose_home_is_out_of_reach() -> None:
    """Found by the simulator (knowledge 7040 of the workload roaming): no way led from one SHB to the other one."""
    fixture, reader = releasing()
    fixture.acknowledge(reader, p=10)
    oracle: Any = fixture.oracles[V3LiveRelease]
    account = fixture.model.accounts[reader.row.number]
    oracle._reach.is_served = lambda _: False
    at_home = oracle._is_current(account, P)
    fixture.world.roaming = cast("Any", "somewhere")

    assert at_home
    assert not oracle._is_current(account, P)


def test_v3_an_acknowledgement_that_was_cut_off_counts_for_nothing() -> None:
    """Found by the simulator (hostile 19396): a gap was acknowledged while nothing reached the broker any more."""
    fixture, reader = releasing()
    fixture.acknowledge(reader, heard=False, p=10)
    needed = not settled(fixture, V3LiveRelease)
    fixture.world.network.cut("client1", NODE)

    assert needed
    assert settled(fixture, V3LiveRelease)
