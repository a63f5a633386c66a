"""Messages to payloads and back. A payload is what a frame carries (`gapless.core.framing`).

    payload := session u64, message
    message := msgpack array (a control message)                       first byte >= 0x90
             | 0x01, publisher u32, epoch u64, first u64, count u32, count × (length u32, body u32), events
             | 0x02, subscription u64, pubend number u16, count u32, count × (tick u64, length u32, body u32), events

All integers little-endian. The session is 0 in Hello, Welcome and Refused. What does not parse raises
RemoteProtocolError; the limits were checked by the framing before.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812 - it is a class

import msgspec

from gapless.core.events import DeliveredColumns, EventColumns
from gapless.core.messages import (
    AnyClientMessage,
    AnyServerMessage,
    ClientMessage,
    Deliver,
    Publish,
    ServerMessage,
)
from gapless.errors import RemoteProtocolError

_PUBLISH = Struct("<QBIQQI")
_DELIVER = Struct("<QBQH")
_SESSION = Struct("<Q")
_KIND = 8
"""Where the message begins: behind the session's number."""
_PUBLISH_KIND = 1
_DELIVER_KIND = 2

_encode = msgspec.msgpack.Encoder().encode
_client_decoder: msgspec.msgpack.Decoder[AnyClientMessage] = msgspec.msgpack.Decoder(AnyClientMessage)
_server_decoder: msgspec.msgpack.Decoder[AnyServerMessage] = msgspec.msgpack.Decoder(AnyServerMessage)


def encode(session: int, message: ClientMessage | ServerMessage) -> bytes:
    """A control message as a payload."""
    return _SESSION.pack(session) + _encode(message)


def encode_publish(session: int, message: Publish) -> tuple[bytes, bytes]:
    """A batch as a payload in two parts."""
    events = message.events
    head = _PUBLISH.pack(session, _PUBLISH_KIND, message.publisher, message.epoch, message.first, events.count)
    return head + events.lengths, events.blob


def deliver_head(session: int, sid: int, number: int) -> bytes:
    """The first part of a delivery's payload; the second is `EventBatch.payload`."""
    return _DELIVER.pack(session, _DELIVER_KIND, sid, number)


def session_of(payload: bytes) -> int:
    """The session a payload belongs to."""
    if len(payload) <= _KIND:
        raise RemoteProtocolError("a frame is too short to be a message")
    (session,) = _SESSION.unpack_from(payload)
    return int(session)


def decode_client(payload: bytes) -> AnyClientMessage | Publish:
    """A client's message."""
    if session_of(payload) is not None and payload[_KIND] == _PUBLISH_KIND:
        return _decode_publish(payload)
    try:
        return _client_decoder.decode(memoryview(payload)[_KIND:])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"a client's message does not parse: {error}") from error


def decode_server(payload: bytes) -> AnyServerMessage | Deliver:
    """A broker's message."""
    if session_of(payload) is not None and payload[_KIND] == _DELIVER_KIND:
        return _decode_deliver(payload)
    try:
        return _server_decoder.decode(memoryview(payload)[_KIND:])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"a broker's message does not parse: {error}") from error


def _decode_publish(payload: bytes) -> Publish:
    try:
        _, _, publisher, epoch, first, count = _PUBLISH.unpack_from(payload)
    except StructError as error:
        raise RemoteProtocolError("a batch is shorter than its head") from error
    start = _PUBLISH.size + 8 * count
    if not count or len(payload) < start:
        raise RemoteProtocolError("a batch is empty or shorter than its lengths")
    return Publish(publisher, epoch, first, EventColumns(count, payload[_PUBLISH.size : start], payload[start:]))


def _decode_deliver(payload: bytes) -> Deliver:
    try:
        _, _, sid, number = _DELIVER.unpack_from(payload)
        return Deliver(sid, number, DeliveredColumns.parse(payload, _DELIVER.size))
    except (StructError, ValueError) as error:
        raise RemoteProtocolError(f"a delivery does not parse: {error}") from error
