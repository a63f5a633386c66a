"""Where a broker's spans go, and what it says where they can go nowhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http import trace_exporter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from gapless.errors import ConfigurationError
from gapless.observe import exporting
from gapless.observe.exporting import SpanExport, check

OTLP = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}


@contextmanager
def provided(monkeypatch: pytest.MonkeyPatch, provider: object) -> Iterator[None]:
    """Within, this is the provider of the process, which is set once in the life of one."""
    with monkeypatch.context() as patched:
        patched.setattr(trace, "get_tracer_provider", lambda: provider)
        yield


@pytest.fixture
def unprovided(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with provided(monkeypatch, trace.ProxyTracerProvider()):
        yield


def without(monkeypatch: pytest.MonkeyPatch, *parts: str) -> None:
    """Makes as if modules that have this in their names were not installed."""

    def found(name: str) -> object:
        return None if any(part in name for part in parts) else find_spec(name)

    monkeypatch.setattr(exporting, "find_spec", found)


@pytest.mark.usefixtures("unprovided")
def test_the_environment_says_where_they_go_and_how() -> None:
    assert check({}) == "opentelemetry.exporter.otlp.proto.http.trace_exporter"


def test_a_provider_that_the_process_has_is_taken_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    ended: list[bool] = []
    monkeypatch.setattr(provider, "shutdown", lambda: ended.append(True))
    with provided(monkeypatch, provider):
        export = SpanExport.begin({}, "desk")
    export.end(1)

    assert ended == []


@pytest.mark.usefixtures("unprovided")
@pytest.mark.parametrize(
    ("environment", "missing", "said"),
    [
        ({}, (), "set OTEL_EXPORTER_OTLP_ENDPOINT"),
        ({**OTLP, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, (), "OTEL_EXPORTER_OTLP_PROTOCOL='http/json' is not"),
        (
            {**OTLP, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            ("grpc",),
            "opentelemetry-exporter-otlp-proto-grpc",
        ),
        (OTLP, ("opentelemetry",), "opentelemetry-api opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"),
        (OTLP, ("sdk", "exporter"), "pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"),
    ],
)
def test_what_is_missing_is_said(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], missing: tuple[str, ...], said: str
) -> None:
    without(monkeypatch, *missing)

    with pytest.raises(ConfigurationError, match=r"^traces: ") as raised:
        SpanExport.begin(environment, "desk")
    assert said in str(raised.value)


@pytest.mark.usefixtures("unprovided")
def test_a_collector_that_does_not_answer_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not whoever makes a span, and whoever ends the export only for as long as he says."""
    answers = threading.Event()

    class Standing(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            answers.wait(20)
            return SpanExportResult.SUCCESS

    monkeypatch.setattr(trace_exporter, "OTLPSpanExporter", Standing)
    export = SpanExport.begin(OTLP, "desk")
    started = time.monotonic()
    for _ in range(1000):
        export.tracer.start_span("append t").end()
    export.end(0.2)
    took = time.monotonic() - started
    answers.set()

    assert 0.2 <= took < 5
