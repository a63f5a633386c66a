from __future__ import annotations

from collections.abc import Callable

import pytest

from gapless_sim.workloads.churn_application import Application
from gapless_sim.workloads.churn_changes import Changes
from gapless_sim.workloads.churn_commits import Commits
from gapless_sim.workloads.churn_subscribe_operations import SubscribeOperations
from gapless_sim.world.application import SimClient
from unit.gapless_sim.workloads.churn_fixture import ChurnFixture


def operations_of(fixture: ChurnFixture) -> SubscribeOperations:
    applications = [fixture.application, fixture.other]
    changes, commits = Changes(fixture.state, applications), Commits(fixture.state, applications)
    return SubscribeOperations(fixture.state, applications, changes, commits)


def test_where_there_is_nothing_there_is_nothing_to_do() -> None:
    fixture = ChurnFixture(subscriptions=0)
    operations = operations_of(fixture)
    fixture.application.subscriptions.append(fixture.hold())
    possible = {operations.ask_nonsense, operations.subscribe}
    fixture.application.subscriptions.clear()

    def idle(operation: Callable[[Application, SimClient], bool]) -> bool:
        return not operation(fixture.application, fixture.first)

    assert [operation for operation in operations.others() if operation not in possible and not idle(operation)] == []


def test_the_benign_subscription_is_durable_and_to_everything() -> None:
    fixture = ChurnFixture()
    operations_of(fixture).subscribe(fixture.application, fixture.first)
    fixture.run(1)
    (subscription,) = fixture.application.living()

    assert (subscription.row.name, subscription.row.topics, subscription.row.selector) == ("one", ("#",), "")
    assert subscription.attached_consumer() is not None


def test_there_are_never_more_than_the_options_say() -> None:
    fixture = ChurnFixture(subscriptions=1)
    operations = operations_of(fixture)

    assert operations.subscribe(fixture.application, fixture.first)
    assert not operations.subscribe(fixture.other, fixture.other.processes[0])


def test_leaving_and_coming_back() -> None:
    fixture = ChurnFixture()
    operations, subscription = operations_of(fixture), fixture.hold()
    left = operations.leave(fixture.application, fixture.first)
    fixture.run(1)
    away = subscription.attached_consumer()
    came_back = operations.come_back(fixture.application, fixture.second)
    fixture.run(1)
    consumer = subscription.attached_consumer()

    assert (left, came_back, away) == (True, True, None)
    assert consumer is not None
    assert consumer.client is fixture.second


def test_flapping() -> None:
    fixture = ChurnFixture()
    operations, subscription = operations_of(fixture), fixture.hold()
    before = subscription.attached_consumer()
    operations.flap(fixture.application, fixture.first)
    fixture.run(1)

    assert subscription.attached_consumer() not in (None, before)


def test_a_rival_is_refused_by_default() -> None:
    fixture = ChurnFixture()
    operations, subscription = operations_of(fixture), fixture.hold()
    operations.rival(fixture.application, fixture.second)
    fixture.run(0.3)

    assert fixture.hits_of("in use") == 1
    assert subscription.home is fixture.first


@pytest.mark.parametrize("tried", ["change_selector", "present_foreign_token", "ask_nonsense"])
def test_what_must_be_refused_changes_nothing(tried: str) -> None:
    fixture = ChurnFixture()
    operations, subscription = operations_of(fixture), fixture.hold()
    fixture.state.keep_old_token(fixture.hold("two").row.token)
    done = getattr(operations, tried)(fixture.application, fixture.second)
    fixture.run(1)

    assert done
    assert sum(count for name, count in fixture.world.hits.items() if name.startswith("churn.refused")) == 1
    assert subscription.attached_consumer() is not None


def test_removing_while_somebody_else_asks_is_put_off() -> None:
    fixture = ChurnFixture()
    operations, subscription = operations_of(fixture), fixture.hold()
    pending = subscription.consume(fixture.second)
    put_off = operations.remove(fixture.application, fixture.first)
    fixture.run(0.3)
    removed = operations.remove(fixture.application, fixture.first)
    fixture.run(1)

    assert pending.over
    assert (put_off, removed) == (False, True)
    assert subscription.row.ended


def test_stopping_and_going_on() -> None:
    fixture = ChurnFixture()
    operations, subscription = operations_of(fixture), fixture.hold()
    operations.stop(fixture.application, fixture.first)
    fixture.publish(fixture.relay(), 3)
    fixture.run(1)
    consumer = subscription.attached_consumer()
    assert consumer is not None
    buffered = consumer.core.buffered_events
    operations.go_on(fixture.application, fixture.first)
    fixture.run(1)

    assert (buffered, consumer.core.buffered_events) == (3, 0)


def test_an_acknowledgement_at_any_time() -> None:
    fixture = ChurnFixture()
    fixture.hold()

    assert operations_of(fixture).acknowledge(fixture.application, fixture.first)
    assert fixture.hits_of("acknowledged out of turn") == 1
