"""Messages to payloads and back; what does not parse is the other side's error (protocol: session)."""

from __future__ import annotations

import typing
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.stream.columns import EventColumns
from gapless.core.stream.events import encode_event
from gapless.core.wire import codec
from gapless.core.wire.messages import (
    AnyClientMessage,
    AnyServerMessage,
    Deliver,
    DeliverHeld,
    DeliverHeldGap,
    Extend,
    Heartbeat,
    Hello,
    HoldLost,
    Holds,
    Kind,
    Publish,
    Published,
    PublishKeyed,
    RangeEvents,
    Settle,
    Settled,
    Subscribed,
    Take,
    Taken,
    TickRun,
    Verdict,
)
from gapless.errors import RemoteProtocolError


def events(count: int) -> EventColumns:
    """Some encoded events."""
    return EventColumns.of([encode_event("t", {"n": n}, None, b"x") for n in range(count)], [1] * count)


def test_a_batch_reads_back() -> None:
    head, blob = codec.encode_publish(7, Publish(3, 2, 11, events(5), b""))

    message = codec.decode_client(head + blob)

    assert isinstance(message, Publish)
    assert (message.publisher, message.epoch, message.first, message.events.count) == (3, 2, 11, 5)
    message.events.check()
    assert message.events.topics == events(5).batch(range(5)).topics[0]
    assert codec.session_of(head + blob) == 7


def test_a_delivery_reads_back() -> None:
    batch = events(5).batch(range(1, 6))

    message = codec.decode_server(codec.deliver_head(7, 9, 2) + batch.payload(0b10101))

    assert isinstance(message, Deliver)
    assert (message.sid, message.number) == (9, 2)
    assert [event.properties["n"] for event in message.columns.events("p@1")] == [0, 2, 4]


HELD = Holds("p@1", (5, 9), (1, 2))


@pytest.mark.parametrize("attempts", [b"", bytes((0, 1, 255))])
@pytest.mark.parametrize("careful", [False, True])
def test_a_delivery_to_a_shared_subscription_reads_back(careful: bool, attempts: bytes) -> None:
    batch = events(5).batch(range(1, 6))
    head = codec.deliver_held_head(7, 9, 2, 40, careful=careful, attempts=attempts)

    message = codec.decode_server(head + batch.payload(0b10101))

    assert isinstance(message, DeliverHeld)
    assert (message.sid, message.number, message.first) == (9, 2, 40)
    assert (message.careful, message.attempts) == (careful, attempts)
    assert message.columns.ticks() == [1, 3, 5]


def forged_delivery(**fields: Any) -> bytes:
    """A delivery of two events to a shared subscription with something else in it."""
    given: dict[str, Any] = {"first": 40, "careful": False, "attempts": b"", "mask": 0b11} | fields
    mask = given.pop("mask")
    return codec.deliver_held_head(7, 9, 2, **given) + events(2).batch(range(1, 3)).payload(mask)


@pytest.mark.parametrize(
    "payload",
    [
        forged_delivery(mask=0),
        forged_delivery(attempts=b"\0"),
        forged_delivery(attempts=b"\0\0\0"),
        forged_delivery(careful=2),
        forged_delivery(first=(1 << 63) - 2),
        forged_delivery()[:-1],
        forged_delivery()[:39],
        forged_delivery()[:36] + b"\xff\xff\xff\xff" + forged_delivery()[40:],
    ],
    ids=["empty", "few attempts", "many attempts", "careful", "number", "cut", "no head", "huge attempts"],
)
def test_a_delivery_to_a_shared_subscription_that_does_not_fit_is_an_error(payload: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        codec.decode_server(payload)


def test_a_keyed_batch_reads_back() -> None:
    head, blob = codec.encode_keyed(7, PublishKeyed(3, 12, 100, "query/0", "", events(5)))

    message = codec.decode_client(head + blob)

    assert isinstance(message, PublishKeyed)
    assert (message.request, message.epoch, message.index, message.producer, message.topic) == (
        3,
        12,
        100,
        "query/0",
        "",
    )
    message.events.check()
    assert message.events.topics == events(5).batch(range(5)).topics[0]


def test_events_of_a_range_read_back() -> None:
    message = codec.decode_server(codec.range_head(7, 9) + events(5).batch(range(1, 6)).payload(0b10101))

    assert isinstance(message, RangeEvents)
    assert message.request == 9
    assert message.columns.ticks() == [1, 3, 5]


@pytest.mark.parametrize("cut", [9, 20, 40, 50])
def test_a_keyed_batch_that_is_cut_is_an_error(cut: int) -> None:
    head, _ = codec.encode_keyed(7, PublishKeyed(3, 12, 100, "query/0", "t", events(5)))

    with pytest.raises(RemoteProtocolError):
        codec.decode_client(head[:cut])


@pytest.mark.parametrize(
    "message",
    [
        Hello(1, "net", "c", "i", b"secret"),
        Heartbeat(),
        Take(1, HELD),
        Settle(1, 2, (Verdict(Kind.ACKNOWLEDGE, HELD), Verdict(Kind.RETRY, HELD, 5))),
        Extend(1, HELD),
    ],
)
def test_a_client_message_reads_back(message: AnyClientMessage) -> None:
    assert codec.decode_client(codec.encode(1, message)) == message


@pytest.mark.parametrize(
    "message",
    [
        Published(1, 5, [TickRun(1024, 1024, 5)]),
        Subscribed(1, 2, 1, b"12345678", True, []),
        DeliverHeldGap(1, 2, 3, True, 1, 5, 9, "released early"),
        Taken(1, 40, (41,)),
        Settled(1, 2, (HELD,)),
        HoldLost(1, (HELD,)),
    ],
)
def test_a_server_message_reads_back(message: AnyServerMessage) -> None:
    assert codec.decode_server(codec.encode(1, message)) == message


def test_no_two_messages_of_a_direction_share_a_tag() -> None:
    """And none nests itself, so no depth can be forged (F04)."""
    for union in (AnyClientMessage, AnyServerMessage):
        tags = [kind.__struct_config__.tag for kind in typing.get_args(union)]
        assert len(tags) == len(set(tags))


@given(st.binary(max_size=200))
def test_noise_is_an_error_and_nothing_worse(noise: bytes) -> None:
    """Whatever the bytes, a message or RemoteProtocolError (F01)."""
    for decode in (codec.decode_client, codec.decode_server):
        try:
            decode(noise)
        except RemoteProtocolError:
            continue


@given(st.data())
def test_a_garbled_message_is_an_error_and_nothing_worse(data: st.DataObject) -> None:
    """Bytes of valid messages, changed and cut."""
    head, blob = codec.encode_publish(7, Publish(3, 2, 11, events(3), b""))
    whole = bytearray(data.draw(st.sampled_from([head + blob, codec.encode(1, Hello(1, "n", "c", "i"))])))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] = data.draw(st.integers(0, 255))
    cut = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    try:
        message = codec.decode_client(cut)
    except RemoteProtocolError:
        return
    if isinstance(message, Publish):
        try:
            message.events.check()
        except ValueError:
            return


@pytest.mark.parametrize("payload", [b"", b"1234", b"\0" * 8, b"\0" * 8 + b"\x01", b"\0" * 8 + b"\x91" * 1000])
def test_short_and_nested_payloads_are_refused(payload: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        codec.decode_client(payload)


def test_an_empty_batch_is_refused() -> None:
    """It would take a tick run of length nothing."""
    head, _ = codec.encode_publish(7, Publish(3, 2, 11, EventColumns(0, b"", b""), b""))

    with pytest.raises(RemoteProtocolError, match="empty"):
        codec.decode_client(head)


def test_a_count_beyond_the_payload_is_refused_before_anything_is_made_of_it() -> None:
    """F02: the length is checked against what is there."""
    head, blob = codec.encode_publish(7, Publish(3, 2, 11, events(2), b""))
    forged = bytearray(head + blob)
    forged[37:41] = b"\xff\xff\xff\xff"

    with pytest.raises(RemoteProtocolError, match="shorter"):
        codec.decode_client(bytes(forged))


def test_integers_beyond_64_bits_cannot_be_sent() -> None:
    """So no message can carry one."""
    with pytest.raises(OverflowError):
        msgspec.msgpack.encode(1 << 64)


@pytest.mark.parametrize("count", [0, 3])
def test_a_batch_with_tokens(count: int) -> None:
    head, blob = codec.encode_publish(7, Publish(3, 2, 11, events(count), b"token"))

    back = codec.decode_client(head + blob)

    assert isinstance(back, Publish)
    assert (back.publisher, back.epoch, back.first, back.tokens) == (3, 2, 11, b"token")
    assert (back.events.count, back.events.lengths, back.events.blob) == (count, events(count).lengths, blob)


def test_a_batch_with_tokens_that_does_not_parse() -> None:
    head, blob = codec.encode_publish(7, Publish(3, 2, 11, events(3), b"token"))
    empty, _ = codec.encode_publish(7, Publish(3, 2, 11, events(0), b"token"))

    for payload in (head[:40], head[:-1], empty + b"x", empty[:41] + bytes(4) + empty[45:]):
        with pytest.raises(RemoteProtocolError):
            codec.decode_client(payload)
    assert isinstance(codec.decode_client(head + blob), Publish)
