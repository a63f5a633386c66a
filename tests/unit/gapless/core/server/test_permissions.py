"""What each request needs permission for, asked at the one place where all of them pass."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.ports import Action
from gapless.core.server.permissions import NEEDS
from gapless.core.wire.messages import (
    AskStatus,
    ClientMessage,
    Code,
    InUse,
    ListPubends,
    ListSubscriptions,
    OpenPublisher,
    PublishRefused,
    RequestFailed,
    Retire,
    StartAt,
    Subscribe,
    Unsubscribe,
)

TOPICS = ("flights.#", "trains")
SUBSCRIBE = Subscribe(7, "late", TOPICS, "", StartAt.LATEST, 0, None, 0, 0, b"", [], InUse.ERROR, 1, 1)


@pytest.mark.parametrize(
    ("message", "need"),
    [
        (SUBSCRIBE, (Action.SUBSCRIBE, "flights.#")),
        (SUBSCRIBE, (Action.SUBSCRIBE, "trains")),
        (Unsubscribe(7, "late", "other"), (Action.UNSUBSCRIBE, "other")),
        (ListSubscriptions(7), (Action.LIST, "subscriptions")),
        (ListPubends(7), (Action.LIST, "pubends")),
        (AskStatus(7), (Action.LIST, "status")),
        (Retire(7, "shb@1", only_look=False), (Action.RETIRE, "shb@1")),
    ],
)
def test_a_request_without_permission_is_refused_and_goes_no_further(
    broker: Any, message: ClientMessage, need: tuple[Action, str]
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


def test_one_s_own_subscription_and_topics_that_come_with_events_need_none_here(broker: Any) -> None:
    client = broker.client()

    client.say(Unsubscribe(7, "late", "desk-7"), OpenPublisher(1, "loader", "i", 1, None))

    assert broker.rules.asked == []
    [opening] = broker.placed()
    assert opening.request.principal == "anonymous"


def test_whoever_is_not_asked_is_not_asked(broker: Any) -> None:
    broker.rules.asks = False

    broker.client().say(ListPubends(1))

    assert broker.rules.asked == []
    assert len(broker.requests) == 1


def test_all_that_names_topics_needs_permission() -> None:
    named = {kind for kind in ClientMessage.__subclasses__() if {"topics", "topic"} & set(kind.__struct_fields__)}

    assert named <= set(NEEDS)
