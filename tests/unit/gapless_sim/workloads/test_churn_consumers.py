from __future__ import annotations

from gapless.core.wire.messages import InUse
from gapless_sim.workloads.churn_consumers import Habits, with_token, without_token
from unit.gapless_sim.workloads.churn_fixture import ChurnFixture, Commits, publish


def test_a_takeover_has_the_claim_and_the_other_one_cannot_commit() -> None:
    fixture = ChurnFixture()
    commits, subscription = Commits(fixture), fixture.hold(habits=Habits(pace=500_000_000))
    publish(fixture, 4)
    before = len(commits.by)
    fixture.first.pause(100_000_000)  # it has events in its hands, and does not hear that it has lost them
    consumer = subscription.consume(fixture.second, in_use=InUse.TAKEOVER)
    fixture.run(0.05)

    assert subscription.claimant is consumer
    assert subscription.home is fixture.second
    old = next(other for other in subscription.consumers if other.client is fixture.first)
    old.commit()
    assert len(commits.by) == before
    assert old.over
    assert fixture.hits_of("stale commit refused") == 1


def test_whoever_read_the_token_too_early_reads_it_again() -> None:
    fixture = ChurnFixture()
    subscription = fixture.hold()
    waiting = subscription.consume(fixture.second, in_use=InUse.WAIT)
    publish(fixture, 2)
    first = subscription.attached_consumer()
    assert first is not None
    subscription.depart(first)
    fixture.run(1)
    consumer = subscription.attached_consumer()

    assert waiting.over
    assert consumer is not None
    assert consumer.asked_with is subscription.row.token
    assert fixture.hits_of("position moved meanwhile") == 1


def test_in_the_end_it_takes_all_there_is_and_acknowledges() -> None:
    fixture = ChurnFixture()
    slow = Habits(pace=10**12, acknowledges="never", window=(("window_events", 1),))
    subscription = fixture.hold(habits=slow)
    publish(fixture, 3)
    fixture.state.in_liveness = True
    subscription.begin_liveness()
    fixture.run(2)
    consumer = subscription.attached_consumer()

    assert consumer is not None
    assert consumer.acknowledges == "at once"
    assert consumer.wanted.window_events > 1
    assert not consumer.core.buffered_events


def test_tokens_are_put_into_a_request_and_taken_out() -> None:
    fixture = ChurnFixture()
    subscription = fixture.hold()
    token = subscription.row.token
    assert token is not None
    wanted = with_token(without_token(subscription.row.wanted()), token)

    assert wanted == subscription.row.wanted()
    assert without_token(wanted).positions is None
