"""JMS-style programs against a broker in a process of its own, which is killed and comes back."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from queue import SimpleQueue

import pytest

import gapless
from gapless import jms
from integration.broker_process import BrokerProcess, bounded

PATIENCE = 30
"""Seconds."""


def received(consumer: jms.JMSConsumer, count: int) -> list[tuple[str | None, int]]:
    """The text and the count of so many messages."""
    got = []
    for _ in range(count):
        message = consumer.receive(PATIENCE * 1000)
        assert message is not None
        got.append((message.get_body(str), message.get_int_property("JMSXDeliveryCount")))
    return got


class Heard:
    """A completion listener that keeps what it is told."""

    def __init__(self) -> None:
        self.told: SimpleQueue[str | None] = SimpleQueue()

    def on_completion(self, message: jms.Message) -> None:
        self.told.put(message.get_body(str))

    def on_exception(self, message: jms.Message, exception: gapless.GaplessError) -> None:
        self.told.put(f"{message.get_body(str)}: {exception}")


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
async def test_a_context_outlives_its_broker(tmp_path: Path) -> None:
    async with BrokerProcess(tmp_path / "broker") as broker:
        factory = jms.ConnectionFactory(broker.url, client_id="desk-7")
        context = await asyncio.to_thread(factory.create_context, jms.CLIENT_ACKNOWLEDGE)
        heard, producer = Heard(), context.create_producer()

        def before() -> jms.JMSConsumer:
            consumer = context.create_durable_consumer("orders", "audit")
            for text in "12345":
                producer.send("orders", text)
            assert received(consumer, 2) == [("1", 1), ("2", 1)]
            context.acknowledge()
            assert received(consumer, 2) == [("3", 1), ("4", 1)]
            return consumer

        consumer = await asyncio.to_thread(before)
        await broker.kill()
        for text in "678":  # nobody is there to take them
            producer.set_async(heard).send("orders", text)
        acknowledging = asyncio.ensure_future(asyncio.to_thread(context.acknowledge))
        await broker.restart()
        await bounded(acknowledging, PATIENCE)

        def after() -> None:
            assert [heard.told.get(timeout=PATIENCE) for _ in range(3)] == ["6", "7", "8"]
            assert received(consumer, 2) == [("5", 1), ("6", 1)]
            context.recover()
            assert received(consumer, 3) == [("5", 2), ("6", 2), ("7", 1)]
            context.close()

        await bounded(asyncio.to_thread(after), PATIENCE)

        def again() -> None:
            with factory.create_context() as another:
                assert received(another.create_durable_consumer("orders", "audit"), 1) == [("5", 3)]

        await bounded(asyncio.to_thread(again), PATIENCE)


async def test_listeners_of_two_programs_share_a_topic_with_plain_ones(tmp_path: Path) -> None:
    async with BrokerProcess(tmp_path / "broker") as broker:

        def run() -> None:
            got: SimpleQueue[object] = SimpleQueue()
            factory = jms.ConnectionFactory(broker.url)
            with factory.create_context() as one, factory.create_context(jms.DUPS_OK_ACKNOWLEDGE) as two:
                for context in (one, two):
                    context.create_consumer("orders", no_local=True).set_message_listener(
                        lambda message: got.put(message.get_body(object))
                    )
                one.create_producer().send("orders", {"n": 1})
                with gapless.sync.connect(broker.url) as connection, connection.session() as session:
                    assert got.get(timeout=PATIENCE) == {"n": 1}
                    session.publisher("orders").send(b"plain")
                assert [got.get(timeout=PATIENCE) for _ in range(2)] == [b"plain", b"plain"]
                assert got.empty()

        await bounded(asyncio.to_thread(run), PATIENCE)
