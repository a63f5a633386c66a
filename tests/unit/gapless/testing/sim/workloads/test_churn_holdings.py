from __future__ import annotations

from dataclasses import replace

import pytest

from gapless.core.client.effects import Attached
from gapless.core.messages import InUse
from gapless.errors import (
    GaplessError,
    SubscriptionInUseError,
    SubscriptionMismatchError,
    SubscriptionNotFoundError,
    SubscriptionTakenOverError,
    TokenMismatchError,
)
from gapless.testing.sim.application import Consumer
from gapless.testing.sim.observing import Oracle
from gapless.testing.sim.workloads.churn_holdings import Habits, with_token, without_token
from unit.gapless.testing.sim.workloads.churning import Stage


class Commits(Oracle):
    """How many commits each process has made."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.world)
        self.by: list[str] = []
        stage.world.observe.add(self)

    def committed(self, consumer: Consumer, token: object) -> None:
        self.by.append(consumer.client.name)


def publish(stage: Stage, count: int = 1) -> None:
    post = stage.application.posts[0] if stage.application.posts else stage.post()
    for _ in range(count):
        stage.publish(post, 1)
        stage.run(0.2)


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


def test_a_takeover_has_the_claim_and_the_other_one_cannot_commit() -> None:
    stage = Stage()
    commits, holding = Commits(stage), stage.hold(habits=Habits(pace=500_000_000))
    publish(stage, 4)
    before = len(commits.by)
    stage.first.pause(100_000_000)  # it has events in its hands, and does not hear that it has lost them
    customer = holding.consume(stage.second, in_use=InUse.TAKEOVER)
    stage.run(0.05)

    assert holding.claimant is customer
    assert holding.home is stage.second
    old = next(other for other in holding.customers if other.client is stage.first)
    old.commit()
    assert len(commits.by) == before
    assert old.over
    assert stage.probed("stale commit refused") == 1


def test_whoever_read_the_token_too_early_reads_it_again() -> None:
    stage = Stage()
    holding = stage.hold()
    waiting = holding.consume(stage.second, in_use=InUse.WAIT)
    publish(stage, 2)
    first = holding.consumer()
    assert first is not None
    holding.depart(first)
    stage.run(1)
    customer = holding.consumer()

    assert waiting.over
    assert customer is not None
    assert customer.asked_with is holding.row.token
    assert stage.probed("position moved meanwhile") == 1


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


def test_in_the_end_it_takes_all_there_is_and_acknowledges() -> None:
    stage = Stage()
    slow = Habits(pace=10**12, acknowledges="never", window=(("window_events", 1),))
    holding = stage.hold(habits=slow)
    publish(stage, 3)
    stage.scene.calm_now = True
    holding.calm()
    stage.run(2)
    customer = holding.consumer()

    assert customer is not None
    assert customer.acknowledges == "at once"
    assert customer.wanted.window_events > 1
    assert not customer.core.buffered_events


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


def test_tokens_are_put_into_a_request_and_taken_out() -> None:
    stage = Stage()
    holding = stage.hold()
    token = holding.row.token
    assert token is not None
    wanted = with_token(without_token(holding.row.wanted()), token)

    assert wanted == holding.row.wanted()
    assert without_token(wanted).positions is None
