"""Bodies: what was written is read, after the way as well (sections 3.11 to 3.13 of JMS 3.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import pytest

from gapless import Event
from gapless.jms.bodies import BytesMessage, JsonMessage, MapMessage, StreamMessage, TextMessage, message_of
from gapless.jms.errors import MessageEOFError, MessageFormatError, MessageNotReadableError, MessageNotWriteableError
from gapless.jms.messages import Message
from unit.gapless.jms.test_messages import after_the_way

Kind = TypeVar("Kind", bound=Message)


def got(message: Kind) -> Kind:
    received = after_the_way(message)
    assert type(received) is type(message)
    return received


def test_a_text() -> None:
    message = TextMessage()
    assert message.get_text() is None
    message.set_text("grün 🥕")

    assert got(message).get_text() == got(message).get_body(str) == "grün 🥕"
    with pytest.raises(MessageFormatError):
        message.get_body(bytes)
    with pytest.raises(MessageFormatError):
        message.set_text(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", [None, "", " "])
def test_a_text_that_is_none_stays_none(text: str | None) -> None:
    message = TextMessage()
    message.set_text(text)
    received = got(message)

    assert received.get_text() == text
    assert received.get_body(str) == text
    assert received.is_body_assignable_to(bytes) is (text is None)
    assert received.get_property_names() == ["JMSXDeliveryCount"]


def test_a_receiver_that_does_not_know_of_null_takes_it_for_an_empty_text() -> None:
    sent = TextMessage().to_sent("t", 4, 0)

    assert (sent.body, sent.properties) == (b"", {"JMS_gapless_body": "text", "JMS_gapless_types": ":null"})


HALF = "a\ud800"


SETTING: list[Callable[[], None]] = [
    lambda: TextMessage().set_text(HALF),
    lambda: JsonMessage().set_object({"a": [HALF]}),
    lambda: JsonMessage().set_object({HALF: 1}),
    lambda: MapMessage().set_string("a", HALF),
    lambda: MapMessage().set_string(HALF, "a"),
    lambda: MapMessage().set_char("a", "\ud800"),
    lambda: MapMessage().set_object("a", HALF),
    lambda: StreamMessage().write_string(HALF),
    lambda: StreamMessage().write_char("\ud800"),
    lambda: BytesMessage().write_utf(HALF),
    lambda: TextMessage().set_string_property("a", HALF),
    lambda: TextMessage().set_object_property("a", HALF),
    lambda: TextMessage().set_string_property(HALF, "a"),
    lambda: TextMessage().set_jms_type(HALF),
    lambda: TextMessage().set_jms_correlation_id(HALF),
]


@pytest.mark.parametrize("use", SETTING, ids=range(len(SETTING)))
def test_a_text_that_cannot_be_sent_is_refused_where_it_is_set(use: Callable[[], None]) -> None:
    with pytest.raises(MessageFormatError):
        use()


def test_half_a_pair_is_a_char_of_java_where_it_is_written_as_two_bytes() -> None:
    message = BytesMessage()
    message.write_char("\ud800")
    message.reset()

    assert message.read_char() == "\ud800"


def test_json() -> None:
    message, value = JsonMessage(), {"a": [1, None, "x"]}
    message.set_object(value)
    value["a"] = []
    received = got(message)

    assert received.get_object() == received.get_body(dict) == {"a": [1, None, "x"]}
    received.get_object()["a"].clear()
    assert received.get_object() == {"a": [1, None, "x"]}
    for wrong in (object(), float("nan"), {1: {2}}):
        with pytest.raises(MessageFormatError):
            message.set_object(wrong)
    assert received.is_body_assignable_to(dict)
    assert not received.is_body_assignable_to(str)


def test_a_map() -> None:
    message = MapMessage()
    message.set_boolean("a", True)
    message.set_byte("b", 1)
    message.set_short("c", 2)
    message.set_char("d", "x")
    message.set_int("e", 3)
    message.set_long("f", 4)
    message.set_float("g", 0.5)
    message.set_double("h", 0.1)
    message.set_string("i", "text")
    message.set_bytes("j", b"\x00\xff")
    message.set_object("A", None)
    received = got(message)

    assert (received.get_boolean("a"), received.get_byte("b"), received.get_short("c")) == (True, 1, 2)
    assert (received.get_char("d"), received.get_int("e"), received.get_long("f")) == ("x", 3, 4)
    assert (received.get_float("g"), received.get_double("h"), received.get_string("i")) == (0.5, 0.1, "text")
    assert (received.get_bytes("j"), received.get_object("A"), received.get_object("e")) == (b"\x00\xff", None, 3)
    with pytest.raises(MessageFormatError):
        received.get_short("e")
    assert (received.item_exists("A"), received.item_exists("z"), len(received.get_map_names())) == (True, False, 11)
    with pytest.raises(MessageNotWriteableError):
        received.set_int("e", 4)
    with pytest.raises(ValueError, match="not empty"):
        message.set_int("", 1)
    assert received.get_body(dict) == {name: received.get_object(name) for name in received.get_map_names()}


def test_a_stream() -> None:
    message = StreamMessage()
    message.write_int(1)
    message.write_string("x")
    message.write_bytes(b"yz")
    message.write_object(0.5)
    message.write_string(None)
    with pytest.raises(MessageNotReadableError):
        message.read_int()
    received = got(message)

    with pytest.raises(MessageFormatError):
        received.read_short()  # and it does not go on
    assert (received.read_long(), received.read_string(), received.read_bytes()) == (1, "x", b"yz")
    assert (received.read_double(), received.read_object()) == (0.5, None)
    with pytest.raises(MessageEOFError):
        received.read_object()
    received.reset()
    assert received.read_int() == 1
    with pytest.raises(MessageNotWriteableError):
        received.write_int(2)
    with pytest.raises(MessageFormatError):
        received.get_body(list)
    received.clear_body()
    received.write_int(5)
    received.reset()
    assert received.read_object() == 5


def test_bytes() -> None:
    message = BytesMessage()
    message.write_boolean(True)
    message.write_byte(-1)
    message.write_short(-2)
    message.write_char("x")
    message.write_int(-3)
    message.write_long(-4)
    message.write_float(0.5)
    message.write_double(0.1)
    message.write_utf("grün")
    message.write_bytes(b"rest")
    with pytest.raises(MessageNotReadableError):
        message.get_body_length()
    received = got(message)

    assert received.get_body_length() == 1 + 1 + 2 + 2 + 4 + 8 + 4 + 8 + 2 + 5 + 4
    assert (received.read_boolean(), received.read_unsigned_byte(), received.read_unsigned_short()) == (
        True,
        255,
        65534,
    )
    assert (received.read_char(), received.read_int(), received.read_long()) == ("x", -3, -4)
    assert (received.read_float(), received.read_double(), received.read_utf()) == (0.5, 0.1, "grün")
    with pytest.raises(MessageEOFError):
        received.read_int() if received.read_bytes(1) == b"r" else None
    assert received.read_bytes(3) == b"est"
    received.reset()
    assert (received.read_boolean(), received.read_byte(), received.read_short()) == (True, -1, -2)
    with pytest.raises(MessageFormatError):
        message.write_utf("x" * 65536)
    with pytest.raises(MessageFormatError):
        message.write_byte(128)


@pytest.mark.parametrize("content", [b"\x00\x02\xff\xff", b"\x00\x05ab", b"\x00"])
def test_a_text_that_is_none_is_not_read(content: bytes) -> None:
    received = message_of(Event.make("t", content))
    assert isinstance(received, BytesMessage)

    with pytest.raises((MessageFormatError, MessageEOFError)):
        received.read_utf()
    assert received.read_bytes(len(content)) == content


def test_a_message_without_a_body_is_of_every_type() -> None:
    assert got(Message()).get_body(str) is None
    assert Message().is_body_assignable_to(dict)
    assert TextMessage().get_body(bytes) is None


@pytest.mark.parametrize("kind", [None, "other", 5, True])
def test_an_event_of_others_is_bytes(kind: Any) -> None:
    received = message_of(Event.make("t", b"\x01", {} if kind is None else {"JMS_gapless_body": kind}))

    assert received.get_body(bytes) == b"\x01"
    assert type(received) is BytesMessage


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("text", b"\xff"),
        ("json", b"{"),
        ("json", b"[" * 100_000),
        ("map", b"\xff"),
        ("map", msgspec.msgpack.encode({"a": ("number", 1)})),
        ("map", msgspec.msgpack.encode({"a": ("byte", 1000)})),
        ("stream", msgspec.msgpack.encode([("char", "ab")])),
        ("stream", msgspec.msgpack.encode([1])),
    ],
)
def test_a_body_that_is_not_what_it_says_is_an_error(kind: str, body: bytes) -> None:
    with pytest.raises(MessageFormatError):
        message_of(Event.make("t", body, {"JMS_gapless_body": kind}))


def test_a_copy_changes_nothing() -> None:
    message = BytesMessage()
    message.write_bytes(b"x")
    sent = message.to_sent("t", 4, 0)
    message.write_bytes(b"y")

    assert sent.body == b"x"
