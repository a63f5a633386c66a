"""One trace from the publisher through the broker's append, sync, match and deliver to the consumer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan

import gapless
from gapless import Message, tracing
from gapless.errors import ConfigurationError
from gapless.node.config import make_config
from gapless.node.node import Node
from gapless.observe.exporting import ENDPOINTS
from integration.broker_process import BrokerProcess, bounded, until
from integration.networks_in_process import network_of
from integration.nodes_in_process import running_node
from spans import Spans, number_of, parent_of, trace_of

TRACED = {"address": "127.0.0.1:0", "traces": 1.0}
STAGES = ("append", "sync", "match", "deliver")


class Collector:
    """What a collector gets by OTLP over HTTP."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.url = ""

    def spans(self) -> list[Any]:
        """All spans so far."""
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def resources(self) -> set[tuple[str, str]]:
        """Of whom they are: the names of services, and of their instances."""
        found = set()
        for request in self.requests:
            for each in request.resource_spans:
                named = {one.key: one.value.string_value for one in each.resource.attributes}
                found.add((named["service.name"], named["service.instance.id"]))
        return found


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = ExportTraceServiceRequest()
            request.ParseFromString(self.rfile.read(int(self.headers["content-length"])))
            collector.requests.append(request)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    collector.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_a_broker_exports_what_it_does_with_an_event_into_the_trace_of_its_sender(tmp_path: Path) -> None:
    spans = Spans()
    with collecting() as collector:
        environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "50"}
        async with BrokerProcess(tmp_path, environment=environment, observe=TRACED, node={"name": "desk"}) as broker:
            async with gapless.connect(broker.url) as connection, connection.session() as session:
                async with session.subscribe("t", name="all") as subscription:
                    publisher = session.publisher("t")
                    with spans.tracer.start_as_current_span("work"):
                        await publisher.send(b"1")
                    with tracing.process(await bounded(anext(subscription))):
                        pass
            await until(lambda: len(collector.spans()) >= len(STAGES), "the broker's spans")
            assert await broker.stop() == 0

    send = spans.one("send t")
    exported = {span.name: span for span in collector.spans()}
    assert sorted(exported) == sorted(f"{stage} t" for stage in STAGES)
    assert collector.resources() == {("gapless", "desk")}
    for span in exported.values():
        assert int.from_bytes(span.trace_id, "big") == trace_of(send)
        assert int.from_bytes(span.parent_span_id, "big") == number_of(send)
    assert {parent_of(span) for span in (spans.one("receive"), spans.one("process"))} == {number_of(send)}
    in_order = [exported[f"{stage} t"] for stage in STAGES]
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in in_order)
    assert all(one.start_time_unix_nano <= after.start_time_unix_nano for one, after in pairwise(in_order))
    # All of it lies within the publisher's send, but for the delivery, which nobody waits for.
    assert (send.start_time or 0) <= in_order[0].start_time_unix_nano
    assert in_order[1].end_time_unix_nano <= (send.end_time or 0)


async def test_in_a_network_each_node_makes_spans_of_what_it_does(tmp_path: Path) -> None:
    spans = Spans()

    def of_batch(stage: str) -> list[ReadableSpan]:
        """Those that somebody's span is the parent of."""
        return [span for span in spans.of(f"{stage} t") if span.parent is not None and span.parent.is_remote]

    async with network_of(tmp_path, "phb", "shb") as network:
        for name in ("phb", "shb"):
            await network.start(name, observe=TRACED)
        await network.until_linked("phb", "shb")
        await network.until_pubends("shb", 1)
        urls = network.nodes["phb"].url, network.nodes["shb"].url
        async with gapless.connect(urls[0]) as sending, gapless.connect(urls[1]) as consuming:
            async with sending.session() as one, consuming.session() as other:
                async with other.subscribe("t", name="all") as subscription:
                    await one.publisher("t").send(b"0")  # with which it goes live
                    await bounded(anext(subscription))
                    with spans.tracer.start_as_current_span("work"):
                        await one.publisher("t").send_batch([Message(b"1"), Message(b"2")])
                    assert (await bounded(anext(subscription))).body == b"1"
                    await until(lambda: bool(of_batch("deliver")), "the last span")

    made = {stage: of_batch(stage)[0] for stage in STAGES}
    nodes = {stage: (span.attributes or {})["gapless.node"] for stage, span in made.items()}
    assert nodes == {"append": "phb", "sync": "phb", "match": "shb", "deliver": "shb"}
    assert {parent_of(span) for span in made.values()} == {number_of(spans.one("send t"))}
    assert (made["append"].attributes or {})["messaging.batch.message_count"] == 2
    assert (made["deliver"].attributes or {})["gapless.deliveries"] == 2


async def test_phb_and_shb_choose_the_same_batches() -> None:
    spans = Spans()
    count = 60
    async with running_node(observe={**TRACED, "traces": 0.4}) as node:
        async with gapless.connect(node.url) as connection, connection.session() as session:
            async with session.subscribe("t", name="all") as subscription:
                publisher = session.publisher("t")
                for number in range(count):
                    with spans.tracer.start_as_current_span("work"):
                        await publisher.send(str(number).encode())
                for _ in range(count):
                    await bounded(anext(subscription))

    chosen = [sorted(map(parent_of, spans.of(f"{stage} t"))) for stage in STAGES]
    assert 5 <= len(chosen[0]) < count
    assert chosen == [chosen[0]] * len(STAGES)
    assert set(chosen[0]) <= set(map(number_of, spans.of("send t")))


async def test_without_a_share_a_broker_makes_no_spans() -> None:
    spans = Spans()
    async with running_node(observe={"address": "127.0.0.1:0"}) as node:
        async with gapless.connect(node.url) as connection, connection.session() as session:
            async with session.subscribe("t", name="all") as subscription:
                with spans.tracer.start_as_current_span("work"):
                    await session.publisher("t").send(b"1")
                await bounded(anext(subscription))

    assert [spans.of(stage) for stage in STAGES] == [[]] * len(STAGES)


async def test_a_broker_that_cannot_export_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "get_tracer_provider", trace.ProxyTracerProvider)
    for name in ENDPOINTS:
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(ConfigurationError, match=r"^configuration: observe: traces: .* set OTEL_EXP"):
        async with running_node(observe=TRACED):
            pass


@pytest.mark.parametrize("traces", [True, -0.1, 1.5, "many", float("nan")])
async def test_what_is_no_share_is_refused(traces: object) -> None:
    with pytest.raises(ConfigurationError, match=r"observe\.traces: "):
        await Node.start(make_config({"observe": {"traces": traces}}))
