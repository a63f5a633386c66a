"""A client's end of the wire, as tests of a broker's side need it: messages to payloads and back."""

from __future__ import annotations

from collections.abc import Sequence

from gapless.core.server import LinkOutput, Payload
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.events import encode_event
from gapless.core.wire.codec import decode_server, encode, encode_publish, session_of
from gapless.core.wire.messages import (
    PROTOCOL,
    AnyServerMessage,
    ClientMessage,
    Deliver,
    DeliverHeld,
    Hello,
    Proof,
    Publish,
    RangeEvents,
    Welcome,
)
from gapless.core.wire.numbering import HEAD_BYTES, Sent, is_unnumbered


def columns(*bodies: bytes, topic: str = "flights") -> EventColumns:
    """Events with these bodies and nothing else."""
    events = [encode_event(topic, {}, None, body) for body in bodies]
    return EventColumns.of(events, map(len, bodies))


def hello(client_id: str = "desk-7", instance: str = "one", network: str = "", credentials: bytes = b"") -> Hello:
    """A Hello that a broker without authentication accepts."""
    return Hello(PROTOCOL, network, client_id, instance, credentials)


def joined(payload: Payload) -> bytes:
    """A payload in one piece."""
    return payload if isinstance(payload, bytes) else b"".join(payload)


class Wire:
    """Encodes what a client says under the session that its Welcome named."""

    def __init__(self) -> None:
        self.session = 0
        self._sent = Sent()

    def say(self, *messages: ClientMessage | Publish) -> list[bytes]:
        """The payloads of these messages, to be sent in this order."""
        return [self.numbered(payload) for payload in self.unnumbered(*messages)]

    def unnumbered(self, *messages: ClientMessage | Publish) -> list[bytes]:
        """The payloads of these messages, which have no numbers yet."""
        return [self._payload(message) for message in messages]

    def numbered(self, payload: bytes) -> bytes:
        """A payload as it is to be sent next: with its number, if it is one of this session and has none."""
        if len(payload) < HEAD_BYTES or session_of(payload) != self.session or not is_unnumbered(payload):
            return payload
        return self._sent.stamp(payload, urgent=False) if self.session else payload

    def hear(self, output: LinkOutput | None) -> list[AnyServerMessage | Deliver | DeliverHeld | RangeEvents]:
        """What the client hears; a Welcome gives it its session."""
        if output is None:
            return []
        return self.decode([*output.urgent, *output.ordinary])

    def decode(self, payloads: Sequence[Payload]) -> list[AnyServerMessage | Deliver | DeliverHeld | RangeEvents]:
        """The messages in these payloads; a Welcome gives the client its session."""
        messages = [decode_server(joined(payload)) for payload in payloads]
        for message in messages:
            if isinstance(message, Welcome):
                self.session = message.session
                self._sent = Sent()
        return messages

    def _payload(self, message: ClientMessage | Publish) -> bytes:
        if isinstance(message, Publish):
            return b"".join(encode_publish(self.session, message))
        return encode(0 if isinstance(message, (Hello, Proof)) else self.session, message)


def kinds(messages: Sequence[object]) -> list[str]:
    """The names of the messages' types: what most tests ask first."""
    return [type(message).__name__ for message in messages]
