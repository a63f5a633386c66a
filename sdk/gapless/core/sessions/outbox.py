"""What is to be done to each link after a step: gathered, so that the driver makes one call per link."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from msgspec import Struct

from gapless.core.codec import encode
from gapless.core.messages import (
    Alive,
    Done,
    KeyedPublished,
    Leased,
    LeaseLost,
    PubendList,
    Published,
    PublisherOpened,
    PublishRefused,
    RequestFailed,
    Retired,
    ServerMessage,
    SubscriptionList,
    Ticks,
)

Payload: TypeAlias = "bytes | tuple[bytes, bytes]"

URGENT = frozenset(
    {
        Alive,
        Done,
        KeyedPublished,
        LeaseLost,
        Leased,
        PubendList,
        PublishRefused,
        Published,
        PublisherOpened,
        RequestFailed,
        Retired,
        SubscriptionList,
        Ticks,
    }
)
"""Messages whose order among deliveries means nothing: they need not wait behind data on a slow link."""


class LinkOutput(Struct):
    """What to do to one link, in the order of the fields."""

    limit: int = 0
    """Accept frames of up to so many bytes from now on; 0: as before."""
    urgent: list[Payload] = []
    ordinary: list[Payload] = []
    paused: bool | None = None
    """Stop reading (True), read again (False), or neither (None)."""
    close: str | None = None
    """Send what is pending, then close, for this reason; None: stay open."""


class Outbox:
    """The outputs of all links since they were last taken."""

    def __init__(self) -> None:
        self._links: dict[int, LinkOutput] = {}

    def link(self, number: int) -> LinkOutput:
        """The output of a link, to be added to."""
        output = self._links.get(number)
        if output is None:
            output = self._links[number] = LinkOutput()
        return output

    def tell(self, number: int, session: int, message: ServerMessage) -> None:
        """A control message for a link."""
        output = self.link(number)
        queue = output.urgent if type(message) in URGENT else output.ordinary
        queue.append(encode(session, message))

    def transmit(self, number: int, payloads: Iterable[Payload]) -> None:
        """Encoded data for a link."""
        self.link(number).ordinary.extend(payloads)

    def take(self) -> dict[int, LinkOutput]:
        """All outputs by link, in the order in which the links first got something; emptied by the call."""
        links = self._links
        self._links = {}
        return links
