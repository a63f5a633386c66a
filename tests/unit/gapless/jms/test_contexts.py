"""Contexts: connections that start and stop, sessions that end, client ids, durable subscriptions."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from typing import Any

import pytest

import gapless
from gapless import jms
from gapless.jms import contexts, errors
from unit.gapless.jms.conftest import LONG, SHORT, InThread, texts, until


def test_a_durable_subscription_keeps_what_is_sent_while_it_has_no_consumer(context: jms.JMSContext) -> None:
    context.create_durable_consumer("orders", "audit").close()
    context.create_producer().send("orders", "kept")

    assert context.create_durable_consumer("orders", "audit").receive_body(str, LONG) == "kept"


def test_a_consumer_without_a_name_gets_what_is_sent_while_it_is_there(context: jms.JMSContext) -> None:
    producer = context.create_producer().send("orders", "before")
    consumer = context.create_consumer("orders")
    producer.send("orders", "after")

    assert consumer.receive_body(str, LONG) == "after"
    assert (consumer.name, consumer.receive(SHORT)) == (None, None)


def test_the_first_consumer_starts_the_connection_unless_it_must_not(context: jms.JMSContext) -> None:
    context.set_auto_start(False)
    consumer = context.create_consumer("orders")
    context.create_producer().send("orders", "x")
    assert not context.get_auto_start()
    assert consumer.receive(SHORT) is None

    context.start()
    context.start()

    assert consumer.receive_body(str, LONG) == "x"


def test_nothing_is_handed_out_while_it_is_stopped_and_sending_goes_on(context: jms.JMSContext) -> None:
    consumer = context.create_consumer("orders")
    waiting = InThread(lambda: consumer.receive(LONG))
    context.stop()
    context.stop()
    context.create_producer().send("orders", "x")
    assert consumer.get_message_listener() is None
    assert waiting.is_waiting

    context.start()

    assert waiting.result().get_text() == "x"


def test_the_time_of_receive_runs_on_while_it_is_stopped(context: jms.JMSContext) -> None:
    consumer = context.create_consumer("orders")
    context.stop()

    assert consumer.receive(SHORT) is None
    assert consumer.receive_no_wait() is None


def test_stop_waits_for_a_listener_that_runs(context: jms.JMSContext) -> None:
    running, may_return, got = Event(), Event(), []

    def listen(message: jms.Message) -> None:
        got.append(message.get_body(str))
        running.set()
        assert may_return.wait(LONG / 1000)

    context.create_consumer("orders").set_message_listener(listen)
    context.create_producer().send("orders", "1").send("orders", "2")
    assert running.wait(LONG / 1000)
    stopping = InThread(context.stop)
    until(lambda: not context.gate.is_open)
    assert stopping.is_waiting
    may_return.set()

    assert stopping.result() is None
    assert got == ["1"]


def test_close_ends_what_waits_with_none_and_twice_is_no_error(factory: jms.ConnectionFactory) -> None:
    context = factory.create_context()
    consumer = context.create_consumer("orders")
    waiting = InThread(consumer.receive)
    until(lambda: consumer.is_busy_elsewhere)

    consumer.close()
    consumer.close()
    context.close()
    context.close()

    assert waiting.result() is None


def test_what_is_closed_is_used_no_more(factory: jms.ConnectionFactory) -> None:
    context = factory.create_context()
    consumer, producer = context.create_consumer("orders"), context.create_producer()
    producer.send("orders", "x")
    message = consumer.receive(LONG)
    assert message is not None
    consumer.close()
    with pytest.raises(jms.IllegalStateError, match="consumer is closed"):
        consumer.receive(SHORT)
    context.close()

    calls: list[Callable[[], object]] = [
        context.start,
        context.stop,
        context.acknowledge,
        message.acknowledge,
        context.recover,
        context.commit,
        context.create_producer,
        lambda: context.create_consumer("orders"),
        lambda: producer.send("orders", "y"),
        lambda: context.create_context(jms.AUTO_ACKNOWLEDGE),
    ]
    for call in calls:
        with pytest.raises(jms.IllegalStateError, match="closed"):
            call()


def test_contexts_of_one_connection_are_started_together_and_end_alone(context: jms.JMSContext) -> None:
    context.set_auto_start(False)
    other = context.create_context(jms.DUPS_OK_ACKNOWLEDGE)
    consumers = [context.create_consumer("orders"), other.create_consumer("orders")]
    assert other.get_client_id() == "desk-7"
    context.create_producer().send("orders", "x")

    assert [consumer.receive_body(str, LONG) for consumer in consumers] == ["x", "x"]
    other.close()
    context.create_producer().send("orders", "y")
    assert consumers[0].receive_body(str, LONG) == "y"


def test_a_client_id_is_set_once_and_first() -> None:
    with jms.ConnectionFactory("embedded:").create_context() as context:
        assert context.get_client_id() is None
        with pytest.raises(jms.InvalidClientIDError):
            context.set_client_id("")
        context.set_client_id("late")
        assert context.get_client_id() == "late"
        with pytest.raises(jms.IllegalStateError, match="already"):
            context.set_client_id("later")
        consumer = context.create_durable_consumer("orders", "audit")
        context.create_producer().send("orders", "x")
        assert consumer.receive_body(str, LONG) == "x"
    with jms.ConnectionFactory("embedded:").create_context() as context:
        context.create_producer()
        with pytest.raises(jms.IllegalStateError, match="before anything else"):
            context.set_client_id("too-late")
    with pytest.raises(jms.InvalidClientIDError):
        jms.ConnectionFactory("embedded:", client_id="a\nb")


def test_a_durable_subscription_needs_a_client_id() -> None:
    with jms.ConnectionFactory("embedded:").create_context() as context:
        for call in (lambda: context.create_durable_consumer("orders", "audit"), lambda: context.unsubscribe("audit")):
            with pytest.raises(jms.IllegalStateError, match="client id"):
                call()


def test_a_durable_subscription_has_one_consumer(tmp_path: Path) -> None:
    factory = jms.ConnectionFactory(f"embedded:{tmp_path / 'data'}", client_id="desk-7")
    with factory.create_context() as context, factory.create_context() as elsewhere:
        first = context.create_durable_consumer("orders", "audit")
        with context.create_context(jms.AUTO_ACKNOWLEDGE) as beside:
            for second in (context, elsewhere, beside):
                with pytest.raises(jms.IllegalStateError):
                    second.create_durable_consumer("orders", "audit")
        first.close()

        elsewhere.create_durable_consumer("orders", "audit")


def test_unsubscribe_wants_a_subscription_without_a_consumer(context: jms.JMSContext) -> None:
    consumer = context.create_durable_consumer("orders", "audit")
    with pytest.raises(jms.IllegalStateError, match="close it first"):
        context.unsubscribe("audit")
    consumer.close()
    context.unsubscribe("audit")

    with pytest.raises(jms.InvalidDestinationError):
        context.unsubscribe("audit")


def test_a_subscription_can_be_removed_although_a_message_is_not_acknowledged(factory: jms.ConnectionFactory) -> None:
    with factory.create_context(jms.CLIENT_ACKNOWLEDGE) as context:
        consumer = context.create_durable_consumer("orders", "audit")
        context.create_producer().send("orders", "1")
        assert consumer.receive(LONG) is not None
        consumer.close()

        context.unsubscribe("audit")

        with context.create_durable_consumer("orders", "audit") as anew:
            assert anew.receive(SHORT) is None


def test_what_the_reference_says_that_there_is_none_of() -> None:
    absent = ("shared", "temporary", "queue", "browser", "metadata")
    public = [name.lower() for kind in (jms, jms.JMSContext, jms.ConnectionFactory) for name in dir(kind)]

    assert [name for name in public if any(each in name.replace("_", "") for each in absent)] == []


def test_unsubscribe_elsewhere_ends_the_consumer(tmp_path: Path) -> None:
    factory = jms.ConnectionFactory(f"embedded:{tmp_path / 'data'}", client_id="desk-7")
    with factory.create_context() as context, factory.create_context() as elsewhere:
        consumer = context.create_durable_consumer("orders", "audit")
        elsewhere.unsubscribe("audit")

        with pytest.raises(jms.InvalidDestinationError):
            consumer.receive(LONG)


def test_names_and_ids_of_128_characters_are_accepted() -> None:
    name = "Az09_.-" * 18 + "ab"
    assert len(name) == 128

    with jms.ConnectionFactory("embedded:", client_id=name).create_context() as context:
        assert context.create_durable_consumer("orders", name).name == name


def test_no_selector_and_a_blank_one_are_the_same(context: jms.JMSContext) -> None:
    for selector in (None, "", " "):
        with context.create_durable_consumer("orders", "audit", selector) as consumer:
            assert consumer.get_message_selector() is None


def test_a_selector_that_is_no_text_is_refused_with_a_sentence(context: jms.JMSContext) -> None:
    with pytest.raises(jms.InvalidSelectorError, match="a selector is a str, not int"):
        context.create_consumer("orders", 5)  # type: ignore[arg-type]


def test_another_selector_or_topic_makes_the_subscription_anew(context: jms.JMSContext) -> None:
    for topic, selector, no_local in (("orders", None, False), ("orders", "a = 1", False), ("returns", "a = 1", False)):
        context.create_durable_consumer(topic, "audit", selector, no_local).close()
        context.create_producer().set_property("a", 1).send(topic, "kept")
    context.create_durable_consumer("returns", "audit", "a = 1", True).close()
    consumer = context.create_durable_consumer("returns", "audit", "a = 1")

    assert consumer.receive(SHORT) is None
    context.create_producer().set_property("a", 1).send("returns", "later")
    assert consumer.receive_body(str, LONG) == "later"


def test_no_local_leaves_out_what_the_same_client_sent(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 'data'}"
    with jms.ConnectionFactory(url, client_id="desk-7").create_context() as context:
        consumers = [context.create_durable_consumer("orders", "audit", no_local=True)]
        consumers.append(context.create_consumer("orders", no_local=True))
        context.create_producer().send("orders", "mine")
        with jms.ConnectionFactory(url, client_id="desk-8").create_context() as other:
            other.create_producer().send("orders", "another's")

        assert [consumer.receive_body(str, LONG) for consumer in consumers] == ["another's", "another's"]


def test_a_selector_decides_what_is_received(context: jms.JMSContext) -> None:
    consumer = context.create_consumer("orders", "amount > 100 AND JMSPriority > 5")
    producer = context.create_producer().set_priority(9)
    producer.set_property("amount", 5).send("orders", "small").set_property("amount", 500).send("orders", "large")

    assert consumer.receive_body(str, LONG) == "large"
    with pytest.raises(jms.InvalidSelectorError) as raised:
        context.create_consumer("orders", "amount >")
    assert raised.value.position == 8
    assert isinstance(raised.value, gapless.InvalidSelectorError)


def test_a_pattern_is_subscribed_to_and_not_sent_to(context: jms.JMSContext) -> None:
    consumer = context.create_consumer("orders.#")
    context.create_producer().send("orders.new", "x")
    message = consumer.receive(LONG)
    assert message is not None
    assert message.get_jms_destination() == context.create_topic("orders.new")
    for call in (lambda: context.create_producer().send("orders.#", "x"), lambda: context.create_consumer("a..b")):
        with pytest.raises(jms.InvalidDestinationError):
            call()


def test_modes(factory: jms.ConnectionFactory, context: jms.JMSContext) -> None:
    assert (context.get_session_mode(), context.get_transacted()) == (jms.AUTO_ACKNOWLEDGE, False)
    assert [int(mode) for mode in jms.SessionMode] == [0, 1, 2, 3]
    with pytest.raises(jms.JMSError, match="no session mode"):
        factory.create_context(7)


def test_a_session_without_transactions_commits_none(context: jms.JMSContext) -> None:
    for call in (context.commit, context.rollback):
        with pytest.raises(jms.IllegalStateError, match="SESSION_TRANSACTED"):
            call()


def test_acknowledge_and_recover_do_nothing_where_the_context_acknowledges(context: jms.JMSContext) -> None:
    consumer = context.create_durable_consumer("orders", "audit")
    context.create_producer().send("orders", "1").send("orders", "2")
    message = consumer.receive(LONG)
    assert message is not None
    message.acknowledge()
    context.acknowledge()
    context.recover()

    assert consumer.receive_body(str, LONG) == "2"


def test_only_a_client_acknowledged_message_is_done_with(factory: jms.ConnectionFactory) -> None:
    with factory.create_context(jms.CLIENT_ACKNOWLEDGE) as context:
        orders, returns = (context.create_durable_consumer(topic, topic) for topic in ("orders", "returns"))
        producer = context.create_producer()
        for text in "1234":
            producer.send("orders", text).send("returns", text)
        assert texts(orders, 2) == [("1", False, 1), ("2", False, 1)]
        assert texts(returns, 1) == [("1", False, 1)]
        message = orders.receive(LONG)
        assert message is not None
        message.acknowledge()  # and with it all that both have handed out
        assert texts(orders, 1) == [("4", False, 1)]
        assert texts(returns, 2) == [("2", False, 1), ("3", False, 1)]
        orders.close()
        returns.close()

        assert texts(context.create_durable_consumer("orders", "orders"), 1) == [("4", True, 2)]
        assert texts(context.create_durable_consumer("returns", "returns"), 2) == [("2", True, 2), ("3", True, 2)]


@pytest.mark.parametrize("name", ["audit", None])
def test_recover_hands_out_again_in_order_marked_and_counted(factory: jms.ConnectionFactory, name: str | None) -> None:
    with factory.create_context(jms.CLIENT_ACKNOWLEDGE) as context:
        consumer = context.create_durable_consumer("orders", name) if name else context.create_consumer("orders")
        producer = context.create_producer()
        for text in "12345":
            producer.send("orders", text)
        texts(consumer, 1)
        context.acknowledge()
        assert texts(consumer, 2) == [("2", False, 1), ("3", False, 1)]
        context.recover()
        assert texts(consumer, 3) == [("2", True, 2), ("3", True, 2), ("4", False, 1)]
        context.recover()
        assert texts(consumer, 4) == [("2", True, 3), ("3", True, 3), ("4", True, 2), ("5", False, 1)]
        context.acknowledge()
        context.recover()

        producer.send("orders", "6")
        assert texts(consumer, 1) == [("6", False, 1)]


def test_a_listener_may_recover_its_context(factory: jms.ConnectionFactory) -> None:
    got: SimpleQueue[tuple[str | None, int]] = SimpleQueue()
    with factory.create_context(jms.CLIENT_ACKNOWLEDGE) as context:

        def listen(message: jms.Message) -> None:
            got.put((message.get_body(str), message.get_int_property("JMSXDeliveryCount")))
            if message.get_body(str) == "2" and not message.get_jms_redelivered():
                context.recover()
            if message.get_body(str) == "3":
                message.acknowledge()

        consumer = context.create_durable_consumer("orders", "audit")
        for text in "1234":
            context.create_producer().send("orders", text)
        consumer.set_message_listener(listen)

        given = [got.get(timeout=LONG / 1000) for _ in range(6)]
        assert given == [("1", 1), ("2", 1), ("1", 2), ("2", 2), ("3", 1), ("4", 1)]


def test_a_listener_that_raises_without_auto_gets_the_next_message(factory: jms.ConnectionFactory) -> None:
    got: SimpleQueue[object] = SimpleQueue()
    with factory.create_context(jms.CLIENT_ACKNOWLEDGE) as context:

        def listen(message: jms.Message) -> None:
            got.put(message.get_body(str))
            raise LookupError("of the application")

        context.set_exception_listener(got.put)
        context.create_consumer("orders").set_message_listener(listen)
        context.create_producer().send("orders", "1").send("orders", "2")
        given = [got.get(timeout=LONG / 1000) for _ in range(4)]

    assert given[::2] == ["1", "2"]
    assert [type(error) for error in given[1::2]] == [LookupError, LookupError]


def test_what_was_not_delivered_is_not_acknowledged(factory: jms.ConnectionFactory) -> None:
    with factory.create_context(jms.CLIENT_ACKNOWLEDGE) as context:
        consumer = context.create_durable_consumer("orders", "audit")
        context.create_producer().send("orders", "1").send("orders", "2")
        texts(consumer, 1)
        with pytest.raises(jms.MessageFormatError):
            consumer.receive_body(bytes, LONG)
        context.acknowledge()
        consumer.close()

        assert texts(context.create_durable_consumer("orders", "audit"), 1)[0][0] == "2"


def test_what_waits_for_its_turn_is_not_acknowledged(factory: jms.ConnectionFactory) -> None:
    running, may_return = Event(), Event()
    with factory.create_context(jms.CLIENT_ACKNOWLEDGE) as context:

        def listen(message: jms.Message) -> None:
            running.set()
            assert may_return.wait(LONG / 1000)
            message.acknowledge()

        first, second = (context.create_durable_consumer(topic, topic) for topic in "ab")
        first.set_message_listener(listen)
        second.set_message_listener(print)
        producer = context.create_producer().send("a", "1")
        assert running.wait(LONG / 1000)
        producer.send("b", "2")
        closing = InThread(second.close)
        may_return.set()
        closing.result()
        first.close()
        with context.create_context(jms.AUTO_ACKNOWLEDGE) as other:
            assert texts(other.create_durable_consumer("b", "b"), 1)[0][0] == "2"


def test_the_exception_listener_hears_what_no_caller_does(
    context: jms.JMSContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: SimpleQueue[Exception] = SimpleQueue()
    logged: SimpleQueue[str] = SimpleQueue()
    for level in ("error", "exception"):
        monkeypatch.setattr(contexts.log, level, lambda text, *_, **__: logged.put(text))

    def listen(_: jms.Message) -> None:
        raise LookupError("of the application")

    context.create_consumer("orders").set_message_listener(listen)
    assert context.get_exception_listener() is None
    context.set_exception_listener(heard.put)
    context.create_producer().send("orders", "x")

    assert str(heard.get(timeout=LONG / 1000)) == "of the application"

    def careless(_: Exception) -> None:
        raise ValueError

    context.set_exception_listener(careless)
    context.create_producer().send("orders", "x")
    assert "the exception listener has raised" in logged.get(timeout=LONG / 1000)
    context.set_exception_listener(None)
    context.create_producer().send("orders", "x")
    assert "there is no exception listener" in logged.get(timeout=LONG / 1000)


def test_errors_have_their_names_in_jms() -> None:
    cases = [
        (gapless.InvalidTopicError("t"), jms.InvalidDestinationError),
        (gapless.SubscriptionNotFoundError("t"), jms.InvalidDestinationError),
        (gapless.SubscriptionInUseError("t"), jms.IllegalStateError),
        (gapless.InvalidMessageError("t"), jms.MessageFormatError),
        (gapless.AuthorizationError("t"), jms.JMSSecurityError),
        (gapless.ConnectionClosedError("t"), jms.JMSError),
        (gapless.InvalidSelectorError("t", "a >", 3), jms.InvalidSelectorError),
    ]
    for below, name in cases:
        error = errors.named(below)

        assert type(error) is name
        assert str(error) == str(below)
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
        assert errors.named(error) is error
    with pytest.raises(jms.JMSError, match="no broker answers"):
        jms.ConnectionFactory("gapless://127.0.0.1:1").create_context()


def test_the_error_of_a_close_has_the_error_below_as_its_cause(
    factory: jms.ConnectionFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tells a program whether what it had sent was refused, or may be logged."""
    context = factory.create_context()

    def close(_: object) -> None:
        raise gapless.PublishUncertainError("closed before the answer")

    monkeypatch.setattr(gapless.sync.Session, "close", close)
    with pytest.raises(jms.JMSError) as raised:
        context.close()

    assert type(raised.value.__cause__) is gapless.PublishUncertainError


@pytest.mark.parametrize("name", [None, "", "a\ud800", 5])
def test_a_durable_subscription_has_a_name(context: jms.JMSContext, name: Any) -> None:
    """Otherwise it would be none: what is sent while it has no consumer would be lost."""
    with pytest.raises(jms.JMSError, match="the name of a durable subscription"):
        context.create_durable_consumer("orders", name)
    with pytest.raises(jms.JMSError, match="the name of a durable subscription"):
        context.unsubscribe(name)


@pytest.mark.parametrize("client_id", [None, "", "a\ud800"])
def test_a_client_id_that_is_set_is_one(client_id: Any) -> None:
    with jms.ConnectionFactory("embedded:").create_context() as context:
        with pytest.raises(jms.InvalidClientIDError):
            context.set_client_id(client_id)
        context.set_client_id("desk-8")

        assert context.get_client_id() == "desk-8"


def test_what_cannot_be_written_has_its_error_in_jms_and_the_connection_goes_on(context: jms.JMSContext) -> None:
    producer, half = context.create_producer(), "a\ud800"
    with context.create_consumer("orders") as consumer:
        for call, error in (
            (lambda: context.create_consumer("orders", f"a = '{half}'"), jms.InvalidSelectorError),
            (lambda: context.create_consumer(half), jms.InvalidDestinationError),
            (lambda: context.create_topic(half), jms.InvalidDestinationError),
            (lambda: producer.send(half, "x"), jms.InvalidDestinationError),
            (lambda: producer.send("orders", half), jms.MessageFormatError),
            (lambda: producer.send("orders", {"a": half}), jms.MessageFormatError),
            (lambda: producer.set_property("a", half), jms.MessageFormatError),
            (lambda: producer.set_jms_type(half), jms.MessageFormatError),
            (lambda: jms.ConnectionFactory("embedded:", client_id=half), jms.InvalidClientIDError),
            (lambda: jms.ConnectionFactory(f"gapless://{half}").create_context(), jms.JMSError),
        ):
            with pytest.raises(error):
                call()
        producer.send("orders", "still")

        received = consumer.receive(LONG)
        assert isinstance(received, jms.TextMessage)
        assert received.get_text() == "still"


def test_a_blank_in_a_selector_is_no_change(context: jms.JMSContext) -> None:
    """It does not make the subscription anew: what it has kept is not lost."""
    context.create_durable_consumer("orders", "audit", "a=1 and b is null").close()
    context.create_producer().set_property("a", 1).send("orders", "kept")

    with context.create_durable_consumer("orders", "audit", " a = 1  AND b IS NULL ") as consumer:
        received = consumer.receive(LONG)

    assert isinstance(received, jms.TextMessage)
    assert received.get_text() == "kept"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"user": "ann"}, "the password is empty"),
        ({"password": "S3CRET"}, "the name of a user is empty"),
        ({"user": "a\nb", "password": "S3CRET"}, "the name of a user holds characters"),
    ],
)
def test_a_user_and_a_password_come_together(given: dict[str, str], problem: str) -> None:
    with pytest.raises(jms.JMSError, match=problem) as error:
        jms.ConnectionFactory("embedded:", **given)

    assert "S3CRET" not in str(error.value)


def test_a_factory_shows_no_password() -> None:
    factory = jms.ConnectionFactory("embedded:", user="ann", password="S3CRET")

    assert "S3CRET" not in repr(factory) + repr(vars(factory))
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(factory)


def test_a_broker_that_does_not_take_them_is_a_security_matter() -> None:
    factory = jms.ConnectionFactory("embedded:", user="ann", password="S3CRET")

    with pytest.raises(jms.JMSSecurityError, match="this broker takes clients without credentials"):
        factory.create_context()
