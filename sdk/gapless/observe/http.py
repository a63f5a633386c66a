"""HTTP beside a node: uvicorn's protocol in a thread with a loop of its own, so that neither waits for the other.

It begins before the node opens its volume, and ends after the node. Whoever connects gets little: so many connections,
so much of a request's head, so many seconds for each of its steps. A request's body is never kept.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from ssl import SSLContext
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from gapless import loggers
from gapless.core.wire.framing import HEADER_BYTES

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from gapless.core.principals import Certificate

log = loggers.logger("gapless.observe")

CONNECTIONS_MAX: Final = 256
"""Further connections are closed at once."""
HEAD_BYTES_MAX: Final = 16_384
"""The longest head of a request."""
HEAD_SECONDS: Final = 10.0
"""So long a connection may take to send the head of a request, the first or the next one."""
ANSWER_SECONDS: Final = 30.0
"""So long a request may take until its answer has left."""
IDLE_SECONDS: Final = 5
"""So long a connection is kept on which nothing more is asked."""
HANDSHAKE_SECONDS: Final = 5.0
ACCEPT_PAUSE: Final = 0.5
"""Seconds without new connections when there is no file or memory left for one."""
LOOK_EVERY: Final = 1.0
"""Seconds between two looks at the node, and at the files of certificates."""
STOP_SECONDS: Final = 5.0
NOT_HTTP: Final = (
    b"This is where gapless tells tools of itself over HTTP ([observe]), and this was no HTTP request, or too long a"
    b" one. Clients of gapless connect to the address of a [[listen]], which is 127.0.0.1:7400 by default.\n"
)


class Lent(Protocol):
    """What the transport lends: see `gapless.spi.LendsSockets`."""

    def tls(self) -> SSLContext | None:
        """The context for the next connection."""

    def certificate_of(self, told: Any) -> Certificate:
        """What a verified certificate says."""


class Server:
    """Answers HTTP on some sockets, in a thread."""

    def __init__(self, sockets: Sequence[socket.socket], lent: Lent, app: Starlette, look: Callable[[], None]) -> None:
        """Takes the sockets over, which are bound. `look` is called every second, in the thread."""
        self._sockets = sockets
        self._lent = lent
        self._app = app
        self._look = look
        self._context: SSLContext | None = None
        self._open: set[socket.socket] = set()
        """Every connection counts from the moment it is accepted, long before TLS is established."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped: asyncio.Event | None = None
        self._begun = Event()
        self._thread = Thread(target=self._run, name="gapless-observe", daemon=True)

    def start(self) -> None:
        """Begins to answer. Blocks for a moment."""
        self._thread.start()
        self._begun.wait()

    def stop(self) -> None:
        """Ends; blocks until what is being answered is answered, or some seconds are over. Idempotent."""
        if self._loop is not None and self._stopped is not None:
            with suppress(RuntimeError):  # it is over
                self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(STOP_SECONDS)

    # In the thread.

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except Exception:
            log.exception("nothing is told over HTTP any more")
        finally:
            self._begun.set()
            for sock in (*self._sockets, *self._open):  # of those still open none was established
                sock.close()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        self._context = self._lent.tls()
        config = uvicorn.Config(
            cast("Any", self._app),
            http=cast("Any", _Http),
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        )
        config.load()
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[]))
        tasks = [asyncio.create_task(self._accept_forever(sock, config, server)) for sock in self._sockets]
        tasks.append(asyncio.create_task(self._look_forever()))
        self._begun.set()
        await self._stopped.wait()
        await asyncio.sleep(0)  # a connection that was accepted in this very turn would be lost with its task
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        server.should_exit = True
        await serving

    async def _look_forever(self) -> None:
        while True:
            self._look()
            if self._context is not None:
                self._context = await asyncio.to_thread(self._lent.tls)
            await asyncio.sleep(LOOK_EVERY)

    async def _accept_forever(self, listening: socket.socket, config: uvicorn.Config, server: uvicorn.Server) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except ConnectionError:
                continue
            except OSError:
                await asyncio.sleep(ACCEPT_PAUSE)
                continue
            if len(self._open) >= CONNECTIONS_MAX:
                connection.close()
                continue
            self._open.add(connection)
            state = {"certificate_of": self._lent.certificate_of, "on_end": self._open.discard, "socket": connection}
            protocol = _Http(config=config, server_state=server.server_state, app_state=state)
            establishing = loop.create_task(self._establish(protocol, connection))
            server.server_state.tasks.add(establishing)
            establishing.add_done_callback(server.server_state.tasks.discard)

    async def _establish(self, protocol: _Http, connection: socket.socket) -> None:
        context = self._context
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol,
                connection,
                ssl=context,
                ssl_handshake_timeout=None if context is None else HANDSHAKE_SECONDS,
            )
        except OSError:  # of those who do not speak TLS there may be many
            self._open.discard(connection)
            connection.close()


class _Http(H11Protocol):
    """uvicorn's protocol, with an end to everybody's patience, and with what the client's certificate says."""

    def __init__(self, config: uvicorn.Config, server_state: Any, app_state: dict[str, Any]) -> None:
        self._certificate_of = app_state["certificate_of"]
        self._on_end = app_state["on_end"]
        self._socket = app_state["socket"]
        self._patience: asyncio.TimerHandle | None = None
        self._awaits_head = True
        super().__init__(config=config, server_state=server_state, app_state={})

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state["certificate"] = self._certificate_of(transport.get_extra_info("peercert"))
        self._wait(HEAD_SECONDS)

    def data_received(self, data: bytes) -> None:
        if self._awaits_head and b"\0" in data[:HEADER_BYTES]:  # in gapless's own frames, and in no request
            self.send_400_response("")
            return
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle
        if self._awaits_head and cycle is not None and not cycle.response_complete:
            self._awaits_head = False
            self._wait(ANSWER_SECONDS)

    def on_response_complete(self) -> None:
        """Has left the application; what waits here for the client to take it is waited for no longer than a head."""
        self._awaits_head = True
        self._wait(HEAD_SECONDS)
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        self.transport.write(
            b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: text/plain; charset=utf-8\r\n"
            b"content-length: %d\r\n\r\n%b" % (len(NOT_HTTP), NOT_HTTP)
        )
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self._on_end(self._socket)
        super().connection_lost(exc)

    def _wait(self, seconds: float) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self._patience = self.loop.call_later(seconds, self.transport.abort)
