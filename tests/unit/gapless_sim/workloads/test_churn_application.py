from __future__ import annotations

import pytest

from gapless.errors import ConfigurationError, ConnectionClosedError, GaplessError
from unit.gapless_sim.workloads.churning import Stage


def test_the_second_process_has_a_name_of_its_own_and_the_same_client_id() -> None:
    stage = Stage()

    assert (stage.first.name, stage.second.name) == ("client1", "client1b")
    assert (stage.first.core.client_id, stage.second.core.client_id) == ("client1", "client1")
    assert stage.second.core.connected


def test_a_process_that_comes_back_takes_up_what_it_had() -> None:
    stage = Stage()
    holding, post = stage.hold(), stage.post()
    stage.first.crash()
    stage.run(1)
    gone = (holding.consumer(), post.done)
    stage.first.start()
    stage.run(1)

    assert gone == (None, False)
    assert holding.consumer() is not None
    assert post.done
    assert stage.probed("came back") == 1


def test_closing_in_order_is_no_error() -> None:
    stage = Stage()
    stage.hold()
    stage.publish(stage.post(), 3)
    stage.application.list_pubends(stage.first)
    stage.application.close(stage.first)
    stage.run(1)

    assert not stage.first.running
    assert stage.scene.closing is None


def test_an_end_that_nobody_asked_for_is_an_error() -> None:
    stage = Stage()
    stage.hold()

    with pytest.raises(AssertionError, match="ConnectionClosedError"):
        stage.first.close()


def test_in_the_end_somebody_takes_what_is_left_lying_about() -> None:
    stage = Stage()
    holding, post = stage.hold(), stage.post()
    customer = holding.consumer()
    assert customer is not None
    holding.depart(customer)
    holding.home = None
    post.close()
    stage.publish(post, 2)
    stage.run(1)
    before = stage.application.unsettled()
    stage.scene.calm_now = True
    stage.run(2)

    assert before == "client1/out1 is not worked off: 2 letters, nobody has it open"
    assert stage.application.unsettled() == ""


def test_a_subscription_without_a_consumer_is_unsettled() -> None:
    stage = Stage()
    holding = stage.hold()
    customer = holding.consumer()
    assert customer is not None
    holding.home = None
    holding.depart(customer)

    assert stage.application.unsettled() == "client1:one has no consumer"
    assert not stage.application.excused()
    stage.world.network.cut("client1b", "node1")
    assert stage.application.excused()


def test_where_pubends_are_gone_whoever_asks_may_wait_for_ever() -> None:
    """Found by the simulator: one that begins in the past waits for every pubend to keep that."""
    stage = Stage()
    holding = stage.hold()
    customer = holding.consumer()
    assert customer is not None
    customer.attached = customer.answered = False
    before = stage.application.unsettled()
    stage.world.observe.wiped(stage.world.brokers["node1"])

    assert before == "client1:one has no consumer"
    assert stage.application.unsettled() == ""


def test_names_are_found_while_they_live() -> None:
    stage = Stage()
    holding = stage.hold()
    found = stage.application.named("one")
    holding.remove(stage.first)
    stage.run(1)

    assert found is holding
    assert stage.application.named("one") is None
    assert stage.application.living() == []


def test_listings_are_asked_for_and_looked_at() -> None:
    stage = Stage()
    stage.hold()
    stage.publish(stage.post(), 1)
    stage.run(1)
    stage.application.list_subscriptions(stage.second, [stage.application, stage.other])
    stage.application.list_pubends(stage.second)
    stage.run(1)

    assert (stage.probed("subscriptions listed"), stage.probed("pubends listed")) == (1, 1)
    assert [stable > 0 for _, stable in stage.application.known.values()] == [True]


def test_a_subscription_that_is_missing_in_a_listing_is_wrong() -> None:
    stage = Stage()
    stage.hold()
    stage.run(1)
    stage.application.list_subscriptions(stage.first, [stage.application])
    stage.application.holdings[0].row.name = "two"
    stage.application.touched["two"] = stage.application.touched.pop("one")

    with pytest.raises(AssertionError, match="client1:two is not listed"):
        stage.run(1)


@pytest.mark.parametrize("error", [ConfigurationError("?"), ConnectionClosedError("?"), GaplessError("?")])
def test_a_listing_that_fails_without_a_good_reason_is_wrong(error: GaplessError) -> None:
    stage = Stage()
    stage.application.list_pubends(stage.first)
    number, question = list(stage.first._owners.items())[-1]

    assert number
    with pytest.raises(AssertionError, match="a listing failed"):
        question.on_failed(error)
