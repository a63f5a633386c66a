"""The permissions that each request needs: here the authorizer is asked about everything that is known here.

Topics inside batches are not known here: the pubend's host decodes them, and asks there. Requests that name a
subscription by its seal (`Acknowledge`, `ReadRange`, …) need no permission: it was checked when the seal was issued.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from gapless.core.ports import Action, Authorizer, ClientSession
from gapless.core.wire.messages import (
    AskStatus,
    Attach,
    ListPubends,
    ListSubscriptions,
    OpenPublisher,
    PublishKeyed,
    Retire,
    Subscribe,
    Unsubscribe,
)

Needs: TypeAlias = "Iterable[tuple[Action, str]]"


def _subscribe(message: Subscribe | Attach, _client_id: str) -> Needs:
    return ((Action.SUBSCRIBE, pattern) for pattern in message.topics)


def _publish(message: OpenPublisher | PublishKeyed, _client_id: str) -> Needs:
    return ((Action.PUBLISH, message.topic),) if message.topic else ()


def _unsubscribe(message: Unsubscribe, client_id: str) -> Needs:
    return () if message.client_id == client_id else ((Action.UNSUBSCRIBE, message.client_id),)


NEEDS: Final[Mapping[type, Callable[[Any, str], Needs]]] = {
    Subscribe: _subscribe,
    Attach: _subscribe,
    OpenPublisher: _publish,
    PublishKeyed: _publish,
    Unsubscribe: _unsubscribe,
    ListSubscriptions: lambda *_: ((Action.LIST, "subscriptions"),),
    ListPubends: lambda *_: ((Action.LIST, "pubends"),),
    AskStatus: lambda *_: ((Action.LIST, "status"),),
    Retire: lambda message, _: ((Action.RETIRE, message.shb),),
}
"""The permissions that a message needs if it comes from a client with that id."""


def refusal_of(message: Any, client: ClientSession, authorizer: Authorizer) -> str:
    """Returns why the client may not send this message, or ""."""
    needs = NEEDS.get(type(message))
    if needs is None or not authorizer.asks:
        return ""
    refusals = (authorizer.refusal(client.principal, *need) for need in needs(message, client.client_id))
    return next(filter(None, refusals), "")
