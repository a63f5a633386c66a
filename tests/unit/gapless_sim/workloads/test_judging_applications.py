"""Applications judge, too: what no sane application of theirs should meet ends the run."""

from __future__ import annotations

from contextlib import nullcontext

import msgspec
import pytest

from gapless.core.client.consuming.subscription import SubscriptionPhase
from gapless.core.client.link.effects import Attached
from gapless.core.ports import Set
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
from gapless_sim.recording.expired_subscriptions import LAPSED
from gapless_sim.workloads.churn_consumers import ChurnConsumer
from gapless_sim.workloads.churn_subscriptions import AppSubscription
from gapless_sim.workloads.scenario_filters import only
from gapless_sim.workloads.scenario_publishers import Meters, OrderService
from gapless_sim.workloads.scenario_sharers import Flicker, Owner
from gapless_sim.workloads.scenario_starts import Courier, Noting
from gapless_sim.world.producer import Producer
from unit.gapless_sim.workloads.churn_fixture import ChurnFixture
from unit.gapless_sim.workloads.scenario_fixture import ScenarioFixture


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


@pytest.mark.parametrize("lapsed", [False, True])
def test_whoever_had_what_has_lapsed_ends_rightly_although_another_one_has_made_it_anew(*, lapsed: bool) -> None:
    fixture = ChurnFixture()
    subscription = fixture.hold()
    before = attached(subscription)
    if lapsed:
        row = msgspec.msgpack.encode([subscription.sid, "client1", "one", 0, {}, {}])
        fixture.state.written(fixture.world.brokers["node1"], [Set(LAPSED, b"key", row)])
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
    subscription = ChurnFixture().hold()

    with pytest.raises(AssertionError, match="it came into being twice"):
        subscription.before_attached(attached(subscription), Attached(subscription.sid + 1, 1, created=True))


def test_one_that_is_not_durable_is_being_created_in_each_session() -> None:
    fixture = ChurnFixture()
    durable, other = fixture.hold(), fixture.hold(name=None)
    settled = durable.is_being_created, other.is_being_created
    for subscription in (durable, other):
        attached(subscription).core.phase = SubscriptionPhase.ASKING

    assert settled == (False, False)
    assert (durable.is_being_created, other.is_being_created) == (False, True)


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


def test_a_publisher_that_ends_for_no_reason_is_a_failure() -> None:
    fixture = ScenarioFixture(OrderService).begin().rest(2)
    (scenario,) = fixture.scenarios.scenarios
    producer: Producer = fixture.state.producers[0]
    assert isinstance(scenario, OrderService)

    with pytest.raises(AssertionError, match="PublisherFencedError"):
        scenario.on_over(producer, PublisherFencedError("x"))


def test_flicker_wants_an_answer_to_what_it_asked() -> None:
    fixture = ScenarioFixture(Flicker).begin().rest(1)
    (flicker,) = fixture.scenarios.scenarios
    assert isinstance(flicker, Flicker)
    client, row = flicker.client, flicker.row
    assert row is not None
    client.crash()
    client.start()
    consumer = Owner(client, row, row.wanted(), owners={}, claims=True)

    with pytest.raises(AssertionError, match="no answer to its creation"):
        flicker._was_answered(consumer)


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
