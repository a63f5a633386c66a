"""Producers: what is sent, what a message is given by that, and whom it is told."""

from __future__ import annotations

import time
from collections.abc import Callable
from queue import SimpleQueue

import pytest

import gapless
from gapless import jms
from unit.gapless.jms.conftest import LONG, SHORT, plain_session


class Heard:
    """A completion listener that keeps what it is told."""

    def __init__(self) -> None:
        self.told: SimpleQueue[tuple[str | None, object]] = SimpleQueue()

    def on_completion(self, message: jms.Message) -> None:
        self.told.put((message.get_body(str), message.get_jms_message_id()))

    def on_exception(self, message: jms.Message, exception: gapless.GaplessError) -> None:
        self.told.put((message.get_body(str), exception))


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (None, jms.Message),
        ("text", jms.TextMessage),
        (b"octets", jms.BytesMessage),
        ({"a": 1, "b": "x"}, jms.MapMessage),
        ([1, None, "x"], jms.JsonMessage),
    ],
)
def test_a_body_comes_as_the_message_that_has_it(context: jms.JMSContext, body: object, kind: type) -> None:
    consumer = context.create_consumer("t")
    context.create_producer().send("t", body)
    message = consumer.receive(LONG)

    assert message is not None
    assert type(message) is kind
    assert message.get_body(object) == body


def test_setters_follow_one_another_and_every_message_is_given_what_they_set(context: jms.JMSContext) -> None:
    consumer = context.create_consumer("t")
    message = context.create_text_message("x")
    message.set_int_property("own", 1)
    message.set_int_property("common", 1)
    answers = context.create_topic("answers")
    producer = context.create_producer().set_priority(7).set_time_to_live(60_000).set_delivery_delay(0)
    producer.set_jms_correlation_id("c").set_jms_type("order").set_jms_reply_to(answers)
    producer.set_delivery_mode(jms.NON_PERSISTENT).set_disable_message_id(True).set_disable_message_timestamp(True)
    before = time.time_ns() // 1_000_000
    producer.set_property("common", "of the producer").send("t", message)
    got = consumer.receive(LONG)
    assert got is not None

    assert (got.get_int_property("own"), got.get_string_property("common")) == (1, "of the producer")
    assert (got.get_jms_priority(), got.get_jms_correlation_id(), got.get_jms_type()) == (7, "c", "order")
    assert (got.get_jms_reply_to(), got.get_jms_delivery_mode()) == (answers, "PERSISTENT")
    assert before <= got.get_jms_expiration() - 60_000 <= time.time_ns() // 1_000_000
    assert got.get_jms_delivery_time() == got.get_jms_timestamp()
    of_producer = (producer.get_priority(), producer.get_time_to_live(), producer.get_delivery_mode())
    assert of_producer == (7, 60_000, "NON_PERSISTENT")
    assert (producer.get_jms_correlation_id(), producer.get_jms_type(), producer.get_jms_reply_to()) == (
        "c",
        "order",
        answers,
    )
    assert (producer.property_exists("common"), producer.get_property("common")) == (True, "of the producer")
    assert producer.clear_properties().get_property_names() == []


def test_a_message_that_was_sent_has_the_headers_that_its_receiver_sees(context: jms.JMSContext) -> None:
    consumer = context.create_consumer("t")
    message = context.create_text_message("x")
    assert message.get_jms_message_id() is None
    context.create_producer().set_priority(2).set_time_to_live(60_000).send("t", message)
    got = consumer.receive(LONG)
    assert got is not None

    for get in (
        jms.Message.get_jms_message_id,
        jms.Message.get_jms_timestamp,
        jms.Message.get_jms_destination,
        jms.Message.get_jms_priority,
        jms.Message.get_jms_expiration,
    ):
        assert get(message) == get(got)
    assert str(message.get_jms_message_id()).startswith("ID:")


def test_what_was_received_can_be_sent_on(context: jms.JMSContext) -> None:
    consumer = context.create_consumer("#")
    context.create_producer().set_property("a", 1).send("t", "x")
    message = consumer.receive(LONG)
    assert message is not None
    first = message.get_jms_message_id()
    context.create_producer().set_property("b", 2).send("u", message)
    again = consumer.receive(LONG)
    assert again is not None

    assert (again.get_body(str), again.get_long_property("a"), again.get_long_property("b")) == ("x", 1, 2)
    assert again.get_jms_message_id() == message.get_jms_message_id() != first
    assert again.get_jms_destination() == context.create_topic("u")


def test_wrong_values_are_refused(context: jms.JMSContext) -> None:
    producer = context.create_producer()
    calls: list[Callable[[], object]] = [
        lambda: producer.set_priority(10),
        lambda: producer.set_time_to_live(-1),
        lambda: producer.set_delivery_delay(1),
        lambda: producer.set_delivery_mode("SOMETIMES"),
        lambda: producer.set_property("a.b", 1),
        lambda: producer.send("t", {"a": object()}),
        lambda: producer.send("t", object()),
        lambda: producer.send("t", b"x" * (2 << 20)),
    ]
    for call in calls:
        with pytest.raises(jms.JMSError):
            call()


def test_an_expired_message_is_not_delivered(context: jms.JMSContext) -> None:
    context.create_durable_consumer("t", "audit").close()
    context.create_producer().set_time_to_live(100).send("t", "short")
    expired = time.monotonic() + 0.12
    while time.monotonic() < expired:
        context.create_producer().send("t", "filler")
    consumer = context.create_durable_consumer("t", "audit")

    assert consumer.receive_body(str, LONG) == "filler"


def test_completion_listeners_are_called_in_the_order_of_sending(context: jms.JMSContext) -> None:
    heard = Heard()
    producer = context.create_producer().set_async(heard)
    assert producer.get_async() is heard
    consumer = context.create_consumer("#")
    for number in range(50):
        producer.send("tu"[number % 2], str(number))
    told = [heard.told.get(timeout=LONG / 1000) for _ in range(50)]

    assert [text for text, _ in told] == [str(number) for number in range(50)]
    got = {}
    for _ in range(50):
        message = consumer.receive(LONG)
        assert message is not None
        got[message.get_body(str)] = message.get_jms_message_id()
    assert got == dict(told)


def test_a_completion_listener_hears_of_failures_too(context: jms.JMSContext) -> None:
    heard = Heard()
    context.create_producer().set_async(heard).send("t", "x" * (2 << 20)).send("t", "fine")

    assert isinstance(heard.told.get(timeout=LONG / 1000)[1], jms.MessageFormatError)
    assert heard.told.get(timeout=LONG / 1000)[0] == "fine"


def test_a_completion_listener_may_send_and_not_close(
    context: jms.JMSContext, caplog: pytest.LogCaptureFixture
) -> None:
    heard: SimpleQueue[object] = SimpleQueue()

    class Again(Heard):
        def on_completion(self, message: jms.Message) -> None:
            context.create_producer().send("again", "from within")
            for call in (context.close, context.commit, context.rollback, context.stop):
                try:
                    call()
                except jms.IllegalStateError as error:
                    heard.put(error)
            raise LookupError("of the application")

    consumer = context.create_consumer("again")
    context.create_producer().set_async(Again()).send("t", "x")
    context.create_producer().set_async(Heard()).send("t", "x")

    assert consumer.receive_body(str, LONG) == "from within"
    assert all(heard.get(timeout=LONG / 1000) for _ in range(4))
    context.close()
    assert "a completion listener has raised" in caplog.text


def test_close_waits_for_completion_listeners(factory: jms.ConnectionFactory) -> None:
    heard = Heard()
    with factory.create_context() as context:
        for number in range(100):
            context.create_producer().set_async(heard).send("t", str(number))

    assert heard.told.qsize() == 100


def test_more_topics_than_publishers(context: jms.JMSContext) -> None:
    consumer = context.create_consumer("#")
    producer = context.create_producer()
    for number in range(140):
        producer.send(f"t{number % 70}", str(number))

    assert [consumer.receive_body(str, LONG) for _ in range(140)] == [str(number) for number in range(140)]


def test_a_plain_subscriber_gets_body_and_properties(context: jms.JMSContext) -> None:
    with plain_session(context) as session, session.subscribe("t") as subscription:
        context.create_producer().set_property("a", 1).set_jms_type("order").send("t", "ü")
        event = subscription.receive(LONG / 1000)

    assert event is not None
    assert (event.body.decode(), event.type) == ("ü", "order")
    assert event.properties == {"a": 1, "JMS_gapless_body": "text", "JMSXAppID": "desk-7"}


def test_what_a_plain_publisher_sends_comes_as_bytes(context: jms.JMSContext) -> None:
    consumer = context.create_consumer("t")
    plain_session(context).publisher("t").send(b"octets", {"a": 1.5}, priority=9)
    message = consumer.receive(LONG)

    assert isinstance(message, jms.BytesMessage)
    assert (message.get_body(bytes), message.get_double_property("a"), message.get_jms_priority()) == (
        b"octets",
        1.5,
        9,
    )
    assert consumer.receive(SHORT) is None
