from __future__ import annotations

import pytest

from gapless.core.wire.messages import InUse, OnChange, StartAt
from gapless.errors import SubscriptionMismatchError
from gapless_sim.workloads.churn_changes import Changes
from gapless_sim.workloads.churn_subscriptions import AppSubscription
from gapless_sim.world.consumer import Row
from unit.gapless_sim.workloads.churn_fixture import ChurnFixture, publish


def for_other_events(fixture: ChurnFixture, subscription: AppSubscription, way: OnChange) -> Row:
    """A row in its place, to what has a `k`."""
    former = subscription.row
    return Row(
        fixture.state.row_number(),
        former.client_id,
        former.name,
        ("#",),
        "k IS NOT NULL",
        lambda event: "k" in event.publication.properties,
        on_change=way,
        former=former,
    )


@pytest.mark.parametrize("way", [OnChange.KEEP_POSITION, OnChange.JMS])
def test_a_changed_subscription_goes_on_with_its_new_row(way: OnChange) -> None:
    fixture = ChurnFixture()
    subscription = fixture.hold()
    former, sid = subscription.row, subscription.sid
    publish(fixture)
    subscription.home = None
    for consumer in subscription.alive():
        subscription.depart(consumer)
    fixture.run(1)
    row = for_other_events(fixture, subscription, way)

    subscription.change(row, fixture.first, InUse.ERROR)
    fixture.run(1)

    assert former.ended
    assert row.created
    assert subscription.attached_consumer() is not None
    assert (subscription.sid == sid) is (way is OnChange.KEEP_POSITION)


def test_whoever_wants_what_it_was_before_is_no_mistake() -> None:
    fixture = ChurnFixture()
    subscription = fixture.hold()
    [consumer] = subscription.alive()
    subscription.row = for_other_events(fixture, subscription, OnChange.KEEP_POSITION)

    subscription.on_over(consumer, SubscriptionMismatchError("it was changed"))

    assert fixture.hits_of("changed under a consumer") == 1


def test_it_is_not_certain_while_something_was_asked_and_not_answered() -> None:
    """What a process asked that has crashed may still arrive."""
    fixture = ChurnFixture()
    subscription = fixture.hold()
    assert subscription.is_certain()
    subscription.consume(fixture.second)
    fixture.second.crash()
    assert not subscription.is_certain()

    fixture.run(6)

    assert subscription.is_certain()


def test_in_a_benign_world_nothing_changes() -> None:
    fixture = ChurnFixture()
    changes = Changes(fixture.state, [fixture.application])
    row = Row(1, "client1", "one", ("#",), "", lambda _: True, StartAt.LATEST)

    changes.leave_out(row)

    assert not changes.on
    assert not row.no_local
