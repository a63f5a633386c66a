from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import msgspec
import pytest

from gapless.core.client.consuming.subscription import SubscriptionPhase
from gapless.core.client.link.effects import Attached
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
from gapless_sim.recording.lapsed_leases import LAPSED
from gapless_sim.workloads.churn_subscriptions import AppSubscription
from unit.gapless_sim.workloads.churn_fixture import ChurnFixture, Commits, publish


def test_it_is_consumed_and_committed() -> None:
    fixture = ChurnFixture()
    commits, subscription = Commits(fixture), fixture.hold()
    publish(fixture, 3)

    assert subscription.row.created
    assert subscription.row.token is not None
    assert commits.by == ["client1"] * 3


def test_after_a_crash_it_is_consumed_again() -> None:
    fixture = ChurnFixture()
    subscription = fixture.hold()
    publish(fixture)
    token = subscription.row.token
    fixture.first.crash()
    fixture.first.start()
    fixture.run(1)
    consumer = subscription.attached_consumer()

    assert consumer is not None
    assert consumer.wanted.positions == dict(token.ticks)  # type: ignore[union-attr]


def test_one_that_is_not_durable_ends_with_its_consumer() -> None:
    fixture = ChurnFixture()
    subscription = fixture.hold(None)
    fixture.first.crash()
    fixture.first.start()
    fixture.run(1)

    assert subscription.row.ended
    assert not subscription.living


def test_an_old_token_is_an_old_copy_of_the_database() -> None:
    fixture = ChurnFixture()
    subscription = fixture.hold()
    publish(fixture, 5)
    old = subscription.row.tokens[2]
    first = subscription.attached_consumer()
    assert first is not None
    subscription.depart(first)
    consumer = subscription.consume(fixture.first, token=old)
    tokens = list(subscription.row.tokens)
    fixture.run(1)

    assert consumer.wanted.positions == dict(old.ticks)
    assert len(tokens) == 2
    assert subscription.row.token is not None
    assert old <= subscription.row.token


def test_without_a_token_it_goes_on_where_it_has_acknowledged() -> None:
    fixture = ChurnFixture()
    subscription = fixture.hold()
    publish(fixture, 3)
    first = subscription.attached_consumer()
    assert first is not None
    subscription.depart(first)
    consumer = subscription.consume(fixture.first, acknowledged=True)
    fixture.run(1)

    assert consumer.wanted.positions is None
    assert consumer.attached
    assert subscription.row.token is not None


def test_it_is_removed() -> None:
    fixture = ChurnFixture()
    subscription = fixture.hold()
    subscription.remove(fixture.second)
    living = subscription.living
    fixture.run(1)

    assert not living
    assert subscription.row.ended
    assert fixture.hits_of("removed while consumed") == 1
    assert fixture.state.removals == []


def test_everybody_of_the_process_that_waits_leaves_before_it_is_removed() -> None:
    """Found by the simulator (local 8117): every other one was left, and made it anew."""
    fixture = ChurnFixture()
    subscription = fixture.hold()
    subscription.try_in_vain(
        fixture.first, replace(subscription.row.wanted(), selector="k = 1"), SubscriptionMismatchError
    )
    subscription.consume(fixture.first)
    subscription.remove(fixture.first)

    assert [consumer for consumer in subscription.alive() if consumer.pending] == []


def test_a_removal_that_a_crash_interrupted_is_asked_for_again() -> None:
    fixture = ChurnFixture()
    subscription = fixture.hold()
    subscription.remove(fixture.first)
    fixture.first.pump()
    fixture.first.crash()
    fixture.first.start()
    fixture.run(1)

    assert subscription.row.ended
    assert subscription.removals == 2


def test_one_that_is_not_durable_is_being_created_in_each_session() -> None:
    fixture = ChurnFixture()
    durable, other = fixture.hold(), fixture.hold(name=None)
    settled = durable.is_being_created, other.is_being_created
    for subscription in (durable, other):
        consumer = subscription.attached_consumer()
        assert consumer is not None
        consumer.core.phase = SubscriptionPhase.ASKING

    assert settled == (False, False)
    assert (durable.is_being_created, other.is_being_created) == (False, True)


def test_what_must_be_refused_is() -> None:
    fixture = ChurnFixture()
    subscription = fixture.hold()
    wanted = replace(subscription.row.wanted(), selector="k = 1")
    subscription.try_in_vain(fixture.second, wanted, SubscriptionMismatchError)
    fixture.run(1)

    assert fixture.hits_of("refused: SubscriptionMismatchError") == 1
    assert subscription.attached_consumer() is not None


def test_while_another_process_is_asking_it_must_not_be_removed() -> None:
    fixture = ChurnFixture()
    subscription = fixture.hold()
    waiting = subscription.consume(fixture.second, in_use=InUse.WAIT)
    fixture.run(1)

    assert subscription.pending_elsewhere(fixture.first)
    assert not subscription.pending_elsewhere(fixture.second)
    subscription.depart(waiting)
    assert subscription.pending_elsewhere(fixture.first), "what it asked for may still be carried out"
    fixture.second.crash()
    assert not subscription.pending_elsewhere(fixture.first)


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
    fixture = ChurnFixture()
    subscription = fixture.hold()
    consumer = subscription.attached_consumer()
    assert consumer is not None

    with pytest.raises(AssertionError, match=f"client1:one: the consumption is over: {type(error).__name__}"):
        subscription.on_over(consumer, error)


def lapse(fixture: ChurnFixture, subscription: AppSubscription) -> None:
    row = msgspec.msgpack.encode([subscription.sid, "client1", "one", 0, {}, {}])
    fixture.state.written(fixture.world.brokers["node1"], [Set(LAPSED, b"key", row)])


def test_what_goes_on_after_a_lapse_may_be_missing_in_a_listing_until_then() -> None:
    """Hostile 3127 and 4140, with leases in every run."""
    fixture = ChurnFixture()
    subscription = fixture.hold()
    consumer = subscription.attached_consumer()
    assert consumer is not None
    lapse(fixture, subscription)
    fixture.run(1)
    before = fixture.application.changed_at["one"]
    subscription.before_attached(consumer, Attached(subscription.sid + 1, 1, created=True))

    assert before < fixture.application.changed_at["one"] == fixture.world.now


@pytest.mark.parametrize("lapsed", [False, True])
def test_whoever_had_what_has_lapsed_ends_rightly_although_another_one_has_made_it_anew(*, lapsed: bool) -> None:
    fixture = ChurnFixture()
    subscription = fixture.hold()
    before = subscription.attached_consumer()
    assert before is not None
    if lapsed:
        lapse(fixture, subscription)
    subscription.sid += 1

    with nullcontext() if lapsed else pytest.raises(AssertionError, match="the consumption is over"):
        subscription.on_over(before, SubscriptionNotFoundError("?"))
    assert fixture.hits_of("lapsed") == lapsed


def test_an_attachment_that_should_have_been_refused_is_wrong() -> None:
    fixture = ChurnFixture()
    subscription = fixture.hold()
    subscription.try_in_vain(fixture.second, subscription.row.wanted(), SubscriptionMismatchError)
    vain = subscription.consumers[-1]

    with pytest.raises(AssertionError, match="SubscriptionMismatchError was to be expected"):
        subscription.before_attached(vain, Attached(subscription.sid, 1, created=False))


def test_another_subscription_under_its_name_is_wrong() -> None:
    fixture = ChurnFixture()
    subscription = fixture.hold()
    consumer = subscription.attached_consumer()
    assert consumer is not None

    with pytest.raises(AssertionError, match="it came into being twice"):
        subscription.before_attached(consumer, Attached(subscription.sid + 1, 1, created=True))


def test_where_a_disk_was_lost_it_is_another_row() -> None:
    fixture = ChurnFixture()
    subscription = fixture.hold()
    before = subscription.row
    fixture.world.brokers["node1"].kill()
    fixture.world.brokers["node1"].replace_disk()
    fixture.run(5)
    again = fixture.hold()

    assert fixture.hits_of("subscription lost") == 1
    assert before.ended
    assert again.row.number != before.number
    assert again.row.created
