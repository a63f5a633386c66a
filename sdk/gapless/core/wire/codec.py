"""Encodes messages as payloads, and decodes them. A payload is the content of a frame (`gapless.core.wire.framing`).

    payload := session u64, numbers 8 bytes (`gapless.core.wire.numbering`), message
             | 0 u64, message                                          in the handshake: Hello, …, Welcome or Refused
    message := msgpack array (a control message)                       first byte >= 0x90
             | 0x01, publisher u32, epoch u64, first u64, count u32, count × (length u32, body u32), events
             | 0x05, publisher u32, epoch u64, first u64, count u32, length of the tokens u32, tokens,
               count × (length u32, body u32), events                                      (count may be 0)
             | 0x02, subscription u64, pubend number u16, count u32, count × (tick u64, length u32, body u32), events
             | 0x03, request u64, epoch u64, index u64, producer u16, topic u16, count u32, producer's name, topic,
               count × (length u32, body u32), events                                      (from a client)
             | 0x06, subscription u64, pubend number u16, first delivery number u64, careful u8, count of attempts u32,
               attempts, then as from the count on in 0x02                   (attempts: none, or a byte for each event)
             | 0x04, request u64, count u32, count × (tick u64, length u32, body u32), events

All integers are little-endian. Encoded payloads have no numbers yet; the sender adds them. Builds with different
protocol versions must understand each other's handshake, so its form never changes. A payload that cannot be decoded
raises RemoteProtocolError. Its length was checked by the framing before.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812 - it is a class

import msgspec

from gapless.core.foreign import UNREADABLE
from gapless.core.stream.batch_bytes import COUNT_BYTES
from gapless.core.stream.columns import EventColumns
from gapless.core.wire.delivered import DeliveredColumns
from gapless.core.wire.messages import (
    AnyClientMessage,
    AnyServerMessage,
    ClientMessage,
    Deliver,
    DeliverHeld,
    Publish,
    PublishKeyed,
    RangeEvents,
    ServerMessage,
)
from gapless.core.wire.messages.base import NUMBER_MAX
from gapless.core.wire.numbering import HEAD_BYTES, SESSION_BYTES, UNNUMBERED
from gapless.errors import ConfigurationError, RemoteProtocolError

_PUBLISH = Struct("<QQBIQQI")
_PUBLISH_TOKENS = Struct("<QQBIQQII")
_DELIVER = Struct("<QQBQH")
_DELIVER_HELD = Struct("<QQBQHQBI")
_KEYED = Struct("<QQBQQQHHI")
_RANGE = Struct("<QQBQ")
_SESSION = Struct("<Q")
NO_SESSION = bytes(SESSION_BYTES)
_PUBLISH_KIND = 1
_DELIVER_KIND = 2
_KEYED_KIND = 3
_RANGE_KIND = 4
_PUBLISH_TOKENS_KIND = 5
_DELIVER_HELD_KIND = 6
_KINDS_WITH_EVENTS = frozenset({_PUBLISH_KIND, _PUBLISH_TOKENS_KIND, _KEYED_KIND})
TOO_SHORT = "a frame is too short to be a message"

_encode = msgspec.msgpack.Encoder().encode
_client_decoder: msgspec.msgpack.Decoder[AnyClientMessage] = msgspec.msgpack.Decoder(AnyClientMessage)
_server_decoder: msgspec.msgpack.Decoder[AnyServerMessage] = msgspec.msgpack.Decoder(AnyServerMessage)


def encode(session: int, message: ClientMessage | ServerMessage) -> bytes:
    """Encodes a control message."""
    return _SESSION.pack(session) + (UNNUMBERED if session else b"") + _encode(message)


def check_sendable(asked: object) -> None:
    """Raises ConfigurationError if a message, or what becomes one, holds what cannot be encoded.

    Every caller checks what it was given, and says more. This is for what they forget: a message that cannot be encoded
    must fail here, in its own call. Later it would fail the link, in each session anew.
    """
    try:
        if isinstance(asked, PublishKeyed):
            _encode((asked.producer, asked.topic))
        else:
            _encode(asked)
    except (UnicodeEncodeError, OverflowError, TypeError) as error:
        raise ConfigurationError(f"this cannot be sent to a broker: {error}") from error


def encode_numbered(session: int, numbers: bytes, message: ClientMessage | ServerMessage) -> bytes:
    """Encodes a control message of a session, with the numbers of its frame."""
    return _SESSION.pack(session) + numbers + _encode(message)


def encode_publish(session: int, message: Publish) -> tuple[bytes, bytes]:
    """Encodes a batch, as a payload in two parts."""
    events, tokens = message.events, message.tokens
    numbers = message.publisher, message.epoch, message.first, events.count
    if not tokens:
        return _PUBLISH.pack(session, 0, _PUBLISH_KIND, *numbers) + events.lengths, events.blob
    head = _PUBLISH_TOKENS.pack(session, 0, _PUBLISH_TOKENS_KIND, *numbers, len(tokens))
    return head + tokens + events.lengths, events.blob


def deliver_head(session: int, sid: int, number: int) -> bytes:
    """Returns the first part of a delivery's payload; the second is `EventBatch.payload`."""
    return _DELIVER.pack(session, 0, _DELIVER_KIND, sid, number)


def deliver_held_head(session: int, sid: int, number: int, first: int, *, careful: bool, attempts: bytes) -> bytes:
    """Returns the same of a delivery to a consumer of a shared subscription."""
    numbers = sid, number, first, careful, len(attempts)
    return _DELIVER_HELD.pack(session, 0, _DELIVER_HELD_KIND, *numbers) + attempts


def encode_keyed(session: int, message: PublishKeyed) -> tuple[bytes, bytes]:
    """Encodes a keyed batch, as a payload in two parts."""
    events, producer, topic = message.events, message.producer.encode(), message.topic.encode()
    numbers = message.request, message.epoch, message.index, len(producer), len(topic), events.count
    return _KEYED.pack(session, 0, _KEYED_KIND, *numbers) + producer + topic + events.lengths, events.blob


def range_head(session: int, request: int) -> bytes:
    """Returns the first part of a payload with events of a range; the second is `EventBatch.payload`."""
    return _RANGE.pack(session, 0, _RANGE_KIND, request)


def carries_events(payload: bytes) -> bool:
    """Whether a client's payload is a batch, as far as its kind says."""
    return len(payload) > HEAD_BYTES and payload[HEAD_BYTES] in _KINDS_WITH_EVENTS


def events_in(shared: bytes) -> int:
    """Returns how many events are in the second part of a delivery's payload."""
    return int.from_bytes(shared[:COUNT_BYTES], "little")


def session_head(session: int) -> bytes:
    """Returns the bytes with which the payloads of a session begin."""
    return _SESSION.pack(session)


def session_of(payload: bytes) -> int:
    """Returns the session of a payload; 0 if it belongs to none."""
    if len(payload) <= SESSION_BYTES:
        raise RemoteProtocolError(TOO_SHORT)
    (session,) = _SESSION.unpack_from(payload)
    return int(session)


def decode_client(payload: bytes) -> AnyClientMessage | Publish | PublishKeyed:
    """Decodes a client's message."""
    at = SESSION_BYTES if payload.startswith(NO_SESSION) else HEAD_BYTES
    if len(payload) <= at:
        raise RemoteProtocolError(TOO_SHORT)
    kind = payload[at]
    if kind == _PUBLISH_KIND:
        return _decode_publish(payload)
    if kind == _PUBLISH_TOKENS_KIND:
        return _decode_publish_tokens(payload)
    if kind == _KEYED_KIND:
        return _decode_keyed(payload)
    try:
        return _client_decoder.decode(payload[at:])
    except UNREADABLE as error:
        raise RemoteProtocolError(f"a client's message does not parse: {error}") from error


def decode_server(payload: bytes) -> AnyServerMessage | Deliver | DeliverHeld | RangeEvents:
    """Decodes a broker's message."""
    at = SESSION_BYTES if payload.startswith(NO_SESSION) else HEAD_BYTES
    if len(payload) <= at:
        raise RemoteProtocolError(TOO_SHORT)
    kind = payload[at]
    if kind == _DELIVER_KIND:
        return _decode_deliver(payload)
    if kind == _DELIVER_HELD_KIND:
        return _decode_deliver_held(payload)
    if kind == _RANGE_KIND:
        return _decode_range(payload)
    try:
        return _server_decoder.decode(payload[at:])
    except UNREADABLE as error:
        raise RemoteProtocolError(f"a broker's message does not parse: {error}") from error


def _decode_publish(payload: bytes) -> Publish:
    try:
        _, _, _, publisher, epoch, first, count = _PUBLISH.unpack_from(payload)
    except StructError as error:
        raise RemoteProtocolError("a batch is shorter than its head") from error
    start = _PUBLISH.size + 8 * count
    if not count or len(payload) < start:
        raise RemoteProtocolError("a batch is empty or shorter than its lengths")
    events = EventColumns(count, payload[_PUBLISH.size : start], payload[start:])
    return Publish(publisher, epoch, first, events, b"")


def _decode_publish_tokens(payload: bytes) -> Publish:
    try:
        _, _, _, publisher, epoch, first, count, length = _PUBLISH_TOKENS.unpack_from(payload)
    except StructError as error:
        raise RemoteProtocolError("a batch with tokens is shorter than its head") from error
    lengths = _PUBLISH_TOKENS.size + length
    start = lengths + 8 * count
    if not length or len(payload) < start or (not count and len(payload) > start):
        raise RemoteProtocolError("a batch with tokens has none, or does not end where its lengths say")
    events = EventColumns(count, payload[lengths:start], payload[start:])
    return Publish(publisher, epoch, first, events, payload[_PUBLISH_TOKENS.size : lengths])


def _decode_deliver(payload: bytes) -> Deliver:
    try:
        _, _, _, sid, number = _DELIVER.unpack_from(payload)
        return Deliver(sid, number, DeliveredColumns.parse(payload, _DELIVER.size))
    except (StructError, ValueError) as error:
        raise RemoteProtocolError(f"a delivery does not parse: {error}") from error


def _decode_deliver_held(payload: bytes) -> DeliverHeld:
    try:
        _, _, _, sid, number, first, careful, length = _DELIVER_HELD.unpack_from(payload)
        at = _DELIVER_HELD.size + length
        columns = DeliveredColumns.parse(payload, at)
    except (StructError, ValueError) as error:
        raise RemoteProtocolError(f"a delivery to a shared subscription does not parse: {error}") from error
    if not columns.count or length not in (0, columns.count) or careful > 1:
        raise RemoteProtocolError("a delivery to a shared subscription is empty, or does not fit its attempts")
    if first > NUMBER_MAX - columns.count:
        raise RemoteProtocolError("a delivery has a number that is none")
    return DeliverHeld(sid, number, first, bool(careful), payload[_DELIVER_HELD.size : at], columns)


def _decode_keyed(payload: bytes) -> PublishKeyed:
    try:
        _, _, _, request, epoch, index, name, topic, count = _KEYED.unpack_from(payload)
        texts = _KEYED.size + name
        start = texts + topic
        producer, placed_by = payload[_KEYED.size : texts].decode(), payload[texts:start].decode()
    except (StructError, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"the head of a keyed batch does not parse: {error}") from error
    end = start + 8 * count
    if not count or len(payload) < end:
        raise RemoteProtocolError("a keyed batch is empty or shorter than its lengths")
    events = EventColumns(count, payload[start:end], payload[end:])
    return PublishKeyed(request, epoch, index, producer, placed_by, events)


def _decode_range(payload: bytes) -> RangeEvents:
    try:
        _, _, _, request = _RANGE.unpack_from(payload)
        return RangeEvents(request, DeliveredColumns.parse(payload, _RANGE.size))
    except (StructError, ValueError) as error:
        raise RemoteProtocolError(f"events of a range do not parse: {error}") from error
