"""A trace goes through a broker, from one process to another, and again when an event comes again."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from typing_extensions import Never

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


async def arriving(subscription: gapless.Subscription[gapless.Event, Never], count: int) -> set[str]:
    """The contexts of the next events, without the flags; "" of one that has none."""
    return {str((await bounded(anext(subscription))).properties.get("traceparent", ""))[:-3] for _ in range(count)}


def context_of(span: ReadableSpan) -> str:
    return f"00-{trace_of(span):032x}-{number_of(span):016x}"


def events_in(span: ReadableSpan) -> int:
    """How many events it is of."""
    count = (span.attributes or {}).get("messaging.batch.message_count", 1)
    assert isinstance(count, int)
    return count


@pytest.mark.parametrize("kind", ["a sequence", "an async generator", "blocking"])
async def test_send_all_makes_a_span_of_each_batch(kind: str) -> None:
    spans = Spans()
    count = 700
    messages = [Message(str(number).encode()) for number in range(count)]

    async def source() -> AsyncIterator[Message]:
        for message in messages:
            yield message

    def blocking(url: str) -> None:
        with gapless.sync.connect(url) as connection, connection.session() as session:
            with spans.tracer.start_as_current_span("work"):
                assert len(list(session.publisher("t").send_all(messages))) == count

    async with running_node() as node, gapless.connect(node.url) as connection, connection.session() as session:
        async with session.subscribe("t", name="all") as subscription:
            if kind == "blocking":
                await asyncio.to_thread(blocking, node.url)
            else:
                with spans.tracer.start_as_current_span("work"):
                    given = source() if kind == "an async generator" else messages
                    assert len([each async for each in session.publisher("t").send_all(given)]) == count
            arrived = await arriving(subscription, count)

    sent = spans.of("send t")
    assert 2 <= len(sent) < 60
    assert arrived == set(map(context_of, sent))
    assert {parent_of(span) for span in sent} == {number_of(spans.one("work"))}
    assert sum(map(events_in, sent)) == count


@pytest.mark.parametrize("blocking", [False, True])
async def test_a_span_of_send_all_says_what_was_wrong(*, blocking: bool) -> None:
    spans = Spans()
    messages = [Message(b"right"), Message(b"wrong", topic="a.*")]

    def work(url: str) -> None:
        with gapless.sync.connect(url) as connection, connection.session() as session:
            with spans.tracer.start_as_current_span("work"), pytest.raises(gapless.InvalidTopicError):
                list(session.publisher("t").send_all(messages))

    async with running_node() as node, gapless.connect(node.url) as connection, connection.session() as session:
        if blocking:
            await asyncio.to_thread(work, node.url)
        else:
            with spans.tracer.start_as_current_span("work"), pytest.raises(gapless.InvalidTopicError):
                [each async for each in session.publisher("t").send_all(messages)]

    span = spans.one("send t")
    assert [event.name for event in span.events] == ["exception"]
    assert span.status.status_code.name == "ERROR"


async def test_who_leaves_a_blocking_send_all_ends_its_spans() -> None:
    spans = Spans()

    def work(url: str) -> None:
        with gapless.sync.connect(url) as connection, connection.session() as session:
            with spans.tracer.start_as_current_span("work"):
                receipts = session.publisher("t").send_all(Message(b"x") for _ in range(10_000))
                next(receipts)
            receipts.close()  # type: ignore[attr-defined]  # it is a generator
            left.append(len(spans.of("send t")))

    left: list[int] = []
    async with running_node() as node, gapless.connect(node.url) as connection, connection.session() as session:
        await asyncio.to_thread(work, node.url)
        async with session.subscribe("t", name="all", start="earliest") as subscription:
            contexts = await arriving(subscription, 17)

    assert left[0] >= 2
    assert {context_of(span) for span in spans.of("send t")[: left[0]]} >= contexts


async def test_who_leaves_send_all_ends_its_spans() -> None:
    spans = Spans()
    async with running_node() as node, gapless.connect(node.url) as connection, connection.session() as session:
        with spans.tracer.start_as_current_span("work"):
            receipts = session.publisher("t").send_all(Message(b"x") for _ in range(10_000))
            async for _ in receipts:
                break
            await receipts.aclose()
        left = len(spans.of("send t"))

        assert left >= 2
        async with session.subscribe("t", name="all", start="earliest") as subscription:
            assert len(await arriving(subscription, 17)) >= 2


@pytest.mark.parametrize("blocking", [False, True])
async def test_a_transform_carries_the_span_that_publishes(*, blocking: bool) -> None:
    spans = Spans()

    def work(url: str) -> None:
        with gapless.sync.connect(url) as connection, connection.session() as session:
            with session.transform("in", to="out", name="work", start="earliest") as transform:
                batch = next(transform)
                with tracing.process(batch):
                    batch.publish([Message(event.body) for event in batch])

    async with running_node() as node, gapless.connect(node.url) as connection, connection.session() as session:
        async with session.subscribe("out", name="all") as subscription:
            with spans.tracer.start_as_current_span("work"):
                await session.publisher("in").send_batch([Message(b"1"), Message(b"2")])
            if blocking:
                await asyncio.to_thread(work, node.url)
            else:
                async with session.transform("in", to="out", name="work", start="earliest") as transform:
                    batch = await anext(transform)
                    with tracing.process(batch):
                        await batch.publish([Message(event.body) for event in batch])
            arrived = await arriving(subscription, 2)

    process, sent = spans.one("process in"), spans.one("send out")
    assert linked(process) == {number_of(spans.one("send in"))}
    assert parent_of(sent) == number_of(process)
    assert arrived == {context_of(sent)}
    assert (sent.end_time or 0) >= (process.start_time or 0)


async def test_a_span_of_a_transform_ends_with_it_whatever_happens() -> None:
    spans = Spans()
    async with running_node() as node, gapless.connect(node.url) as connection, connection.session() as session:
        await session.publisher("in").send_batch([Message(b"1"), Message(b"2")])
        transform = await session.transform("in", to="out", name="work", start="earliest")
        with spans.tracer.start_as_current_span("work"):
            batch = await anext(transform)
            with pytest.raises(gapless.InvalidMessageError):
                await batch.publish([Message(bytes(1 << 20)) for _ in range(5)])
            await batch.publish([Message(b"fits")])
            transform.abandon()  # without its receipt

    wrong, left = spans.of("send out")
    errors = [(event.attributes or {})["exception.type"] for span in (wrong, left) for event in span.events]
    assert errors == ["gapless.errors.InvalidMessageError", "gapless.errors.PublishUncertainError"]


@pytest.mark.parametrize("where", ["send", "commit", "both"])
async def test_a_transaction_makes_one_span_of_what_it_sends(where: str) -> None:
    spans = Spans()

    def work(url: str) -> None:
        with jms.ConnectionFactory(url).create_context(jms.SESSION_TRANSACTED) as context:
            producer, topic = context.create_producer(), context.create_topic("t")
            with spans.tracer.start_as_current_span("sending") if where != "commit" else nullcontext():
                producer.send(topic, "1")
                producer.send(topic, "2")
            with spans.tracer.start_as_current_span("committing") if where != "send" else nullcontext():
                context.commit()
            producer.send(topic, "3")
            context.rollback()
            producer.send(topic, "4")
            context.commit()

    async with running_node() as node, gapless.connect(node.url) as connection, connection.session() as session:
        async with session.subscribe("t", name="all") as subscription:
            await asyncio.to_thread(work, node.url)
            arrived = [await arriving(subscription, count) for count in (2, 1)]

    sent = spans.one("send t")
    assert parent_of(sent) == number_of(spans.one("sending" if where == "send" else "committing"))
    assert linked(sent) == ({number_of(spans.one("sending"))} if where == "both" else set())
    assert arrived == [{context_of(sent)}, {""}]
    assert events_in(sent) == 2


async def test_a_transaction_without_a_thread_of_its_own() -> None:
    spans = Spans()
    async with running_node() as node, gapless.connect(node.url) as connection:
        async with (
            connection.session(ack_mode=gapless.AckMode.CLIENT) as session,
            connection.session() as other,
            other.subscribe("t", name="all") as subscription,
        ):
            transactions = session.transactions()
            with spans.tracer.start_as_current_span("work"):
                transactions.send(Message(b"1", topic="t"))
                await transactions.commit()
            arrived = await arriving(subscription, 1)

    assert arrived == {context_of(spans.one("send t"))}
    assert linked(spans.one("send t")) == set()
