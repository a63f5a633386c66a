from __future__ import annotations

from gapless.core.wire.messages import InUse
from gapless_sim.workloads.churn_customers import Habits, with_token, without_token
from unit.gapless_sim.workloads.churning import Commits, Stage, publish


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


def test_tokens_are_put_into_a_request_and_taken_out() -> None:
    stage = Stage()
    holding = stage.hold()
    token = holding.row.token
    assert token is not None
    wanted = with_token(without_token(holding.row.wanted()), token)

    assert wanted == holding.row.wanted()
    assert without_token(wanted).positions is None
