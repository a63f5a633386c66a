"""Headers and properties of a message, as chapter 3 of JMS 3.1 has them, and what becomes of them on the way."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from gapless import Event, GaplessError
from gapless.jms import errors
from gapless.jms.bodies import TextMessage, message_of
from gapless.jms.errors import InvalidDestinationError, MessageFormatError, MessageNotWriteableError
from gapless.jms.messages import Message, Topic
from gapless.selectors.selector import Selector


def after_the_way(message: Message, delivery_count: int = 1) -> Message:
    """What a consumer gets of a message that was sent."""
    sent = message.to_sent("orders.new", 7, 0)
    event = Event.make(
        "orders.new",
        sent.body,
        {name: value for name, value in sent.properties.items() if value is not None},
        pubend="p@1",
        tick=912777230421998592,
        delivery_count=delivery_count,
        priority=sent.priority,
        correlation_id=sent.correlation_id,
        reply_to=sent.reply_to,
        type=sent.type,
    )
    return message_of(event)


def test_headers_are_set_by_who_is_to_set_them() -> None:
    message = Message()
    message.set_jms_correlation_id("c")
    message.set_jms_reply_to(Topic("answers"))
    message.set_jms_type("order")
    assert (message.get_jms_message_id(), message.get_jms_destination(), message.get_jms_timestamp()) == (None, None, 0)
    got = after_the_way(message)

    assert got.get_jms_message_id() == "ID:p@1:912777230421998592"
    assert got.get_jms_timestamp() == 1795459850313
    assert got.get_jms_destination() == Topic("orders.new")
    assert (got.get_jms_correlation_id(), got.get_jms_reply_to(), got.get_jms_type()) == (
        "c",
        Topic("answers"),
        "order",
    )
    assert (got.get_jms_priority(), got.get_jms_expiration(), got.get_jms_delivery_mode()) == (7, 0, "PERSISTENT")


def test_a_redelivery_is_counted() -> None:
    first, second = after_the_way(Message()), after_the_way(Message(), 2)

    assert (first.get_jms_redelivered(), first.get_int_property("JMSXDeliveryCount")) == (False, 1)
    assert (second.get_jms_redelivered(), second.get_int_property("JMSXDeliveryCount")) == (True, 2)
    assert "JMSXDeliveryCount" not in second.to_sent("t", 4, 0).properties


def test_an_expiration_is_sent_to_the_millisecond() -> None:
    expiration = Message().to_sent("t", 4, 1795459850313).expiration

    assert expiration is not None
    assert expiration.isoformat() == "2026-11-23T18:50:50.313000+00:00"


def test_properties_keep_their_type_on_the_way() -> None:
    message = Message()
    message.set_boolean_property("a", True)
    message.set_byte_property("b", 1)
    message.set_short_property("c", 2)
    message.set_int_property("d", 3)
    message.set_long_property("e", 4)
    message.set_float_property("f", 0.1)
    message.set_double_property("g", 0.1)
    message.set_string_property("h", "x")
    message.set_object_property("i", 5)
    got = after_the_way(message)

    assert (got.get_boolean_property("a"), got.get_byte_property("b"), got.get_short_property("c")) == (True, 1, 2)
    assert (got.get_int_property("d"), got.get_long_property("e"), got.get_string_property("h")) == (3, 4, "x")
    assert (got.get_float_property("f"), got.get_double_property("g")) == (0.10000000149011612, 0.1)
    assert (got.get_long_property("d"), got.get_string_property("d"), got.get_object_property("i")) == (3, "3", 5)
    wrongs = [(got.get_int_property, "e"), (got.get_byte_property, "c"), (got.get_int_property, "i")]
    for get, name in wrongs:
        with pytest.raises(MessageFormatError):
            get(name)
    assert sorted(got.get_property_names()) == ["JMSXDeliveryCount", *"abcdefghi"]
    assert Selector("d = 3 AND JMS_gapless_body = 'none'").matches(message.to_sent("t", 4, 0).properties)


def test_a_type_that_does_not_fit_the_value_is_left_out() -> None:
    """Another program may have changed the one and not the other."""
    types = {"JMS_gapless_types": "a:byte,b:int,c:no,d:short,,x"}
    got = message_of(Event.make("t", b"", {"a": 1000, "c": 1, "d": 5, **types}))

    assert (got.get_long_property("a"), got.get_long_property("c"), got.get_short_property("d")) == (1000, 1, 5)


def test_a_property_that_is_absent() -> None:
    message = Message()
    message.set_string_property("absent", None)

    assert (message.get_string_property("a"), message.get_object_property("a")) == (None, None)
    assert message.get_boolean_property("a") is False
    with pytest.raises(errors.NumberFormatError):
        message.get_int_property("a")
    assert not message.property_exists("a")
    assert "absent" not in message.to_sent("t", 4, 0).properties


@pytest.mark.parametrize("name", ["a b", "1a", "and", "NULL", "a.b", "JMSPriority", "JMSFoo", "JMSXDeliveryCount"])
def test_names_are_those_that_a_selector_can_have(name: str) -> None:
    with pytest.raises(MessageFormatError):
        Message().set_int_property(name, 1)


def test_names_are_not_empty() -> None:
    for call in (Message().get_int_property, Message().property_exists):
        with pytest.raises(ValueError, match="not empty"):
            call("")


def test_names_for_groups_and_vendors_can_be_set() -> None:
    message = Message()
    message.set_string_property("JMSXGroupID", "g")
    message.set_int_property("JMS_mine", 1)

    assert message.get_string_property("JMSXGroupID") == "g"


@pytest.mark.parametrize("value", [math.nan, math.inf, b"x", [1]])
def test_values_are_those_that_a_selector_can_compare(value: object) -> None:
    with pytest.raises(MessageFormatError):
        Message().set_object_property("a", value)  # type: ignore[arg-type]


def test_what_was_received_is_read_only_until_it_is_cleared() -> None:
    message = TextMessage()
    message.set_text("x")
    message.set_int_property("a", 1)
    got = after_the_way(message)
    assert isinstance(got, TextMessage)

    changes: list[Callable[[], None]] = [lambda: got.set_int_property("a", 2), lambda: got.set_text("y")]
    for change in changes:
        with pytest.raises(MessageNotWriteableError):
            change()
    got.clear_properties()
    got.set_int_property("b", 2)
    with pytest.raises(MessageNotWriteableError):
        got.set_text("y")
    got.clear_body()
    assert (got.get_text(), got.get_property_names()) == (None, ["b"])
    got.set_text("y")


def test_acknowledge_without_a_context_does_nothing() -> None:
    after_the_way(Message()).acknowledge()


def test_a_topic_is_its_name() -> None:
    assert Topic("a.b") == Topic("a.b") != Topic("a.c")
    assert len({Topic("a"), Topic("a")}) == 1
    assert Topic("a.b").get_topic_name() == "a.b"
    with pytest.raises(InvalidDestinationError):
        Topic("a.*")


def test_every_exception_is_an_error_of_gapless() -> None:
    assert {"IllegalStateError", "MessageEOFError", "TransactionInDoubtError"} <= {*errors.__all__}
    assert all(issubclass(getattr(errors, name), GaplessError) for name in errors.__all__)
