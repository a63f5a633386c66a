from __future__ import annotations

from collections.abc import Callable

import pytest

from gapless_sim.application import SimClient
from gapless_sim.workloads.churn_application import Application
from gapless_sim.workloads.churn_subscribing import SubscribingOperations
from unit.gapless_sim.workloads.churning import Stage


def operations_of(stage: Stage) -> SubscribingOperations:
    return SubscribingOperations(stage.scene, [stage.application, stage.other])


def test_where_there_is_nothing_there_is_nothing_to_do() -> None:
    stage = Stage(subscriptions=0)
    operations = operations_of(stage)
    stage.application.holdings.append(stage.hold())
    possible = {operations.ask_nonsense, operations.subscribe}
    stage.application.holdings.clear()

    def idle(operation: Callable[[Application, SimClient], bool]) -> bool:
        return not operation(stage.application, stage.first)

    assert [operation for operation in operations.others() if operation not in possible and not idle(operation)] == []


def test_the_benign_subscription_is_durable_and_to_everything() -> None:
    stage = Stage()
    operations_of(stage).subscribe(stage.application, stage.first)
    stage.run(1)
    (holding,) = stage.application.living()

    assert (holding.row.name, holding.row.topics, holding.row.selector) == ("one", ("#",), "")
    assert holding.consumer() is not None


def test_there_are_never_more_than_the_options_say() -> None:
    stage = Stage(subscriptions=1)
    operations = operations_of(stage)

    assert operations.subscribe(stage.application, stage.first)
    assert not operations.subscribe(stage.other, stage.other.processes[0])


def test_leaving_and_coming_back() -> None:
    stage = Stage()
    operations, holding = operations_of(stage), stage.hold()
    left = operations.leave(stage.application, stage.first)
    stage.run(1)
    away = holding.consumer()
    came_back = operations.come_back(stage.application, stage.second)
    stage.run(1)
    customer = holding.consumer()

    assert (left, came_back, away) == (True, True, None)
    assert customer is not None
    assert customer.client is stage.second


def test_flapping() -> None:
    stage = Stage()
    operations, holding = operations_of(stage), stage.hold()
    before = holding.consumer()
    operations.flap(stage.application, stage.first)
    stage.run(1)

    assert holding.consumer() not in (None, before)


def test_a_rival_is_refused_by_default() -> None:
    stage = Stage()
    operations, holding = operations_of(stage), stage.hold()
    operations.rival(stage.application, stage.second)
    stage.run(0.3)

    assert stage.probed("in use") == 1
    assert holding.home is stage.first


@pytest.mark.parametrize("tried", ["change_selector", "present_foreign_token", "ask_nonsense"])
def test_what_must_be_refused_changes_nothing(tried: str) -> None:
    stage = Stage()
    operations, holding = operations_of(stage), stage.hold()
    stage.scene.keep_souvenir(stage.hold("two").row.token)
    done = getattr(operations, tried)(stage.application, stage.second)
    stage.run(1)

    assert done
    assert sum(count for name, count in stage.world.probes.items() if name.startswith("churn.refused")) == 1
    assert holding.consumer() is not None


def test_removing_while_somebody_else_asks_is_put_off() -> None:
    stage = Stage()
    operations, holding = operations_of(stage), stage.hold()
    pending = holding.consume(stage.second)
    put_off = operations.remove(stage.application, stage.first)
    stage.run(0.3)
    removed = operations.remove(stage.application, stage.first)
    stage.run(1)

    assert pending.over
    assert (put_off, removed) == (False, True)
    assert holding.row.ended


def test_stopping_and_going_on() -> None:
    stage = Stage()
    operations, holding = operations_of(stage), stage.hold()
    operations.stop(stage.application, stage.first)
    stage.publish(stage.post(), 3)
    stage.run(1)
    customer = holding.consumer()
    assert customer is not None
    buffered = customer.core.buffered_events
    operations.go_on(stage.application, stage.first)
    stage.run(1)

    assert (buffered, customer.core.buffered_events) == (3, 0)


def test_an_acknowledgement_at_any_time() -> None:
    stage = Stage()
    stage.hold()

    assert operations_of(stage).acknowledge(stage.application, stage.first)
    assert stage.probed("acknowledged out of turn") == 1
