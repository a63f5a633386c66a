"""What each request needs permission for, asked at the one place where all of them pass."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gapless.core.ports import Action
from gapless.core.resources import Durable, Publisher, Resource
from gapless.core.server.permissions import NEEDS
from gapless.core.wire.codec import encode_keyed
from gapless.core.wire.messages import (
    AskStatus,
    Attach,
    ClientMessage,
    Code,
    InUse,
    ListPubends,
    ListSubscriptions,
    OpenPublisher,
    PublishKeyed,
    PublishRefused,
    RequestFailed,
    Retire,
    StartAt,
    Subscribe,
    Unsubscribe,
)
from wire import columns

TOPICS = ("flights.#", "trains")
SUBSCRIBE = Subscribe(7, "late", TOPICS, "", StartAt.LATEST, 0, None, 0, 0, b"", [], InUse.ERROR, 1, 1)
ATTACH = Attach(7, "late", TOPICS, "", StartAt.LATEST, 0, None, 0, 0, b"")


@pytest.mark.parametrize(
    ("message", "need"),
    [
        (SUBSCRIBE, (Action.SUBSCRIBE, "flights.#")),
        (SUBSCRIBE, (Action.SUBSCRIBE, "trains")),
        (SUBSCRIBE, (Action.CONSUME, Durable("desk-7", "late"))),
        (ATTACH, (Action.CONSUME, Durable("desk-7", "late"))),
        (ATTACH, (Action.SUBSCRIBE, "flights.#")),
        (Unsubscribe(7, "late", "desk-7"), (Action.CONSUME, Durable("desk-7", "late"))),
        (Unsubscribe(7, "late", "other"), (Action.MANAGE, Durable("other", "late"))),
        (ListSubscriptions(7), (Action.OBSERVE, "subscriptions")),
        (ListPubends(7), (Action.OBSERVE, "pubends")),
        (AskStatus(7), (Action.OBSERVE, "status")),
        (Retire(7, "shb@1", only_look=False), (Action.MANAGE, "shb shb@1")),
        (Retire(7, "shb@1", only_look=True), (Action.MANAGE, "shb shb@1")),
    ],
)
def test_a_request_without_permission_is_refused_and_goes_no_further(
    broker: Any, message: ClientMessage, need: tuple[Action, Resource]
) -> None:
    client = broker.client()
    broker.rules.forbidden.add(need)

    [failed] = client.say(message)

    assert failed == RequestFailed(7, Code.FORBIDDEN, f"anonymous may not {need[0].value} {need[1]}")
    assert broker.requests == []
    assert broker.placed() == []
    assert client.closed() is None


def test_an_opening_without_permission_is_refused(broker: Any) -> None:
    broker.rules.forbidden.add((Action.PUBLISH, "flights"))

    [refused] = broker.client().say(OpenPublisher(1, "loader", "i", 1, "flights"))

    assert refused == PublishRefused(1, 0, Code.FORBIDDEN, "anonymous may not publish flights")
    assert broker.placed() == []


@pytest.mark.parametrize("topic", ["flights", None])
def test_a_name_of_a_publisher_needs_permission_whatever_it_publishes(broker: Any, topic: str | None) -> None:
    broker.rules.forbidden.add((Action.PUBLISH, Publisher("loader")))

    [refused] = broker.client().say(OpenPublisher(1, "loader", "i", 1, topic))
    client, batch = broker.client(), PublishKeyed(1, 1, 1, "loader", topic or "", columns(b"x"))
    [keyed] = client.send(b"".join(encode_keyed(client.session, batch)))

    assert (refused.code, keyed.code) == (Code.FORBIDDEN, Code.FORBIDDEN)
    assert broker.placed() == []


def test_topics_that_come_with_events_need_none_here_and_nor_does_who_has_no_name(broker: Any) -> None:
    client = broker.client()

    client.say(OpenPublisher(1, "~drawn", "i", 1, None))

    assert broker.rules.asked == []
    [opening] = broker.placed()
    assert opening.request.principal == "anonymous"


def test_whoever_is_not_asked_is_not_asked(broker: Any) -> None:
    broker.authority.asks = False

    broker.client().say(ListPubends(1))

    assert broker.rules.asked == []
    assert len(broker.requests) == 1


def test_all_that_names_topics_needs_permission() -> None:
    named = {kind for kind in ClientMessage.__subclasses__() if {"topics", "topic"} & set(kind.__struct_fields__)}

    assert named <= set(NEEDS)


def test_what_is_not_durable_needs_its_topics_alone(broker: Any) -> None:
    broker.client().say(replace(SUBSCRIBE, name=None))

    assert [need for _, *need in broker.rules.asked] == [[Action.SUBSCRIBE, topic] for topic in TOPICS]
