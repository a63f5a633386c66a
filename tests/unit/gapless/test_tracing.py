"""Spans for what is sent, received and processed, and what is done without OpenTelemetry: nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from gapless import Event, Message, tracing
from spans import Spans, linked, number_of, parent_of, trace_of


@pytest.fixture
def spans() -> Spans:
    return Spans()


def events_of(*messages: Message) -> list[Event]:
    """The messages, as they arrive."""
    return [event(number, message.properties) for number, message in enumerate(messages)]


def event(number: int, properties: Mapping[str, Any]) -> Event:
    present = {name: value for name, value in properties.items() if value is not None}
    return Event(topic="t", properties=present, extras=None, body=b"", pubend="p@1", tick=number)


def test_without_a_span_a_message_stays_as_it_is(spans: Spans) -> None:
    message = Message(b"", {"a": 1})

    with tracing.sending([message], "t") as [sent]:
        assert sent is message
    assert tracing.carrying(message) is message
    assert spans.of("") == []


def test_what_is_sent_bears_the_span_that_sends_it(spans: Spans) -> None:
    with spans.tracer.start_as_current_span("work"), tracing.sending([Message(b"", {"a": 1})], "flights") as [sent]:
        pass

    work, span = spans.one("work"), spans.one("send")
    assert span.name == "send flights"
    assert span.kind.name == "PRODUCER"
    assert (parent_of(span), trace_of(span)) == (number_of(work), trace_of(work))
    assert sent.properties["a"] == 1
    assert str(sent.properties["traceparent"]).startswith(f"00-{trace_of(span):032x}-{number_of(span):016x}-")
    assert dict(span.attributes or {}) == {
        "messaging.system": "gapless",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "flights",
    }


def test_a_batch_is_one_span_with_links_to_at_most_64(spans: Spans) -> None:
    with spans.tracer.start_as_current_span("work"):
        forwarded = [Message(b"", {"traceparent": f"00-{1:032x}-{number + 1:016x}-01"}) for number in range(100)]
        with tracing.sending([Message(b""), *forwarded], "t") as sent:
            pass

    span = spans.one("send")
    assert (span.attributes or {})["messaging.batch.message_count"] == 101
    assert linked(span) == set(range(1, 64)), "the first 64, one of which came from nowhere"
    assert [message.properties for message in sent[1:]] == [message.properties for message in forwarded]
    assert f"{number_of(span):016x}" in str(sent[0].properties["traceparent"])


def test_an_error_is_recorded(spans: Spans) -> None:
    with pytest.raises(KeyError), spans.tracer.start_as_current_span("work"), tracing.sending([Message(b"")], "t"):
        raise KeyError("x")

    assert [event.name for event in spans.one("send").events] == ["exception"]


def test_what_is_no_message_is_left_to_whoever_checks_it(spans: Spans) -> None:
    wrong: Any = [3, Message(b"", 7)]  # type: ignore[arg-type]
    with spans.tracer.start_as_current_span("work"), tracing.sending(wrong, "t") as sent:
        assert sent == wrong


def test_one_event_continues_its_trace(spans: Spans) -> None:
    with spans.tracer.start_as_current_span("work"), tracing.sending([Message(b"")], "t") as messages:
        pass
    [arrived] = events_of(*messages)
    tracing.received([arrived], "all")
    with tracing.process(arrived) as current:
        assert current is not None
        with spans.tracer.start_as_current_span("inner"):
            pass

    sender, receiver, processor = spans.one("send"), spans.one("receive"), spans.one("process")
    assert {trace_of(span) for span in spans.of("")} == {trace_of(sender)}
    assert parent_of(receiver) == parent_of(processor) == number_of(sender)
    assert linked(receiver) == linked(processor) == {number_of(sender)}
    assert parent_of(spans.one("inner")) == number_of(processor)
    assert receiver.kind.name == processor.kind.name == "CONSUMER"
    assert (receiver.attributes or {})["messaging.destination.subscription.name"] == "all"
    assert (processor.attributes or {})["messaging.message.id"] == "ID:p@1:0"


def test_where_a_span_is_active_it_is_the_parent_and_the_sender_is_linked(spans: Spans) -> None:
    with spans.tracer.start_as_current_span("work"), tracing.sending([Message(b"")], "t") as messages:
        pass
    with spans.tracer.start_as_current_span("loop"), tracing.process(events_of(*messages)[0]):
        pass

    assert parent_of(spans.one("process")) == number_of(spans.one("loop"))
    assert linked(spans.one("process")) == {number_of(spans.one("send"))}


def test_several_events_are_one_span_with_links(spans: Spans) -> None:
    properties = [{"traceparent": f"00-{1:032x}-{number + 1:016x}-01", "tracestate": "a=b"} for number in range(100)]
    batch = [event(number, each) for number, each in enumerate(properties)]
    tracing.received(batch, None)
    with tracing.process(batch):
        pass

    for name in ("receive", "process"):
        span = spans.one(name)
        assert linked(span) == set(range(1, 65))
        assert parent_of(span) == 0
        assert (span.attributes or {})["messaging.batch.message_count"] == 100
        assert span.links[0].context.trace_state.get("a") == "b"


@pytest.mark.parametrize("traceparent", ["", "x", 7, "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "ff" * 100, True])
def test_a_property_that_is_no_context_is_no_link(spans: Spans, traceparent: object) -> None:
    arrived = event(1, {"traceparent": traceparent, "tracestate": 7})
    tracing.received([arrived], "all")
    with tracing.process(arrived):
        pass

    assert spans.of("receive") == []
    assert linked(spans.one("process")) == set()


def test_events_without_a_context_are_received_without_a_span(spans: Spans) -> None:
    tracing.received([event(1, {})], "all")

    assert spans.of("") == []


def test_without_opentelemetry_nothing_happens() -> None:
    """Nor is it imported by gapless where it is installed, and the application does not use it."""
    program = (
        "import gapless\nfrom gapless import tracing\n"
        "assert 'opentelemetry' not in {n for n, m in sys.modules.items() if m}\n"
        "message = gapless.Message(b'')\n"
        "with tracing.sending([message], 't') as [sent]: assert sent is message\n"
        "event = gapless.Event(topic='t', properties={'traceparent': 'x'}, extras=None, body=b'', pubend='p', tick=1)\n"
        "tracing.received([event], 'all')\n"
        "with tracing.process(event) as span: assert span is None\n"
        "assert tracing.carrying(message) is message\n"
    )
    for begin in ("import sys\n", "import sys\nsys.modules['opentelemetry'] = None\n"):
        subprocess.run([sys.executable, "-c", begin + program], check=True, timeout=50, env=os.environ)
