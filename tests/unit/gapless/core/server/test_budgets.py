"""Budgets of principals: whose limit counts, what waits how long, who is forgotten; and sessions that keep to them."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from gapless.core.network.facts import Outcome, Submit, Verdict
from gapless.core.ports import LinkHasRoom
from gapless.core.principal_limits import Limit, PrincipalLimits
from gapless.core.principals import Principal
from gapless.core.server.budgets import SECOND, Bucket, Budgets
from gapless.core.wire.codec import encode_keyed
from gapless.core.wire.messages import (
    ClosePublisher,
    Code,
    Heartbeat,
    ListPubends,
    OpenPublisher,
    Publish,
    PublishKeyed,
)
from unit.gapless.core.server.conftest import WALL, Broker, Client
from wire import columns, hello, kinds

ADA = Principal("ada", frozenset({"ops"}))


# Whose limit counts.


def limit(*who: str, **keys: Any) -> Limit:
    return Limit(who, **keys)


@pytest.mark.parametrize(
    ("principal", "expected"),
    [
        (Principal("shop"), 0),
        (Principal("shop", frozenset({"ops"})), 0),
        (Principal("ada", frozenset({"ops"})), 2),
        (Principal("ada", frozenset({"ops", "early"})), 2),
        (Principal("late", frozenset({"early"})), 3),
        (Principal("anybody"), 1),
        (Principal("", frozenset()), 1),
        (Principal("group:ops"), 1),
        (Principal("*"), 1),
    ],
)
def test_the_first_section_that_names_somebody_counts_and_everybodys_last(principal: Principal, expected: int) -> None:
    sections = [limit("shop"), limit("*", "unused"), limit("group:ops"), limit("group:early", "shop"), limit("*")]

    assert PrincipalLimits(sections).of(principal) is sections[expected]


def test_who_is_not_named_has_no_limit() -> None:
    assert PrincipalLimits([limit("shop", "group:ops")]).of(Principal("ada")) is None


def test_an_error_names_section_key_and_the_other_place() -> None:
    text = limit("a", "b", "group:c", "d").reached("connections", ADA, 1200, "connections")

    assert text == (
        "principal 'ada' may have 1,200 connections at this broker (connections in [[limit]] who ="
        ' ["a", "b", "group:c", …]; the broker\'s own limits are in [limits])'
    )


# Rates.


def test_a_second_s_worth_passes_at_once_and_a_debt_is_waited_for() -> None:
    bucket = Bucket(100, 0)
    bucket.charge(100, 0)
    assert bucket.even_at(0) == 0, "nothing is owed"
    bucket.charge(50, 0)
    assert bucket.even_at(0) == SECOND // 2
    assert bucket.even_at(SECOND // 4) == SECOND // 2
    assert bucket.even_at(SECOND) == SECOND
    assert bucket.full_at(0) == 3 * SECOND // 2
    bucket.charge(0, 10 * SECOND)
    assert bucket.full_at(10 * SECOND) == 10 * SECOND, "more than a second's worth is not saved"


@pytest.mark.parametrize("seed", range(20))
def test_over_any_time_no_more_passes_than_the_rate_allows_but_for_a_second_and_a_batch(seed: int) -> None:
    """And not much less, for whoever always has something."""
    random = Random(seed)
    rate, most = random.randint(1, 10**6), random.randint(1, 10**6)
    bucket, now = Bucket(rate, 0), 0
    passed: list[tuple[int, int]] = []
    for _ in range(300):
        now = max(now + random.choice([0, 0, 1, SECOND // 100]), bucket.even_at(now))
        amount = random.randint(1, most)
        bucket.charge(amount, now)
        passed.append((now, amount))
    for first in range(0, 300, 7):
        total = 0
        for at, amount in passed[first:]:
            total += amount
            assert total <= rate * (at - passed[first][0]) / SECOND + rate + most + 1

    busy = Bucket(rate, 0)
    now = total = 0
    while now < 20 * SECOND:
        now = busy.even_at(now)
        busy.charge(most, now)
        total += most
    assert total >= rate * now / SECOND


def test_whoever_has_gone_and_owes_nothing_is_forgotten() -> None:
    budgets = Budgets(PrincipalLimits([limit("*", bytes_per_second_in=10)]))
    for number in range(100_000):
        budget = budgets.of(Principal(f"p{number}"), 0)
        assert budget is not None
        budget.connections += 1
        if number % 1000 == 0:
            budget.charge_in(0, 50, 0)
        budgets.leave(budget)
    budgets.purge(0)
    assert len(budgets) == 100, "who owes something is not forgotten, or it would come back without a debt"
    assert budgets.due == 5 * SECOND
    budgets.purge(5 * SECOND - 1)
    assert len(budgets) == 100
    budgets.purge(5 * SECOND)

    assert len(budgets) == 0
    assert budgets.due is None


def test_whoever_comes_back_finds_its_debt_and_is_looked_at_once() -> None:
    budgets = Budgets(PrincipalLimits([limit("*", bytes_per_second_in=10)]))
    for _ in range(1000):
        budget = budgets.of(ADA, 0)
        assert budget is not None
        budget.connections += 1
        budget.charge_in(0, 1, 0)
        budgets.leave(budget)
        budgets.purge(0)
    budget = budgets.of(ADA, 0)
    assert budget is not None
    assert budget.in_at(0) == 99 * SECOND
    assert len(budgets._gone) == 1

    budget.connections += 1
    budgets.purge(1000 * SECOND)
    assert len(budgets) == 1, "who is connected is not forgotten"
    budgets.leave(budget)
    budgets.purge(1000 * SECOND)
    assert len(budgets) == 0


# Sessions.


def broker_with(**keys: int) -> Broker:
    broker = Broker(limit=[limit("ada", **keys)])
    broker.sessions.begin_turn(broker.now)
    return broker


def come(broker: Broker, name: str = "ada", instance: str = "one") -> Client:
    client = broker.link()
    client.say(hello(credentials=name.encode(), instance=instance))
    return client


def turn(broker: Broker, seconds: float) -> None:
    """Time passes, and what waits goes on as far as it may, as in the turns of a node."""
    until = broker.now + int(seconds * 1e9)
    while True:
        deadline = broker.sessions.deadline()
        broker.now = until if deadline is None else min(until, max(deadline, broker.now))
        broker.sessions.begin_turn(broker.now)
        broker.sessions.on_deadline(broker.now)
        while broker.sessions.is_behind:
            broker.sessions.take_late(broker.now, WALL)
        if broker.now >= until:
            return


def test_more_connections_than_allowed_are_refused_and_one_that_ends_makes_room() -> None:
    broker = broker_with(connections=2)
    first, _ = come(broker), come(broker, instance="two")
    third = broker.link()
    [refused] = third.say(hello(credentials=b"ada", instance="three"))
    assert refused.code is Code.RETRY
    assert 'connections in [[limit]] who = ["ada"]' in refused.reason
    come(broker, "bob", "four")
    assert broker.sessions.count == 3, "others are not concerned"

    come(broker)  # the same instance takes the place of its own connection
    assert broker.sessions.count == 3
    assert first.closed() is None or broker.ended()
    broker.sessions.on_link_closed(2)
    come(broker, instance="five")
    assert broker.sessions.count == 3


def test_more_publishers_than_allowed_are_refused_and_one_that_is_closed_makes_room() -> None:
    broker = broker_with(publishers=2)
    one, two = come(broker), come(broker, instance="two")
    one.open(1)
    two.open(1)
    [refused] = one.say(OpenPublisher(2, "x", "instance", 1, None))
    assert refused.code is Code.REJECTED
    assert 'publishers in [[limit]] who = ["ada"]' in refused.reason

    one.say(ClosePublisher(1))
    broker.placed()
    one.open(2)
    broker.sessions.end(two.session, "over")
    broker.take()
    broker.placed()
    one.open(3)
    one.say(OpenPublisher(3, "loader", "instance", 2, None))  # the same one again
    (asked,) = broker.placed()
    broker.answer(asked, Outcome(Verdict.OK, epoch=1))
    assert kinds(one.hear()) == ["PublisherOpened"]


def test_an_opening_that_was_refused_does_not_count() -> None:
    broker = broker_with(publishers=1)
    client = come(broker)
    for attempt in range(3):
        client.say(OpenPublisher(1 + attempt % 2, "loader", "instance", attempt, "nowhere"))
        (asked,) = broker.placed()
        broker.answer(asked, Outcome(Verdict.REJECTED, "no pubend takes it"))
        assert kinds(client.hear()) == ["PublishRefused"]
    client.open(1)
    budget = broker.budgets.of(ADA, broker.now)
    assert budget is not None
    assert budget.publishers == 1
    broker.sessions.end(client.session, "over")
    assert budget.publishers == 0


def batch(first: int, size: int, number: int = 1) -> Publish:
    return Publish(number, 1, first, columns(bytes(size)), b"")


def firsts(broker: Broker) -> list[int]:
    """The first sequence of each batch that has gone on to the router."""
    return [asked.pub.first for asked in broker.placed() if isinstance(asked, Submit)]


def test_whoever_has_sent_too_much_is_not_read_until_that_is_even_and_keeps_its_connection() -> None:
    broker = broker_with(bytes_per_second_in=1000)
    client = come(broker)
    client.open()
    client.say(batch(1, 4000), batch(2, 1000), Heartbeat(), ListPubends(7))
    assert firsts(broker) == [1], "the first one is taken, however large"
    assert broker.outputs[client.link].paused is True
    assert broker.requests == []
    client.say(ListPubends(8))
    turn(broker, 2.9)
    broker.take()
    assert broker.placed() == []
    assert broker.sessions.count == 1

    turn(broker, 0.2)
    outputs = broker.take()
    assert firsts(broker) == [2]
    assert [message.request for _, message in broker.requests] == [7, 8]
    assert outputs[client.link].paused is False


def test_a_silence_that_is_the_brokers_ends_no_session() -> None:
    broker = broker_with(bytes_per_second_in=100)
    client = come(broker)
    client.open()
    client.say(batch(1, 10_000), batch(2, 1))
    for _ in range(95):
        turn(broker, 1)
        broker.take()
    assert broker.sessions.count == 1
    turn(broker, 10)
    broker.take()
    assert firsts(broker) == [1, 2]
    turn(broker, 20)
    assert broker.sessions.count == 0, "its own silence ends it as ever"


def test_a_node_that_comes_late_does_not_take_its_own_delay_for_the_clients_silence() -> None:
    broker = broker_with(bytes_per_second_in=100)
    client = come(broker)
    client.open()
    client.say(batch(1, 10_000), batch(2, 1))
    broker.now += 200 * SECOND
    broker.sessions.begin_turn(broker.now)
    broker.sessions.on_deadline(broker.now)

    assert broker.sessions.count == 1


def test_all_connections_of_a_principal_share_its_rate_and_others_have_their_own() -> None:
    broker = Broker(limit=[limit("group:ops", events_per_second_in=2)])
    broker.guard.groups = frozenset({"ops"})
    broker.sessions.begin_turn(broker.now)
    one, two = come(broker, "ada"), come(broker, "ada", "two")
    other = come(broker, "bob", "three")
    for client in (one, two, other):
        client.open()
    one.say(batch(1, 1), batch(2, 1), batch(3, 1))
    two.say(batch(1, 1))
    assert len(broker.placed()) == 3
    other.say(batch(1, 1))
    assert len(broker.placed()) == 1, "a budget of its own, not one of the group"

    turn(broker, 1)
    broker.take()
    assert len(broker.placed()) == 1


def test_keyed_batches_count_too() -> None:
    broker = broker_with(events_per_second_in=1)
    client = come(broker)
    keyed = [PublishKeyed(request, 1, request, "sink", "t", columns(b"a", b"b")) for request in (1, 2)]
    client.send(*(b"".join(encode_keyed(client.session, each)) for each in keyed))
    assert len(broker.placed()) == 1
    turn(broker, 1.1)
    broker.take()

    assert len(broker.placed()) == 1


def test_requests_before_the_first_batch_too_many_are_taken() -> None:
    broker = broker_with(bytes_per_second_in=1)
    client = come(broker)
    client.open()
    client.say(batch(1, 1000))
    broker.placed()
    client.say(ListPubends(7), batch(2, 1), ListPubends(8))

    assert [message.request for _, message in broker.requests] == [7]


def test_a_link_has_room_when_its_principal_may_be_sent_more() -> None:
    broker = broker_with(bytes_per_second_out=1000, events_per_second_out=100)
    client = come(broker)
    broker.effects.clear()
    delivery = (2).to_bytes(4, "little") + bytes(1996)
    broker.sessions.transmit(client.session, [(bytes(27), delivery)])
    broker.sessions.ask_room(client.session, 4000)
    for pending in (0, 0, 0):
        broker.sessions.on_pending(client.link, pending, broker.now)
    broker.take()
    assert rooms(broker) == 0
    turn(broker, 1.0)
    broker.take()
    assert rooms(broker) == 0
    turn(broker, 0.1)
    broker.take()
    assert rooms(broker) == 1

    broker.sessions.transmit(client.session, [(bytes(27), (500).to_bytes(4, "little") + b"x")])
    broker.sessions.ask_room(client.session, 4000)
    broker.sessions.on_pending(client.link, 0, broker.now)
    turn(broker, 3.5)
    broker.take()
    assert rooms(broker) == 1, "events count as well"
    turn(broker, 1.5)
    broker.take()
    assert rooms(broker) == 2


def rooms(broker: Broker) -> int:
    return sum(isinstance(effect, LinkHasRoom) for effect in broker.effects)


def test_without_a_limit_nothing_of_this_is_done(broker: Any) -> None:
    client = broker.client()
    client.open()
    client.say(*(batch(first, 100_000) for first in range(1, 20)))

    assert len(broker.placed()) == 19
    assert len(broker.budgets) == 0
