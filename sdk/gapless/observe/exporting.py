"""Where a broker's spans go: the provider that the process has, or one by OpenTelemetry's own environment variables."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from gapless.errors import ConfigurationError

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

API: Final = "opentelemetry-api"
SDK: Final = "opentelemetry-sdk"
ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
ATTRIBUTES: Final = "OTEL_RESOURCE_ATTRIBUTES"
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
EXPORTERS: Final = {
    protocol: f"opentelemetry.exporter.otlp.proto.{short}.trace_exporter"
    for protocol, short in (("http/protobuf", "http"), ("grpc", "grpc"))
}
"""By protocol, the module that exports."""


class SpanExport:
    """What takes a broker's spans, and sends them to where they are kept, beside the broker's work."""

    def __init__(self, provider: Any, *, is_own: bool) -> None:
        """Use `begin`."""
        self._provider = provider
        self._is_own = is_own

    @classmethod
    def begin(cls, environment: Mapping[str, str], node: str) -> SpanExport:
        """Exports from now on. Raises ConfigurationError as `check`, and if it is not said where spans go."""
        exporter = check(environment)
        if exporter is None:
            from opentelemetry import trace

            return cls(trace.get_tracer_provider(), is_own=False)
        if not any(environment.get(name) for name in ENDPOINTS):
            raise ConfigurationError(
                "traces: it is not said where spans go: set OTEL_EXPORTER_OTLP_ENDPOINT, for a collector on this"
                " machine to http://127.0.0.1:4318, or start the broker by opentelemetry-instrument"
            )
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        is_named = "OTEL_SERVICE_NAME" in environment or "service.name=" in environment.get(ATTRIBUTES, "")
        named = {} if is_named else {"service.name": "gapless"}
        resource = Resource.create({"service.instance.id": node, **named})
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(import_module(exporter).OTLPSpanExporter()))
        return cls(provider, is_own=True)

    @property
    def tracer(self) -> Tracer:
        """What makes the spans."""
        tracer: Tracer = self._provider.get_tracer("gapless")
        return tracer

    def end(self, timeout: float) -> None:
        """Sends what waits to be sent; blocks for so many seconds at most. A provider of the process goes on."""
        if self._is_own:
            ending = Thread(target=self._provider.shutdown, name="gapless-spans-end", daemon=True)
            ending.start()
            ending.join(timeout)


def check(environment: Mapping[str, str]) -> str | None:
    """Returns the module that exports; None: the process has a provider. Raises ConfigurationError without either.

    Where spans go is not looked at: who asks may be another process than the broker.
    """
    if find_spec("opentelemetry") is None:
        raise ConfigurationError(f"traces: {_install(API, SDK, _package(EXPORTERS['http/protobuf']))}")
    from opentelemetry import trace

    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None
    protocol = next(filter(None, map(environment.get, PROTOCOLS)), "http/protobuf")
    exporter = EXPORTERS.get(protocol)
    if exporter is None:
        raise ConfigurationError(
            f"traces: {PROTOCOLS[1]}={protocol!r} is not known here, but {' and '.join(EXPORTERS)} are"
        )
    missing = [
        package for module, package in (("opentelemetry.sdk", SDK), (exporter, _package(exporter))) if _lacks(module)
    ]
    if missing:
        raise ConfigurationError(f"traces: {_install(*missing)}")
    return exporter


def _package(exporter: str) -> str:
    return exporter.rpartition(".")[0].replace(".", "-")


def _install(*packages: str) -> str:
    return f"spans need {' and '.join(packages)}: pip install {' '.join(packages)}"


def _lacks(module: str) -> bool:
    try:
        return find_spec(module) is None
    except ModuleNotFoundError:  # of one that it is in
        return True
