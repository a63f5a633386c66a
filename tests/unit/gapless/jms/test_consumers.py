"""Consumers: what `receive` returns, what listeners are called with, and what comes again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from queue import Queue, SimpleQueue
from threading import Barrier, Event

import pytest

import gapless
from gapless import jms
from unit.gapless.client.conftest import ADDRESS, network
from unit.gapless.client.fake_network import FakeNetwork
from unit.gapless.jms.conftest import LONG, SHORT, InThread, plain_session, texts, until

__all__ = ["network"]


def test_a_closed_consumer_has_acknowledged_what_it_handed_out(context: jms.JMSContext) -> None:
    consumer = context.create_durable_consumer("orders", "audit")
    context.create_producer().send("orders", "1").send("orders", "2").send("orders", "3")
    assert texts(consumer, 2) == [("1", False, 1), ("2", False, 1)]
    consumer.close()

    assert texts(context.create_durable_consumer("orders", "audit"), 1) == [("3", False, 1)]


def test_after_an_error_only_the_last_message_comes_again_and_is_marked(tmp_path: Path) -> None:
    factory = jms.ConnectionFactory(f"embedded:{tmp_path / 'data'}", client_id="desk-7")

    def fail() -> None:
        with factory.create_context() as context:
            consumer = context.create_durable_consumer("orders", "audit")
            context.create_producer().send("orders", "1").send("orders", "2").send("orders", "3")
            texts(consumer, 2)
            raise LookupError("of the application")

    with pytest.raises(LookupError):
        fail()

    with factory.create_context() as context:
        consumer = context.create_durable_consumer("orders", "audit")
        assert texts(consumer, 2) == [("2", True, 2), ("3", False, 1)]


def test_receive_no_wait_returns_what_is_there_and_none_behind_it(context: jms.JMSContext) -> None:
    consumer = context.create_durable_consumer("orders", "audit")
    for text in "123":
        context.create_producer().send("orders", text)
    assert texts(consumer, 1) == [("1", False, 1)]
    got: list[str | None] = []
    while len(got) < 2:
        message = consumer.receive_no_wait()
        got += [message.get_body(str)] if message is not None else []

    assert got == ["2", "3"]
    assert consumer.receive_no_wait() is None
    assert consumer.receive_body_no_wait(str) is None


def test_a_body_of_another_type_was_not_delivered(context: jms.JMSContext) -> None:
    consumer = context.create_durable_consumer("orders", "audit")
    context.create_producer().send("orders", "text").send("orders").send("orders", b"octets")
    for _ in range(2):
        with pytest.raises(jms.MessageFormatError):
            consumer.receive_body(bytes, LONG)
    assert texts(consumer, 1) == [("text", False, 1)]
    with pytest.raises(jms.MessageFormatError, match="no body"):
        consumer.receive_body(str, LONG)
    assert type(consumer.receive(LONG)) is jms.Message
    with pytest.raises(jms.MessageFormatError):
        consumer.receive_body(str, LONG)

    consumer.close()

    again = context.create_durable_consumer("orders", "audit").receive(LONG)
    assert again is not None
    assert again.get_body(bytes) == b"octets"


def test_a_timeout_is_not_negative(context: jms.JMSContext) -> None:
    with pytest.raises(ValueError, match="milliseconds"):
        context.create_consumer("orders").receive(-1)


def test_one_thread_at_a_time_receives(context: jms.JMSContext) -> None:
    consumer = context.create_consumer("orders")
    waiting = InThread(lambda: consumer.receive(LONG))
    while waiting.is_waiting:
        try:
            consumer.receive(1)
        except jms.IllegalStateError as error:
            assert "another thread" in str(error)
            break
    context.create_producer().send("orders", "x")

    assert waiting.result().get_text() == "x"


def test_two_consumers_of_one_context_may_be_waited_for_by_two_threads(context: jms.JMSContext) -> None:
    one, other = context.create_consumer("orders"), context.create_consumer("orders")
    waiting = [InThread(lambda consumer=consumer: consumer.receive_body(str, LONG)) for consumer in (one, other)]  # type: ignore[misc]
    until(lambda: all(each.is_busy_elsewhere for each in (one, other)))
    context.create_producer().send("orders", "x")

    assert [each.result() for each in waiting] == ["x", "x"]


def test_a_listener_is_called_in_order_and_acknowledges_by_returning(context: jms.JMSContext) -> None:
    got: SimpleQueue[str | None] = SimpleQueue()
    consumer = context.create_durable_consumer("orders", "audit")
    consumer.set_message_listener(lambda message: got.put(message.get_body(str)))
    producer = context.create_producer()
    for number in range(20):
        producer.send("orders", str(number))

    assert [got.get(timeout=LONG / 1000) for _ in range(20)] == [str(number) for number in range(20)]
    consumer.close()
    assert context.create_durable_consumer("orders", "audit").receive(SHORT) is None


def test_listeners_of_one_context_run_one_after_another(context: jms.JMSContext) -> None:
    inside: list[str] = []
    got: SimpleQueue[int] = SimpleQueue()
    for topic in ("a", "b", "c"):

        def listen(_: jms.Message, topic: str = topic) -> None:
            inside.append(topic)
            got.put(len(inside))
            inside.remove(topic)

        context.create_consumer(topic).set_message_listener(listen)
    producer = context.create_producer()
    for number in range(30):
        producer.send("abc"[number % 3], str(number))

    assert {got.get(timeout=LONG / 1000) for _ in range(30)} == {1}


def test_a_listener_takes_the_place_of_another(context: jms.JMSContext) -> None:
    consumer = context.create_consumer("orders")
    first: SimpleQueue[object] = SimpleQueue()
    second: SimpleQueue[object] = SimpleQueue()
    consumer.set_message_listener(first.put)
    assert consumer.get_message_listener() == first.put
    context.create_producer().send("orders", "1")
    first.get(timeout=LONG / 1000)
    consumer.set_message_listener(second.put)
    context.create_producer().send("orders", "2")

    second.get(timeout=LONG / 1000)
    assert first.empty()
    with pytest.raises(TypeError, match="close the consumer"):
        consumer.set_message_listener(None)  # type: ignore[arg-type]


def test_a_context_with_a_listener_does_not_receive(context: jms.JMSContext) -> None:
    other = context.create_consumer("others")
    with context.create_consumer("orders") as consumer:
        consumer.set_message_listener(print)
        with pytest.raises(jms.IllegalStateError, match="listener"):
            other.receive(SHORT)

    assert other.receive(SHORT) is None


@pytest.mark.parametrize("mode", [jms.AUTO_ACKNOWLEDGE, jms.DUPS_OK_ACKNOWLEDGE])
def test_a_listener_that_raises_gets_the_original_again_at_once(
    factory: jms.ConnectionFactory, mode: jms.SessionMode
) -> None:
    with factory.create_context(mode) as context:
        got: SimpleQueue[tuple[str | None, int]] = SimpleQueue()
        heard: SimpleQueue[Exception] = SimpleQueue()

        def listen(message: jms.Message) -> None:
            got.put((message.get_body(str), message.get_int_property("JMSXDeliveryCount")))
            if message.get_body(str) == "poison":
                message.clear_body()
                message.clear_properties()
                raise LookupError("of the application")

        context.set_exception_listener(heard.put)
        context.create_durable_consumer("orders", "audit").set_message_listener(listen)
        context.create_producer().send("orders", "poison").send("orders", "next")

        given = [got.get(timeout=LONG / 1000) for _ in range(8)]
        assert given == [*(("poison", count) for count in range(1, 8)), ("next", 1)]
        assert isinstance(heard.get(timeout=LONG / 1000), LookupError)
        assert heard.empty()


def test_a_listener_may_close_its_own_consumer_and_its_message_is_acknowledged(context: jms.JMSContext) -> None:
    done = Event()
    consumer = context.create_durable_consumer("orders", "audit")

    def listen(_: jms.Message) -> None:
        consumer.close()
        for call in (context.close, context.stop, context.commit):
            with pytest.raises(jms.IllegalStateError):
                call()
        done.set()

    consumer.set_message_listener(listen)
    context.create_producer().send("orders", "1").send("orders", "2")
    assert done.wait(LONG / 1000)
    consumer.close()

    again: jms.JMSConsumer | None = None
    while again is None:  # the thread of the listener ends the consumer after it has returned
        try:
            again = context.create_durable_consumer("orders", "audit")
        except jms.IllegalStateError:
            continue
    assert texts(again, 1) == [("2", False, 1)]


def test_a_listener_may_close_another_context_of_its_connection(context: jms.JMSContext) -> None:
    other = context.create_context(jms.AUTO_ACKNOWLEDGE)
    elsewhere = other.create_durable_consumer("orders", "audit")
    said: list[object] = []
    done = Event()

    def listen(_: jms.Message) -> None:
        for call in (other.close, context.close, context.stop):
            try:
                said.append(call())
            except jms.IllegalStateError as error:
                said.append(type(error))
        done.set()

    context.create_consumer("orders").set_message_listener(listen)
    context.create_producer().send("orders", "1")
    assert done.wait(LONG / 1000)

    assert said == [None, jms.IllegalStateError, jms.IllegalStateError]
    with pytest.raises(jms.IllegalStateError):
        elsewhere.receive(SHORT)
    context.create_producer().send("orders", "2")


def test_two_listeners_that_close_each_others_contexts_do_not_wait_for_each_other(context: jms.JMSContext) -> None:
    """One of them is refused: which one, the moment decides."""
    other = context.create_context(jms.AUTO_ACKNOWLEDGE)
    meets = Barrier(2)
    said: Queue[object] = Queue()

    def closing(target: jms.JMSContext) -> Callable[[jms.Message], None]:
        def listen(_: jms.Message) -> None:
            meets.wait(LONG / 1000)
            try:
                target.close()
                said.put(None)
            except jms.IllegalStateError as error:
                said.put(type(error))

        return listen

    context.create_consumer("orders").set_message_listener(closing(other))
    other.create_consumer("orders").set_message_listener(closing(context))
    with context.create_context(jms.AUTO_ACKNOWLEDGE) as third:
        third.create_producer().send("orders", "1")

    assert {said.get(timeout=LONG / 1000), said.get(timeout=LONG / 1000)} == {None, jms.IllegalStateError}


def test_close_waits_for_the_listener_and_what_it_was_not_given_comes_later(context: jms.JMSContext) -> None:
    running, may_return = Event(), Event()
    consumer = context.create_durable_consumer("orders", "audit")

    def listen(_: jms.Message) -> None:
        running.set()
        assert may_return.wait(LONG / 1000)

    consumer.set_message_listener(listen)
    context.create_producer().send("orders", "1").send("orders", "2")
    assert running.wait(LONG / 1000)
    closing = InThread(consumer.close)
    until(lambda: consumer._closed)
    assert closing.is_waiting
    may_return.set()
    assert closing.result() is None

    assert texts(context.create_durable_consumer("orders", "audit"), 1)[0][0] == "2"


def test_what_is_held_while_stopped_was_not_delivered(context: jms.JMSContext) -> None:
    consumer = context.create_durable_consumer("orders", "audit")
    waiting = InThread(lambda: consumer.receive(LONG))
    until(lambda: consumer.is_busy_elsewhere)
    context.stop()
    context.create_producer().send("orders", "x")
    consumer.close()
    assert waiting.result() is None

    context.start()
    assert texts(context.create_durable_consumer("orders", "audit"), 1)[0][0] == "x"


def test_a_garbled_body_is_an_error_and_the_next_message_follows(context: jms.JMSContext) -> None:
    got: SimpleQueue[object] = SimpleQueue()
    consumer = context.create_consumer("orders")
    publisher = plain_session(context).publisher("orders")
    publisher.send(b"{", {"JMS_gapless_body": "json"})
    publisher.send(b"fine")
    with pytest.raises(jms.MessageFormatError, match="no JSON"):
        consumer.receive(LONG)
    assert consumer.receive_body(bytes, LONG) == b"fine"

    context.set_exception_listener(got.put)
    consumer.set_message_listener(lambda message: got.put(message.get_body(bytes)))
    publisher.send(b"{", {"JMS_gapless_body": "json"})
    publisher.send(b"fine")
    assert isinstance(got.get(timeout=LONG / 1000), jms.MessageFormatError)
    assert got.get(timeout=LONG / 1000) == b"fine"


def test_a_gap_is_raised_as_it_is_and_told_to_the_exception_listener(network: FakeNetwork) -> None:
    with jms.ConnectionFactory(ADDRESS, client_id="desk-7").create_context() as context:
        got: SimpleQueue[object] = SimpleQueue()

        def lose(name: str) -> jms.JMSConsumer:
            """A consumer of a subscription that has lost an event, and has one more."""
            context.create_durable_consumer("t", name).close()
            network.do(lambda: network.broker.release(network.log(b"lost", b"x")[0]))
            return context.create_durable_consumer("t", name)

        consumer = lose("receives")
        with pytest.raises(gapless.GapError):
            consumer.receive(LONG)
        assert consumer.receive_body(bytes, LONG) == b"x"

        context.set_exception_listener(got.put)
        lose("listens").set_message_listener(lambda message: got.put(message.get_body(bytes)))
        assert isinstance(got.get(timeout=LONG / 1000), gapless.GapError)
        assert got.get(timeout=LONG / 1000) == b"x"


def test_a_listener_hears_that_its_subscription_is_over(tmp_path: Path) -> None:
    factory = jms.ConnectionFactory(f"embedded:{tmp_path / 'data'}", client_id="desk-7")
    with factory.create_context() as context, factory.create_context() as elsewhere:
        heard: SimpleQueue[Exception] = SimpleQueue()
        context.set_exception_listener(heard.put)
        context.create_durable_consumer("orders", "audit").set_message_listener(print)
        elsewhere.unsubscribe("audit")

        assert isinstance(heard.get(timeout=LONG / 1000), jms.InvalidDestinationError)


def test_no_listener_is_set_while_another_thread_receives_in_its_context(context: jms.JMSContext) -> None:
    consumer, other = context.create_consumer("orders"), context.create_consumer("others")
    waiting = InThread(lambda: consumer.receive(1_000))
    until(lambda: consumer.is_busy_elsewhere)
    for each in (consumer, other):
        with pytest.raises(jms.IllegalStateError, match="another thread receives"):
            each.set_message_listener(print)
        assert each.get_message_listener() is None
    assert waiting.result() is None, "its time limit is as it was"

    heard: SimpleQueue[jms.Message] = SimpleQueue()
    consumer.set_message_listener(heard.put)
    context.create_producer().send("orders", "1")
    assert heard.get(timeout=LONG / 1000).get_body(str) == "1"
