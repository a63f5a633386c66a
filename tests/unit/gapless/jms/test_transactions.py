"""SESSION_TRANSACTED: what is received and sent between two commits takes effect together."""

from __future__ import annotations

from collections.abc import Iterator
from queue import SimpleQueue

import pytest

from gapless import jms
from unit.gapless.jms.conftest import LONG, SHORT, texts


@pytest.fixture
def transacted(context: jms.JMSContext) -> Iterator[jms.JMSContext]:
    """A context with transactions, beside one without."""
    with context.create_context(jms.SESSION_TRANSACTED) as transacted:
        yield transacted


def test_what_is_sent_is_there_after_the_commit(context: jms.JMSContext, transacted: jms.JMSContext) -> None:
    reader = context.create_durable_consumer("out", "reader")
    message = transacted.create_text_message("1")
    transacted.create_producer().send("out", message).send("out", "2")
    assert transacted.get_transacted()
    assert reader.receive(SHORT) is None
    assert message.get_jms_message_id() is None
    transacted.commit()

    first = reader.receive(LONG)
    assert first is not None
    assert first.get_jms_message_id() == message.get_jms_message_id()
    assert reader.receive_body(str, LONG) == "2"


def test_what_is_committed_does_not_come_again(context: jms.JMSContext, transacted: jms.JMSContext) -> None:
    consumer = transacted.create_durable_consumer("in", "work")
    context.create_producer().send("in", "1").send("in", "2").send("in", "3")
    assert texts(consumer, 2) == [("1", False, 1), ("2", False, 1)]
    transacted.create_producer().send("out", "1+2")
    transacted.commit()
    assert texts(consumer, 1) == [("3", False, 1)]
    transacted.close()

    again = context.create_durable_consumer("in", "work")
    assert [text for text, *_ in texts(again, 1)] == ["3"]


def test_what_is_rolled_back_comes_again_marked_and_was_never_sent(
    context: jms.JMSContext, transacted: jms.JMSContext
) -> None:
    reader = context.create_durable_consumer("out", "reader")
    consumer = transacted.create_durable_consumer("in", "work")
    context.create_producer().send("in", "1").send("in", "2")
    assert texts(consumer, 2) == [("1", False, 1), ("2", False, 1)]
    transacted.create_producer().send("out", "never")
    transacted.rollback()
    assert texts(consumer, 2) == [("1", True, 2), ("2", True, 2)]
    transacted.create_producer().send("out", "once")
    transacted.commit()

    assert reader.receive_body(str, LONG) == "once"
    assert reader.receive(SHORT) is None


def test_two_subscriptions_and_an_output_are_one_transaction(
    context: jms.JMSContext, transacted: jms.JMSContext
) -> None:
    one, two = (transacted.create_durable_consumer(name, name) for name in ("one", "two"))
    context.create_producer().send("one", "a").send("two", "b")
    assert (one.receive_body(str, LONG), two.receive_body(str, LONG)) == ("a", "b")
    transacted.commit()
    context.create_producer().send("one", "c").send("two", "d")
    assert (one.receive_body(str, LONG), two.receive_body(str, LONG)) == ("c", "d")
    transacted.rollback()

    assert (one.receive_body(str, LONG), two.receive_body(str, LONG)) == ("c", "d")


def test_closing_rolls_back(context: jms.JMSContext) -> None:
    reader = context.create_durable_consumer("out", "reader")
    with context.create_context(jms.SESSION_TRANSACTED) as transacted:
        consumer = transacted.create_durable_consumer("in", "work")
        context.create_producer().send("in", "1")
        assert consumer.receive_body(str, LONG) == "1"
        transacted.create_producer().send("out", "never")

    assert reader.receive(SHORT) is None
    assert texts(context.create_durable_consumer("in", "work"), 1)[0][:2] == ("1", True)


def test_a_listener_commits_its_context(context: jms.JMSContext, transacted: jms.JMSContext) -> None:
    got: SimpleQueue[str | None] = SimpleQueue()

    def listen(message: jms.Message) -> None:
        text = message.get_body(str)
        transacted.create_producer().send("out", f"{text}!")
        transacted.commit()
        got.put(text)

    reader = context.create_durable_consumer("out", "reader")
    transacted.create_durable_consumer("in", "work").set_message_listener(listen)
    context.create_producer().send("in", "a").send("in", "b")

    assert [got.get(timeout=LONG / 1000) for _ in range(2)] == ["a", "b"]
    assert [reader.receive_body(str, LONG) for _ in range(2)] == ["a!", "b!"]


def test_what_does_not_fit_into_transactions_is_refused(transacted: jms.JMSContext) -> None:
    class Listener:
        def on_completion(self, message: jms.Message) -> None: ...
        def on_exception(self, message: jms.Message, exception: Exception) -> None: ...

    with pytest.raises(jms.JMSError, match="nothing to listen for"):
        transacted.create_producer().set_async(Listener()).send("out", "1")
    with pytest.raises(jms.IllegalStateError, match="rolled back, not recovered"):
        transacted.recover()
