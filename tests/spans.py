"""Spans of OpenTelemetry, kept in memory: of this process, which can have one provider in its life."""

from __future__ import annotations

from functools import cache

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


@cache
def _exporter() -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


class Spans:
    """The spans that have ended since this was made."""

    def __init__(self) -> None:
        self._exporter = _exporter()
        self._exporter.clear()
        self.tracer = trace.get_tracer("test")

    def of(self, name: str) -> list[ReadableSpan]:
        """Those whose names begin so."""
        return [span for span in self._exporter.get_finished_spans() if span.name.startswith(name)]

    def one(self, name: str) -> ReadableSpan:
        """The only one."""
        [span] = self.of(name)
        return span


def trace_of(span: ReadableSpan) -> int:
    """The trace that a span belongs to."""
    context = span.get_span_context()
    assert context is not None
    return int(context.trace_id)


def number_of(span: ReadableSpan) -> int:
    """What a span is called within its trace."""
    context = span.get_span_context()
    assert context is not None
    return int(context.span_id)


def parent_of(span: ReadableSpan) -> int:
    """The number of its parent; 0: it has none."""
    return 0 if span.parent is None else int(span.parent.span_id)


def linked(span: ReadableSpan) -> set[int]:
    """The numbers of the spans that it is linked to."""
    return {int(link.context.span_id) for link in span.links}
