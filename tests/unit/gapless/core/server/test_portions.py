"""What takes long is taken in portions: one client that asks for much leaves the others their turn."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.server import service
from gapless.core.server.service import PORTION
from gapless.core.wire.messages import Goodbye, ListPubends, Unsubscribe
from unit.gapless.core.server.conftest import WALL

MANY = 3 * PORTION + 5


def ask_for_much(client: Any, count: int = MANY) -> None:
    """Requests that take long, and one that does not behind them."""
    frames = [frame for number in range(count) for frame in client.wire.say(Unsubscribe(number + 1, "s", ""))]
    client.send(*frames, *client.wire.say(ListPubends(count + 1)))


def turn(broker: Any) -> None:
    broker.sessions.begin_turn(broker.now)
    broker.sessions.take_late(broker.now, WALL)
    broker.take()


def taken(broker: Any) -> list[int]:
    return [message.request for _, message in broker.requests]


def test_a_portion_is_taken_in_a_turn_and_all_of_it_in_order(broker: Any) -> None:
    client = broker.client()
    broker.sessions.begin_turn(broker.now)
    ask_for_much(client)
    assert taken(broker) == list(range(1, PORTION + 1))

    turn(broker)
    assert len(taken(broker)) == 2 * PORTION
    turn(broker)
    assert broker.sessions.is_behind
    turn(broker)
    assert taken(broker) == list(range(1, MANY + 2))
    assert not broker.sessions.is_behind


def test_another_client_is_served_in_the_same_turn(broker: Any) -> None:
    busy, other = broker.client("busy"), broker.client("other")
    broker.sessions.begin_turn(broker.now)
    ask_for_much(busy)
    broker.requests.clear()

    other.say(ListPubends(77))
    assert taken(broker) == [77]
    other.say(Unsubscribe(78, "s", ""))
    assert taken(broker) == [77, 78], "and one that takes long, too"


def test_what_arrives_behind_what_waits_waits_too(broker: Any) -> None:
    client = broker.client()
    broker.sessions.begin_turn(broker.now)
    ask_for_much(client)
    client.say(ListPubends(1000))
    while broker.sessions.is_behind:
        turn(broker)

    assert taken(broker) == [*range(1, MANY + 2), 1000]


def test_those_who_wait_take_turns(broker: Any) -> None:
    one, two = broker.client("one"), broker.client("two")
    broker.sessions.begin_turn(broker.now)
    ask_for_much(one)
    ask_for_much(two)
    broker.requests.clear()
    turns = []
    for _ in range(2):
        turn(broker)
        turns.append({session.number for session, _ in broker.requests[:PORTION]})
        broker.requests.clear()

    assert turns[0] != turns[1]


def test_what_a_client_said_before_it_left_counts(broker: Any) -> None:
    client = broker.client()
    broker.sessions.begin_turn(broker.now)
    ask_for_much(client)
    broker.sessions.on_link_closed(client.link)
    assert broker.ended() == []
    while broker.sessions.is_behind:
        turn(broker)

    assert taken(broker) == list(range(1, MANY + 2))
    assert broker.ended() == [client.session]


def test_what_follows_a_goodbye_does_not_count(broker: Any) -> None:
    client = broker.client()
    broker.sessions.begin_turn(broker.now)
    frames = [frame for number in range(PORTION) for frame in client.wire.say(Unsubscribe(number + 1, "s", ""))]
    client.send(*frames, *client.wire.say(Goodbye()), *client.wire.say(ListPubends(99)))
    while broker.sessions.is_behind:
        turn(broker)

    assert taken(broker) == list(range(1, PORTION + 1))
    assert broker.ended() == [client.session]


def test_a_link_of_which_too_much_waits_is_not_read_and_not_blamed(
    broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "LATE_MAX", 20 * PORTION)
    client = broker.client()
    broker.sessions.begin_turn(broker.now)
    ask_for_much(client, 22 * PORTION)
    assert broker.outputs[client.link].paused is True
    read_again = []
    while broker.sessions.is_behind:
        broker.now += 1_000_000_000
        broker.sessions.on_deadline(broker.now)
        turn(broker)
        read_again += [output.paused for output in broker.outputs.values() if output.paused is not None]

    assert read_again == [False]
    assert broker.ended() == []
