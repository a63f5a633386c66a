"""What a step does to each link: gathered, so that the driver makes one call per link."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from msgspec import Struct

from gapless.core.gauges import Gauge
from gapless.core.server.gauges import REFUSED
from gapless.core.wire.codec import encode, encode_numbered
from gapless.core.wire.messages import (
    Closing,
    Code,
    Done,
    HelloRefused,
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
from gapless.core.wire.numbering import Sent

Payload: TypeAlias = "bytes | tuple[bytes, bytes]"

URGENT = frozenset(
    {
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
"""Messages that may overtake deliveries: their order among these does not matter, so they need not wait for data.

A heartbeat is not among them: it finds the loss of the last data by waiting behind it (`core.numbering`). Each frame
before it is as good a sign of life.
"""


class LinkOutput(Struct):
    """What to do to one link, in the order of the fields."""

    limit: int = 0
    """Accept frames of up to so many bytes from now on; 0: no change."""
    urgent: list[Payload] = []
    ordinary: list[Payload] = []
    reports: bool = False
    """Report afterwards how many bytes wait on the link, even if there are none."""
    paused: bool | None = None
    """Stop reading (True), read again (False), or no change (None)."""
    close: str | None = None
    """Send what is pending, then close, for this reason; None: stay open."""


class LinkOutputs:
    """The outputs of all links since they were last taken, and the numbers of their frames."""

    def __init__(self) -> None:
        self.links: dict[int, LinkOutput] = {}
        """What to do to each link, in the order of their first output. Others may look at it, but not change it."""
        self._sent: dict[int, Sent] = {}
        """The numbering of each link with a session."""
        self._refused: dict[Code, int] = defaultdict(int)
        """How many links were refused by a code, or ended."""

    def gauges(self) -> Iterator[Gauge]:
        """Yields how many links were refused by each code, or ended."""
        for code, count in self._refused.items():
            yield REFUSED.gauge(count, code.value)

    def link(self, number: int) -> LinkOutput:
        """Returns the output of a link, to be added to."""
        output = self.links.get(number)
        if output is None:
            output = self.links[number] = LinkOutput()
        return output

    def begin_session(self, number: int) -> None:
        """Numbers the frames to a link from now on, except those that belong to no session."""
        self._sent[number] = Sent()

    def end_session(self, number: int) -> None:
        """Drops the numbering of a link: nothing more is sent to it."""
        self._sent.pop(number, None)

    def tell(self, number: int, session: int, message: ServerMessage) -> None:
        """Adds a control message for a link."""
        output, urgent = self.link(number), type(message) in URGENT
        if session:
            payload = encode_numbered(session, self._sent[number].next(urgent=urgent), message)
        else:
            payload = encode(0, message)
        (output.urgent if urgent else output.ordinary).append(payload)

    def transmit(self, number: int, payloads: Iterable[tuple[bytes, bytes]]) -> None:
        """Adds encoded data of a session for its link."""
        self.link(number).ordinary.extend(self._sent[number].stamp_pairs(payloads))

    def refuse(self, number: int, refused: HelloRefused) -> None:
        """Tells a client that it is not admitted, and closes its link."""
        self.tell(number, 0, refused)
        self.close(number, refused.code, refused.reason)

    def end(self, number: int, session: int, reason: str) -> None:
        """Tells a client that its session is over, and closes its link."""
        self.tell(number, session, Closing(reason))
        self.close(number, Code.CLOSED, reason)

    def close(self, number: int, code: Code, reason: str) -> None:
        """Closes a link, which counts as refused by this code."""
        self._refused[code] += 1
        self.link(number).close = reason

    def take(self) -> dict[int, LinkOutput]:
        """Returns all outputs; empty until something else is added."""
        links = self.links
        self.links = {}
        return links
