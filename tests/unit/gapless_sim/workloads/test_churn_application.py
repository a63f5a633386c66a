from __future__ import annotations

import pytest

from gapless.errors import ConfigurationError, ConnectionClosedError, GaplessError
from unit.gapless_sim.workloads.churn_fixture import ChurnFixture


def test_the_second_process_has_a_name_of_its_own_and_the_same_client_id() -> None:
    fixture = ChurnFixture()

    assert (fixture.first.name, fixture.second.name) == ("client1", "client1b")
    assert (fixture.first.core.client_id, fixture.second.core.client_id) == ("client1", "client1")
    assert fixture.second.core.connected


def test_a_process_that_comes_back_takes_up_what_it_had() -> None:
    fixture = ChurnFixture()
    subscription, relay = fixture.hold(), fixture.relay()
    fixture.first.crash()
    fixture.run(1)
    gone = (subscription.attached_consumer(), relay.done)
    fixture.first.start()
    fixture.run(1)

    assert gone == (None, False)
    assert subscription.attached_consumer() is not None
    assert relay.done
    assert fixture.hits_of("came back") == 1


def test_closing_in_order_is_no_error() -> None:
    fixture = ChurnFixture()
    fixture.hold()
    fixture.publish(fixture.relay(), 3)
    fixture.application.list_pubends(fixture.first)
    fixture.application.close(fixture.first)
    fixture.run(1)

    assert not fixture.first.running
    assert fixture.state.closing is None


def test_an_end_that_nobody_asked_for_is_an_error() -> None:
    fixture = ChurnFixture()
    fixture.hold()

    with pytest.raises(AssertionError, match="ConnectionClosedError"):
        fixture.first.close()


def test_in_the_end_somebody_takes_what_is_left_lying_about() -> None:
    fixture = ChurnFixture()
    subscription, relay = fixture.hold(), fixture.relay()
    consumer = subscription.attached_consumer()
    assert consumer is not None
    subscription.depart(consumer)
    subscription.home = None
    relay.close()
    fixture.publish(relay, 2)
    fixture.run(1)
    before = fixture.application.unsettled()
    fixture.state.in_liveness = True
    fixture.run(2)

    assert before == "client1/out1 is not worked off: 2 publications, nobody has it open"
    assert fixture.application.unsettled() == ""


def test_a_subscription_without_a_consumer_is_unsettled() -> None:
    fixture = ChurnFixture()
    subscription = fixture.hold()
    consumer = subscription.attached_consumer()
    assert consumer is not None
    subscription.home = None
    subscription.depart(consumer)

    assert fixture.application.unsettled() == "client1:one has no consumer"
    assert not fixture.application.excused()
    fixture.world.network.cut("client1b", "node1")
    assert fixture.application.excused()


def test_names_are_found_while_they_live() -> None:
    fixture = ChurnFixture()
    subscription = fixture.hold()
    found = fixture.application.named("one")
    subscription.remove(fixture.first)
    fixture.run(1)

    assert found is subscription
    assert fixture.application.named("one") is None
    assert fixture.application.living() == []


def test_listings_are_asked_for_and_looked_at() -> None:
    fixture = ChurnFixture()
    fixture.hold()
    fixture.publish(fixture.relay(), 1)
    fixture.run(1)
    fixture.application.list_subscriptions(fixture.second, [fixture.application, fixture.other])
    fixture.application.list_pubends(fixture.second)
    fixture.run(1)

    assert (fixture.hits_of("subscriptions listed"), fixture.hits_of("pubends listed")) == (1, 1)
    assert [stable > 0 for _, stable in fixture.application.known.values()] == [True]


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
