"""The permissions that each request needs: here the authorizer is asked about everything that is known here.

What is not known here is asked where it is:

- topics inside batches at the pubend's host, which decodes them;
- a subscription that a request names by its id at its SHB, whose topics it is that are read then;
- whether a client may know of a row of a listing at the role that makes the row;
- whether it may change users beside them: everybody may change the own password.

A guest's request is judged twice: at the SHB that serves it, and again at the home of its subscription. What goes on
under an attachment (`Credit`, `Acknowledge`, `Commit`, `Take`, `Settle`, `ReadOn`) needs nothing more: that was judged
when it began.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from gapless.core.network.facts import is_unnamed
from gapless.core.ports import Action, Authorizer, ClientSession
from gapless.core.resources import Durable, Publisher, Resource
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

Needs: TypeAlias = "Iterable[tuple[Action, Resource]]"


def _subscribe(message: Subscribe | Attach, client_id: str) -> Needs:
    if message.name:
        yield Action.CONSUME, Durable(client_id, message.name)
    for pattern in message.topics:
        yield Action.SUBSCRIBE, pattern


def needs_of_publisher(topic: str | None, name: str) -> Needs:
    """Yields what whoever publishes needs; of a topic in each batch it is asked where the batch is decoded."""
    if topic:
        yield Action.PUBLISH, topic
    if not is_unnamed(name):
        yield Action.PUBLISH, Publisher(name)


def _open(message: OpenPublisher, _client_id: str) -> Needs:
    return needs_of_publisher(message.topic, message.name)


def _publish_keyed(message: PublishKeyed, _client_id: str) -> Needs:
    return needs_of_publisher(message.topic, message.producer)


def _unsubscribe(message: Unsubscribe, client_id: str) -> Needs:
    action = Action.CONSUME if message.client_id == client_id else Action.MANAGE
    return ((action, Durable(message.client_id, message.name)),)


NEEDS: Final[Mapping[type, Callable[[Any, str], Needs]]] = {
    Subscribe: _subscribe,
    Attach: _subscribe,
    OpenPublisher: _open,
    PublishKeyed: _publish_keyed,
    Unsubscribe: _unsubscribe,
    ListSubscriptions: lambda *_: ((Action.OBSERVE, "subscriptions"),),
    ListPubends: lambda *_: ((Action.OBSERVE, "pubends"),),
    AskStatus: lambda *_: ((Action.OBSERVE, "status"),),
    Retire: lambda message, _: ((Action.MANAGE, f"shb {message.shb}"),),
}
"""The permissions that a message needs if it comes from a client with that id."""


def refusal_of(message: Any, client: ClientSession, authorizer: Authorizer) -> str:
    """Returns why the client may not send this message, or ""."""
    needs = NEEDS.get(type(message))
    if needs is None or not authorizer.asks:
        return ""
    refusals = (authorizer.refusal(client.principal, *need) for need in needs(message, client.client_id))
    return next(filter(None, refusals), "")
