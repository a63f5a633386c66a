from __future__ import annotations

from gapless_sim.workloads.churn_publish_operations import PublishOperations
from unit.gapless_sim.workloads.churn_fixture import ChurnFixture


def test_the_benign_choice_is_one_event_of_a_named_publisher() -> None:
    fixture = ChurnFixture()
    operations = PublishOperations(fixture.state)
    operations.publish(fixture.application, fixture.first)
    operations.publish(fixture.application, fixture.first)
    fixture.run(1)
    (relay,) = fixture.application.relays

    assert relay.named
    assert (len(relay.outbox.publications), relay.confirmed) == (2, 2)


def test_a_burst_is_several_batches() -> None:
    fixture = ChurnFixture()
    PublishOperations(fixture.state).burst(fixture.application, fixture.first)
    fixture.run(1)

    assert fixture.application.relays[0].confirmed == 2


def test_only_nameless_outboxes_publish_what_is_refused() -> None:
    fixture = ChurnFixture()
    operations = PublishOperations(fixture.state)
    nothing = operations.publish_bad(fixture.application, fixture.first)
    fixture.relay()
    named = operations.publish_bad(fixture.application, fixture.first)
    fixture.application.relays.clear()
    fixture.relay(named=False)
    nameless = operations.publish_bad(fixture.application, fixture.first)
    fixture.run(1)

    assert (nothing, named, nameless) == (False, False, True)
    assert fixture.hits_of("bad publication refused") == 1


def test_a_publisher_with_work_to_do_is_not_opened_twice() -> None:
    fixture = ChurnFixture()
    operations = PublishOperations(fixture.state)
    relay = fixture.relay()
    fixture.publish(relay, 1)
    busy = operations.open_twice(fixture.application, fixture.second)
    fixture.run(1)
    idle = operations.open_twice(fixture.application, fixture.second)

    assert (busy, idle) == (False, True)
    assert relay.home is fixture.second
    assert len(relay.zombies) == 1


def test_a_closed_outbox_is_opened_with_the_next_publication() -> None:
    fixture = ChurnFixture()
    operations = PublishOperations(fixture.state)
    nothing = operations.close(fixture.application, fixture.first)
    relay = fixture.relay()
    closed = operations.close(fixture.application, fixture.first)
    operations.publish(fixture.application, fixture.second)
    fixture.run(1)

    assert (nothing, closed) == (False, True)
    assert relay.home is fixture.second
    assert relay.confirmed == 1


def test_an_outbox_is_handed_over_with_what_is_unanswered() -> None:
    fixture = ChurnFixture()
    operations = PublishOperations(fixture.state)
    relay = fixture.relay()
    own = operations.hand_over(fixture.application, fixture.first)
    fixture.publish(relay, 5)
    handed_over = operations.hand_over(fixture.application, fixture.second)
    fixture.run(1)

    assert (own, handed_over) == (False, True)
    assert relay.sender is not None
    assert relay.sender.client is fixture.second
    assert relay.done


def test_nothing_is_handed_over_by_a_process_that_stands_still() -> None:
    fixture = ChurnFixture()
    fixture.relay()
    fixture.first.pause(10**9)

    assert not PublishOperations(fixture.state).hand_over(fixture.application, fixture.second)
