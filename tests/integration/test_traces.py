"""A trace goes through a broker, from one process to another, and again when an event comes again."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import gapless
from gapless import Message, jms, tracing
from integration.broker_process import BrokerProcess, bounded
from integration.nodes_in_process import running_node
from spans import Spans, linked, number_of, parent_of, trace_of

SENDER = (
    "import sys, gapless\n"
    "from opentelemetry import trace\n"
    "from opentelemetry.sdk.trace import TracerProvider\n"
    "trace.set_tracer_provider(TracerProvider())\n"
    "with gapless.sync.connect(sys.argv[1]) as connection, connection.session() as session:\n"
    "    publisher = session.publisher('t')\n"
    "    with trace.get_tracer('app').start_as_current_span('order') as span:\n"
    "        publisher.send(b'1')\n"
    "        publisher.send_batch([gapless.Message(b'2'), gapless.Message(b'3')])\n"
    "        print(span.get_span_context().trace_id)\n"
)


async def test_one_trace_over_two_processes_and_a_broker_that_is_killed(tmp_path: Path) -> None:
    async with BrokerProcess(tmp_path) as broker:
        async with gapless.connect(broker.url) as connection, connection.session() as session:
            async with session.subscribe("t", name="all"):
                pass
            sender = await asyncio.create_subprocess_exec(
                sys.executable, "-c", SENDER, broker.url, stdout=asyncio.subprocess.PIPE, env=os.environ
            )
            number = int((await bounded(sender.communicate()))[0])
            seen: list[set[int]] = []
            for attempt in range(2):  # and once more after the broker was killed: nothing was acknowledged
                spans = Spans()
                if attempt:
                    await broker.restart()
                async with session.subscribe("t", name="all") as subscription:
                    for _ in range(3):
                        with tracing.process(await bounded(anext(subscription))):
                            pass
                seen.append({trace_of(span) for span in spans.of("process")})
                assert all(linked(span) for span in [*spans.of("process"), *spans.of("receive")])

    assert seen == [{number}] * 2


async def test_sent_received_and_processed_here() -> None:
    spans = Spans()
    async with running_node() as node, gapless.connect(node.url) as connection, connection.session() as session:
        async with session.subscribe("t", name="all") as subscription:
            publisher = session.publisher("t")
            await publisher.send(b"without")
            with spans.tracer.start_as_current_span("work"):
                await publisher.send(b"1", {"a": 1})
                await publisher.send_batch([Message(b"2"), Message(b"3")])
            events = [await bounded(anext(subscription)) for _ in range(4)]

    one, batch = spans.of("send t")
    assert "traceparent" not in events[0].properties
    assert events[1].properties["a"] == 1
    assert [event.properties["traceparent"] for event in events[2:]] == [
        f"00-{trace_of(batch):032x}-{number_of(batch):016x}-{flags_of(events[2])}"
    ] * 2
    assert parent_of(one) == parent_of(batch) == number_of(spans.one("work"))
    assert {number for span in spans.of("receive") for number in linked(span)} == {number_of(one), number_of(batch)}


def flags_of(event: gapless.Event) -> str:
    return str(event.properties["traceparent"])[-2:]


async def test_jms_carries_the_active_span() -> None:
    spans = Spans()
    async with running_node() as node, gapless.connect(node.url) as connection, connection.session() as session:
        async with session.subscribe("t", name="all") as subscription:

            def send() -> None:
                with jms.ConnectionFactory(node.url).create_context() as context:
                    with spans.tracer.start_as_current_span("work"):
                        context.create_producer().send(context.create_topic("t"), "x")

            await asyncio.to_thread(send)
            event = await bounded(anext(subscription))

    assert f"{trace_of(spans.one('work')):032x}" in str(event.properties["traceparent"])


async def test_a_selector_may_ask_for_it() -> None:
    spans = Spans()
    async with running_node() as node, gapless.connect(node.url) as connection, connection.session() as session:
        async with session.subscribe("t", name="traced", selector="traceparent IS NOT NULL") as subscription:
            publisher = session.publisher("t")
            await publisher.send(b"no")
            with spans.tracer.start_as_current_span("work"):
                await publisher.send(b"yes")
            assert (await bounded(anext(subscription))).body == b"yes"
