"""What there is over HTTP: figures, health and status, as a Starlette application. It waits for nobody but the node.

/metrics   the figures, in Prometheus' text or in OpenMetrics
/livez     200 while the process need not be ended; 503 with the reason
/readyz    200 while clients are served; 503 with the reason
/status    the figures and the alarms, as JSON
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Final, TypeAlias

from msgspec import json, structs
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from gapless.core.gauges import Gauge
from gapless.core.principals import NO_CERTIFICATE
from gapless.observe.exposition import OPENMETRICS, PROMETHEUS, prefers_openmetrics, render
from gapless.observe.gate import DeniedError, Gate
from gapless.observe.health import Health, Phase
from gapless.observe.snapshot import Snapshot, Snapshots

WORKING_MAX: Final = 128
"""So many requests for figures are answered at a time; who comes beyond is told to come again."""
ANSWER_WITHIN: Final = 5.0
"""Seconds that the node has to tell its figures."""
CHUNK: Final = 65_536
"""So much of an answer is handed on before the one who asked has taken what was before: answers are shared."""

JSON: Final = "application/json"
THERE_IS: Final = "There is /metrics, /status, /livez and /readyz.\n"

Page: TypeAlias = "Callable[[Request], Awaitable[Response]]"


class Pages:
    """The pages of one node, in the thread that talks HTTP."""

    def __init__(
        self, node: str, health: Health, snapshots: Snapshots, absent: Callable[[], list[Gauge]], gate: Gate | None
    ) -> None:
        """`absent`: the figures of a node that tells none. `gate`: who lets people in; None: everybody may look."""
        self._node = node
        self._health = health
        self._snapshots = snapshots
        self._absent = absent
        self._gate = gate
        self._working = 0
        self._made: dict[str, tuple[Snapshot, bytes]] = {}
        """The latest body of each media type, and what it was made of: many may ask for the same."""
        self.app = Starlette(
            routes=[
                Route("/", self._root),
                Route("/livez", self._livez),
                Route("/readyz", self._readyz),
                Route("/metrics", self._guarded(self._metrics)),
                Route("/status", self._guarded(self._status)),
            ],
            exception_handlers={404: self._not_there, 405: self._not_done, 503: self._not_now},
        )

    async def _root(self, _: Request) -> Response:
        return PlainTextResponse(f"This is a broker of gapless, for tools that look after it. {THERE_IS}")

    async def _livez(self, _: Request) -> Response:
        return self._health_page(self._health.stands(), "standing")

    async def _readyz(self, _: Request) -> Response:
        return self._health_page(self._health.unready(), self._health.phase.value)

    def _health_page(self, why: str, word: str) -> Response:
        """Needs no right: where others do, it says no more than a word."""
        if not why:
            return PlainTextResponse("ok\n")
        if self._gate is not None:
            why = word if word != Phase.SERVING.value else "not ready"
        return PlainTextResponse(f"{why}\n", 503)

    async def _metrics(self, request: Request) -> Response:
        openmetrics = prefers_openmetrics(", ".join(request.headers.getlist("accept")))
        make = partial(render, openmetrics=openmetrics)
        return await self._shared(OPENMETRICS if openmetrics else PROMETHEUS, lambda told: make(told.gauges))

    async def _status(self, _: Request) -> Response:
        return await self._shared(JSON, self._as_json)

    async def _shared(self, media_type: str, make: Callable[[Snapshot], bytes]) -> Response:
        snapshot = await self._snapshot()
        made_of, body = self._made.get(media_type, (None, b""))
        if made_of is not snapshot:
            body = make(snapshot)
            self._made[media_type] = snapshot, body
        return SharedResponse(body, media_type)

    def _as_json(self, snapshot: Snapshot) -> bytes:
        told = {
            "node": self._node,
            "phase": self._health.phase.value,
            "unready": self._health.unready(),
            "gauges": [
                {"name": row.name, "labels": dict(row.labels), "value": row.value, "help": row.help}
                for row in snapshot.gauges
            ],
            "alarms": [structs.asdict(alarm) for alarm in snapshot.alarms],
        }
        return json.encode(told)

    async def _snapshot(self) -> Snapshot:
        """What the node tells; of one that does not serve, and does not answer either, that it does not serve."""
        asked = asyncio.wrap_future(self._snapshots.ask())
        asked.add_done_callback(asyncio.Future.exception)  # whoever has gone need not hear of it
        is_serving = self._health.phase is Phase.SERVING
        await asyncio.wait([asked], timeout=ANSWER_WITHIN if is_serving else ANSWER_WITHIN / 10)
        if asked.done() and asked.exception() is None:
            return asked.result()
        if not is_serving:
            return Snapshot(self._absent())
        why = repr(asked.exception()) if asked.done() else f"none were told within {ANSWER_WITHIN:g} s"
        raise HTTPException(503, f"the figures could not be taken: {why}")

    def _guarded(self, page: Page) -> Page:
        """The page, for those who may look, and not for more at a time than there is room for."""

        async def guarded(request: Request) -> Response:
            if self._working >= WORKING_MAX:
                raise HTTPException(503, f"{WORKING_MAX} requests are being answered already: come again")
            self._working += 1
            try:
                if self._gate is not None:
                    certificate = getattr(request.state, "certificate", NO_CERTIFICATE)
                    address = request.client.host if request.client is not None else ""
                    await self._gate.pass_in(request.headers.get("authorization", ""), certificate, address)
                return await page(request)
            except DeniedError as error:
                headers = {"www-authenticate": "Bearer"} if error.status == 401 else {}
                return PlainTextResponse(f"{error}\n", error.status, headers)
            finally:
                self._working -= 1

        return guarded

    async def _not_there(self, _: Request, _error: Exception) -> Response:
        return PlainTextResponse(f"There is no such page. {THERE_IS}", 404)

    async def _not_done(self, _: Request, _error: Exception) -> Response:
        return PlainTextResponse("Pages can be read (GET), and nothing else.\n", 405, {"allow": "GET, HEAD"})

    async def _not_now(self, _: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return PlainTextResponse(f"{error.detail}\n", 503, {"retry-after": "1"})


class SharedResponse(Response):
    """A body that many are sent at once: of each it waits until he has taken one piece before the next is copied."""

    def __init__(self, body: bytes, media_type: str) -> None:
        super().__init__(body)
        self.raw_headers = [
            (b"content-length", str(len(body)).encode()),
            (b"content-type", media_type.encode()),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends it."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for piece, is_last in self._pieces():
            await send({"type": "http.response.body", "body": piece, "more_body": not is_last})

    def _pieces(self) -> Iterator[tuple[bytes, bool]]:
        body = bytes(self.body)
        for begin in range(0, max(1, len(body)), CHUNK):
            yield body[begin : begin + CHUNK], begin + CHUNK >= len(body)
