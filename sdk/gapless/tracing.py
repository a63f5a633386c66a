"""Traces across a broker, by OpenTelemetry's API: from the span that sends an event to those that process it.

Where a span is active, whatever sends makes one that sends, of each batch, whose context goes with each event as the
properties `traceparent` and `tracestate` (W3C Trace Context). A delivery of such events makes a span that receives;
`process` makes one for what the application does with them:

    async for event in subscription:
        with gapless.tracing.process(event):
            ...

For brokers the properties are as any others; a broker may make spans of its own work (`gapless.observe.spans`). Where
OpenTelemetry is not installed (`gapless[otel]`), or the application does not use it, nothing of this happens, and a
check of a module is all that it costs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from gapless.core.stream.events import Event

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanContext, Tracer

MessageT = TypeVar("MessageT", bound=Struct)

LINKS_MAX: Final = 64
"""Of so many events of a batch, at most, a span is linked to where they come from."""
TRACEPARENT: Final = "traceparent"
FIELDS: Final = (TRACEPARENT, "tracestate")
_IS_INSTALLED: Final = find_spec("opentelemetry") is not None


def is_used() -> bool:
    """Whether this application uses OpenTelemetry: nothing else imports it, so without that no span is active."""
    return _IS_INSTALLED and "opentelemetry.trace" in sys.modules


def is_active() -> bool:
    """Whether a span is active, here and now."""
    if not is_used():
        return False
    from opentelemetry import trace

    return trace.get_current_span().get_span_context().is_valid


def carrying(message: MessageT) -> MessageT:
    """Returns a message with the context of the active span, or as it is if there is none.

    One that has such a property already keeps it.
    """
    return _with_context([message])[0] if is_active() else message


def current() -> Context | None:
    """The context of the active span, for work that goes on elsewhere; None: no span is active."""
    if not is_active():
        return None
    from opentelemetry.context import get_current

    return get_current()


@contextmanager
def sending(
    messages: Sequence[MessageT], topic: str | None, parent: Context | None = None, senders: Iterable[Context] = ()
) -> Iterator[list[MessageT]]:
    """Within, a span that sends these messages is active, if one was before. Yields the messages with its context.

    `parent`: of this context instead of the active one. `senders`: where the messages come from; it is linked to those.
    """
    if not messages or (parent is None and not is_active()):
        yield list(messages)
        return
    from opentelemetry import trace

    with trace.use_span(_start_sending(messages, topic, parent, senders), end_on_exit=True):
        yield _with_context(messages)


class Sending(Generic[MessageT]):
    """Messages that nobody waits for here, and the span that sends them, if one was active; until they are answered."""

    __slots__ = ("_span", "messages")

    def __init__(self, messages: Sequence[MessageT], topic: str | None) -> None:
        self.messages = messages
        """With the context of the span."""
        self._span: Span | None = None
        if messages and is_active():
            from opentelemetry import trace

            self._span = _start_sending(messages, topic)
            with trace.use_span(self._span):
                self.messages = _with_context(messages)

    @property
    def is_traced(self) -> bool:
        """Whether there is a span, which has to be ended."""
        return self._span is not None

    def end(self, error: BaseException | None = None) -> None:
        """They are answered, or nobody will hear of it. Idempotent."""
        span, self._span = self._span, None
        if span is None:
            return
        if error is not None:
            from opentelemetry.trace import Status, StatusCode

            span.record_exception(error)
            span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
        span.end()


def received(events: Sequence[Event], subscription: str | None) -> None:
    """Makes a span for a delivery that has just arrived here, linked to where its events come from."""
    if not is_used():
        return
    links = _links(event.properties for event in events)
    if not links:
        return
    attributes = _attributes("receive", events[0].topic, len(events))
    attributes["messaging.destination.subscription.name"] = subscription or ""
    _start("receive", events[0].topic, attributes, links, len(events)).end()


@contextmanager
def process(events: Event | Sequence[Event]) -> Iterator[Span | None]:
    """Within, a span is active that processes an event, or a batch of them. Yields it; None without OpenTelemetry.

    It is linked to where the events come from, of a batch to 64 at most. Of a single event, where no other span is
    active, that is its parent, so that all is one trace. An exception that leaves the block is recorded.
    """
    if not is_used():
        yield None
        return
    from opentelemetry import trace

    several = [events] if isinstance(events, Event) else list(islice(events, LINKS_MAX))
    count = 1 if isinstance(events, Event) else len(events)
    topic = several[0].topic if several else ""
    attributes = _attributes("process", topic, count)
    if isinstance(events, Event):
        attributes["messaging.message.id"] = events.message_id
    links = _links(event.properties for event in several)
    with trace.use_span(_start("process", topic, attributes, links, count), end_on_exit=True) as span:
        yield span


def destination(topic: str, count: int) -> dict[str, Any]:
    """Attributes that say where events are sent, and how many, by the conventions of OpenTelemetry for messaging."""
    attributes: dict[str, Any] = {"messaging.system": "gapless", "messaging.destination.name": topic}
    if count != 1:
        attributes["messaging.batch.message_count"] = count
    return attributes


def origins(all_properties: Iterable[Any]) -> list[SpanContext]:
    """The spans that have sent events with these properties: of as many as there may be, each once."""
    from opentelemetry.trace import get_current_span
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    propagator = TraceContextTextMapPropagator()
    found: dict[tuple[str, ...], SpanContext] = {}
    for properties in islice(all_properties, LINKS_MAX):
        if not isinstance(properties, Mapping) or TRACEPARENT not in properties:
            continue
        carrier = {name: value for name in FIELDS if isinstance(value := properties.get(name), str)}
        context = get_current_span(propagator.extract(carrier)).get_span_context()
        if context.is_valid:
            found.setdefault(tuple(carrier.values()), context)
    return list(found.values())


def below(context: SpanContext) -> Context:
    """What a span is started in that has this one as its parent."""
    from opentelemetry.trace import NonRecordingSpan, set_span_in_context

    return set_span_in_context(NonRecordingSpan(context))


def _tracer() -> Tracer:
    from opentelemetry import trace

    return trace.get_tracer("gapless")


def _start(what: str, topic: str, attributes: dict[str, Any], links: list[Link], count: int) -> Span:
    """A span of a consumer. What a single event comes from is its parent, unless another span is active."""
    from opentelemetry.trace import SpanKind

    parent: Context | None = None
    if count == 1 and links and not is_active():
        parent = below(links[0].context)
    return _tracer().start_span(_name(what, topic), parent, SpanKind.CONSUMER, attributes, links)


def _start_sending(
    messages: Sequence[Any], topic: str | None, parent: Context | None = None, senders: Iterable[Context] = ()
) -> Span:
    from opentelemetry.trace import Link, SpanKind, get_current_span

    topic = topic or next((str(named) for each in messages if (named := getattr(each, "topic", None))), "")
    links = _links(getattr(message, "properties", None) for message in messages)
    known = {get_current_span(parent).get_span_context().span_id, *(link.context.span_id for link in links)}
    for sender in senders:
        context = get_current_span(sender).get_span_context()
        if context.span_id not in known and len(links) < LINKS_MAX:
            known.add(context.span_id)
            links.append(Link(context))
    attributes = _attributes("send", topic, len(messages))
    return _tracer().start_span(_name("send", topic), parent, SpanKind.PRODUCER, attributes, links)


def _name(what: str, topic: str) -> str:
    return f"{what} {topic}".rstrip()


def _attributes(what: str, topic: str, count: int) -> dict[str, Any]:
    """By the conventions of OpenTelemetry for messaging."""
    operation = {"messaging.operation.name": what, "messaging.operation.type": what}
    return {**destination(topic, count), **operation}


def _with_context(messages: Sequence[MessageT]) -> list[MessageT]:
    """The messages with the context of the active span. What is no message is left to whoever checks that."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)

    def with_context(message: MessageT) -> MessageT:
        properties = getattr(message, "properties", None)
        if not isinstance(properties, Mapping) or TRACEPARENT in properties:
            return message
        return replace(message, properties={**properties, **carrier})

    return [with_context(message) for message in messages]


def _links(all_properties: Iterable[Any]) -> list[Link]:
    """Links to where events come from."""
    from opentelemetry.trace import Link

    return [Link(context) for context in origins(all_properties)]
