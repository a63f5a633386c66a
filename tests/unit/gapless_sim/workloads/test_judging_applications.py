"""Applications judge, too: what no sane application of theirs should meet ends the run."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from gapless.core.client.link.effects import Attached, Listed
from gapless.errors import (
    ConfigurationError,
    ConnectionClosedError,
    GaplessError,
    PublisherFencedError,
    PublishRejectedError,
    SubscriptionInUseError,
    SubscriptionMismatchError,
    SubscriptionNotFoundError,
    SubscriptionTakenOverError,
    TokenAheadError,
    TokenMismatchError,
)
from gapless_sim.workloads.churn_consumers import ChurnConsumer
from gapless_sim.workloads.churn_subscriptions import AppSubscription
from gapless_sim.workloads.scenario_filters import only
from gapless_sim.workloads.scenario_publishers import Meters
from gapless_sim.workloads.scenario_starts import Courier, Noting
from unit.gapless_sim.workloads.churn_fixture import ChurnFixture
from unit.gapless_sim.workloads.scenario_fixture import ScenarioFixture
from unit.gapless_sim.workloads.test_churn_listings import row


def attached(subscription: AppSubscription) -> ChurnConsumer:
    consumer = subscription.attached_consumer()
    assert consumer is not None
    return consumer


# --------------------------------------------------------------------------------------- churn: subscriptions


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
    subscription = ChurnFixture().hold()

    with pytest.raises(AssertionError, match=f"client1:one: the consumption is over: {type(error).__name__}"):
        subscription.on_over(attached(subscription), error)


def test_an_attachment_that_should_have_been_refused_is_wrong() -> None:
    fixture = ChurnFixture()
    subscription = fixture.hold()
    subscription.try_in_vain(fixture.second, subscription.row.wanted(), SubscriptionMismatchError)
    vain = subscription.consumers[-1]

    with pytest.raises(AssertionError, match="SubscriptionMismatchError was to be expected"):
        subscription.before_attached(vain, Attached(subscription.sid, 1, created=False))


def test_another_subscription_under_its_name_is_wrong() -> None:
    subscription = ChurnFixture().hold()

    with pytest.raises(AssertionError, match="it came into being twice"):
        subscription.before_attached(attached(subscription), Attached(subscription.sid + 1, 1, created=True))


def test_a_subscription_without_a_consumer_is_unsettled() -> None:
    fixture = ChurnFixture()
    subscription = fixture.hold()
    consumer = attached(subscription)
    subscription.home = None
    subscription.depart(consumer)

    assert fixture.application.unsettled() == "client1:one has no consumer"
    assert not fixture.application.excused()
    fixture.world.network.cut("client1b", "node1")
    assert fixture.application.excused()


# ------------------------------------------------------------------------------- churn: listings and outboxes


def test_a_subscription_that_is_missing_in_a_listing_is_wrong() -> None:
    fixture = ChurnFixture()
    fixture.hold()
    fixture.run(1)
    fixture.application.list_subscriptions(fixture.first, [fixture.application])
    fixture.application.subscriptions[0].row.name = "two"
    fixture.application.changed_at["two"] = fixture.application.changed_at.pop("one")

    with pytest.raises(AssertionError, match="client1:two is not listed"):
        fixture.run(1)


@pytest.mark.parametrize("is_taken", [True, False])
def test_what_is_being_taken_over_may_be_listed_as_not_connected(
    monkeypatch: pytest.MonkeyPatch, *, is_taken: bool
) -> None:
    fixture = ChurnFixture()
    subscription = fixture.hold()
    fixture.run(1)
    answers: list[Any] = []
    monkeypatch.setattr(fixture.first, "ask", lambda _, answered, failed: answers.append((answered, failed)))
    fixture.application.list_subscriptions(fixture.first, [])
    if is_taken:
        subscription.consume(fixture.first)
    [(answered, _)] = answers
    listed = Listed([row(sid=subscription.sid, connected=False)])

    with nullcontext() if is_taken else pytest.raises(AssertionError, match="listed as not connected"):
        answered(listed)


@pytest.mark.parametrize("error", [ConfigurationError("?"), ConnectionClosedError("?"), GaplessError("?")])
def test_a_listing_that_fails_without_a_good_reason_is_wrong(error: GaplessError) -> None:
    fixture = ChurnFixture()
    fixture.application.list_pubends(fixture.first)
    number, question = list(fixture.first._owners.items())[-1]

    assert number
    with pytest.raises(AssertionError, match="a listing failed"):
        question.on_failed(error)


@pytest.mark.parametrize("error", [PublishRejectedError("no"), PublisherFencedError("no"), GaplessError("what?")])
def test_an_outbox_that_ends_without_a_good_reason_is_wrong(error: GaplessError) -> None:
    relay = ChurnFixture().relay()
    assert relay.sender is not None

    with pytest.raises(AssertionError, match="client1/out1"):
        relay.on_over(relay.sender, error)


def test_the_refusal_of_a_good_batch_is_wrong() -> None:
    fixture = ChurnFixture()
    relay = fixture.relay()
    publication = fixture.state.publications.write()

    with pytest.raises(AssertionError, match="a good batch was refused"):
        relay.check_refusal([publication], PublishRejectedError("no"))
    with pytest.raises(AssertionError, match="of 0 that were handed out"):
        relay.on_open(relay.sender, 1)  # type: ignore[arg-type]


def test_an_outbox_is_given_up_when_a_broker_has_lost_receipted_publications() -> None:
    fixture = ChurnFixture()
    relay = fixture.relay()
    fixture.publish(relay, 3)
    fixture.run(1)
    assert relay.sender is not None
    with pytest.raises(AssertionError, match="has lost what it acknowledged"):
        relay.on_open(relay.sender, 2)
    fixture.state.lossy = True
    relay.on_open(relay.sender, 2)

    assert relay.given_up
    assert relay.done


# ---------------------------------------------------------------------------------------------- scenarios


def test_an_unexpected_error_is_a_failure_until_data_was_lost() -> None:
    fixture = ScenarioFixture(Meters).begin().rest(1)
    state = fixture.state
    state.check(SubscriptionInUseError("x"), SubscriptionInUseError)
    with pytest.raises(AssertionError, match="did not expect TokenAheadError"):
        state.check(TokenAheadError("x"), SubscriptionInUseError)
    with pytest.raises(AssertionError, match="did not expect None"):
        state.check(None, TokenMismatchError)
    fixture.broker.kill()
    fixture.broker.replace_disk()

    state.check(TokenAheadError("x"))


def test_the_courier_sees_what_is_missing() -> None:
    fixture = ScenarioFixture(Courier, Meters).begin().rest(8)
    (courier, _) = fixture.scenarios.scenarios
    assert isinstance(courier, Courier)
    publication = next(
        publication
        for assigned in fixture.state.outboxes
        for publication in assigned.outbox.publications
        if "marker" in publication.properties
    )
    rows = [fixture.state.row(fixture.world.clients["client1"], f"n{number}", only("nothing")) for number in range(2)]
    before, after = [Noting(fixture.world.clients["client1"], row, row.wanted()) for row in rows]
    pubend, tick = fixture.state.ledger.receipts[publication.key]
    fixture.state.ledger.keys.update({row.number: [publication.key] for row in rows})
    before.begins, after.begins = {pubend: tick - 1}, {pubend: tick - 1}
    courier._judge(publication, before, after)
    assert fixture.hits["courier.latest was behind the receipt"] == 1

    after.begins = {pubend: tick}
    with pytest.raises(AssertionError, match="n1 begins at"):
        courier._judge(publication, before, after)
    fixture.state.ledger.keys[rows[0].number] = []
    with pytest.raises(AssertionError, match="n0 misses publication"):
        courier._judge(publication, before, after)
    before.begins = {pubend: tick}
    with pytest.raises(AssertionError, match="n0 begins above"):
        courier._judge(publication, before, after)
    fixture.state.ledger.gaps[rows[0].number] = 1
    courier._judge(publication, before, after)
    assert fixture.hits["courier.lost to early release"] == 1
