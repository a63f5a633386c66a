from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import msgspec
import pytest

from gapless.core.client.effects import Attached
from gapless.core.client.subscribing import SubscriptionPhase
from gapless.core.ports import Set
from gapless.core.wire.messages import InUse
from gapless.errors import (
    GaplessError,
    SubscriptionInUseError,
    SubscriptionMismatchError,
    SubscriptionNotFoundError,
    SubscriptionTakenOverError,
    TokenMismatchError,
)
from gapless_sim.lapsing import LAPSED
from gapless_sim.workloads.churn_holdings import Holding
from unit.gapless_sim.workloads.churning import Commits, Stage, publish


def test_it_is_consumed_and_committed() -> None:
    stage = Stage()
    commits, holding = Commits(stage), stage.hold()
    publish(stage, 3)

    assert holding.row.created
    assert holding.row.token is not None
    assert commits.by == ["client1"] * 3


def test_after_a_crash_it_is_consumed_again() -> None:
    stage = Stage()
    holding = stage.hold()
    publish(stage)
    token = holding.row.token
    stage.first.crash()
    stage.first.start()
    stage.run(1)
    customer = holding.consumer()

    assert customer is not None
    assert customer.wanted.positions == dict(token.ticks)  # type: ignore[union-attr]


def test_one_that_is_not_durable_ends_with_its_consumer() -> None:
    stage = Stage()
    holding = stage.hold(None)
    stage.first.crash()
    stage.first.start()
    stage.run(1)

    assert holding.row.ended
    assert not holding.living


def test_an_old_token_is_an_old_copy_of_the_database() -> None:
    stage = Stage()
    holding = stage.hold()
    publish(stage, 5)
    old = holding.row.tokens[2]
    first = holding.consumer()
    assert first is not None
    holding.depart(first)
    customer = holding.consume(stage.first, token=old)
    tokens = list(holding.row.tokens)
    stage.run(1)

    assert customer.wanted.positions == dict(old.ticks)
    assert len(tokens) == 2
    assert holding.row.token is not None
    assert old <= holding.row.token


def test_without_a_token_it_goes_on_where_it_has_acknowledged() -> None:
    stage = Stage()
    holding = stage.hold()
    publish(stage, 3)
    first = holding.consumer()
    assert first is not None
    holding.depart(first)
    customer = holding.consume(stage.first, acknowledged=True)
    stage.run(1)

    assert customer.wanted.positions is None
    assert customer.attached
    assert holding.row.token is not None


def test_it_is_removed() -> None:
    stage = Stage()
    holding = stage.hold()
    holding.remove(stage.second)
    living = holding.living
    stage.run(1)

    assert not living
    assert holding.row.ended
    assert stage.probed("removed while consumed") == 1
    assert stage.scene.removals == []


def test_everybody_of_the_process_that_waits_leaves_before_it_is_removed() -> None:
    """Found by the simulator (local 8117): every other one was left, and made it anew."""
    stage = Stage()
    holding = stage.hold()
    holding.try_in_vain(stage.first, replace(holding.row.wanted(), selector="k = 1"), SubscriptionMismatchError)
    holding.consume(stage.first)
    holding.remove(stage.first)

    assert [customer for customer in holding.alive() if customer.pending] == []


def test_a_removal_that_a_crash_interrupted_is_asked_for_again() -> None:
    stage = Stage()
    holding = stage.hold()
    holding.remove(stage.first)
    stage.first.pump()
    stage.first.crash()
    stage.first.start()
    stage.run(1)

    assert holding.row.ended
    assert holding.removals == 2


def test_one_that_is_not_durable_is_being_created_in_each_session() -> None:
    stage = Stage()
    durable, other = stage.hold(), stage.hold(name=None)
    settled = durable.is_being_created, other.is_being_created
    for holding in (durable, other):
        customer = holding.consumer()
        assert customer is not None
        customer.core.phase = SubscriptionPhase.ASKING

    assert settled == (False, False)
    assert (durable.is_being_created, other.is_being_created) == (False, True)


def test_what_must_be_refused_is() -> None:
    stage = Stage()
    holding = stage.hold()
    wanted = replace(holding.row.wanted(), selector="k = 1")
    holding.try_in_vain(stage.second, wanted, SubscriptionMismatchError)
    stage.run(1)

    assert stage.probed("refused: SubscriptionMismatchError") == 1
    assert holding.consumer() is not None


def test_while_another_process_is_asking_it_must_not_be_removed() -> None:
    stage = Stage()
    holding = stage.hold()
    waiting = holding.consume(stage.second, in_use=InUse.WAIT)
    stage.run(1)

    assert holding.pending_elsewhere(stage.first)
    assert not holding.pending_elsewhere(stage.second)
    holding.depart(waiting)
    assert holding.pending_elsewhere(stage.first), "what it asked for may still be carried out"
    stage.second.crash()
    assert not holding.pending_elsewhere(stage.first)


@pytest.mark.parametrize(
    "error",
    [
        SubscriptionNotFoundError("?"),
        TokenMismatchError("?"),
        SubscriptionInUseError("?"),
        SubscriptionTakenOverError("?"),
        SubscriptionMismatchError("?"),
        GaplessError("?"),
    ],
)
def test_an_end_without_a_good_reason_is_wrong(error: GaplessError) -> None:
    stage = Stage()
    holding = stage.hold()
    customer = holding.consumer()
    assert customer is not None

    with pytest.raises(AssertionError, match=f"client1:one: the consumption is over: {type(error).__name__}"):
        holding.on_over(customer, error)


def lapse(stage: Stage, holding: Holding) -> None:
    row = msgspec.msgpack.encode([holding.sid, "client1", "one", 0, {}, {}])
    stage.scene.written(stage.world.brokers["node1"], [Set(LAPSED, b"key", row)])


def test_what_goes_on_after_a_lapse_may_be_missing_in_a_listing_until_then() -> None:
    """Hostile 3127 and 4140, with leases in every run."""
    stage = Stage()
    holding = stage.hold()
    customer = holding.consumer()
    assert customer is not None
    lapse(stage, holding)
    stage.run(1)
    before = stage.application.touched["one"]
    holding.before_attached(customer, Attached(holding.sid + 1, 1, created=True))

    assert before < stage.application.touched["one"] == stage.world.now


@pytest.mark.parametrize("lapsed", [False, True])
def test_whoever_had_what_has_lapsed_ends_rightly_although_another_one_has_made_it_anew(*, lapsed: bool) -> None:
    stage = Stage()
    holding = stage.hold()
    before = holding.consumer()
    assert before is not None
    if lapsed:
        lapse(stage, holding)
    holding.sid += 1

    with nullcontext() if lapsed else pytest.raises(AssertionError, match="the consumption is over"):
        holding.on_over(before, SubscriptionNotFoundError("?"))
    assert stage.probed("lapsed") == lapsed


def test_an_attachment_that_should_have_been_refused_is_wrong() -> None:
    stage = Stage()
    holding = stage.hold()
    holding.try_in_vain(stage.second, holding.row.wanted(), SubscriptionMismatchError)
    vain = holding.customers[-1]

    with pytest.raises(AssertionError, match="SubscriptionMismatchError was to be expected"):
        holding.before_attached(vain, Attached(holding.sid, 1, created=False))


def test_another_subscription_under_its_name_is_wrong() -> None:
    stage = Stage()
    holding = stage.hold()
    customer = holding.consumer()
    assert customer is not None

    with pytest.raises(AssertionError, match="it came into being twice"):
        holding.before_attached(customer, Attached(holding.sid + 1, 1, created=True))


def test_where_a_disk_was_lost_it_is_another_row() -> None:
    stage = Stage()
    holding = stage.hold()
    before = holding.row
    stage.world.brokers["node1"].kill()
    stage.world.brokers["node1"].replace_disk()
    stage.run(5)
    again = stage.hold()

    assert stage.probed("subscription lost") == 1
    assert before.ended
    assert again.row.number != before.number
    assert again.row.created
