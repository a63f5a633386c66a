"""`gapless.spi.Transport` and `Listener` on the library `websockets`."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
from collections.abc import Callable
from typing import Any

from websockets.asyncio.client import connect
from websockets.asyncio.connection import Connection
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import WebSocketException

from gapless.errors import ConfigurationError
from gapless.spi import Link, LinkHandler, Listener
from gapless_websocket_transport.link import FRAGMENT_BYTES, WebSocketLink
from gapless_websocket_transport.options import WebSocketOptions

logger = logging.getLogger(__name__)

HOST_AND_PORT = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+)):([0-9]{1,5})")


def parse(address: str) -> tuple[str, int]:
    """The host and the port of `HOST:PORT`. Raises ConfigurationError when it is something else."""
    match = HOST_AND_PORT.fullmatch(address)
    if match is None or int(match[3]) > 65535:
        raise ConfigurationError(f"address {address!r}: write HOST:PORT, as '127.0.0.1:7480' or '[::1]:7480'")
    return match[1] or match[2], int(match[3])


def render(host: str, port: int) -> str:
    """What `parse` takes apart."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class WebSocketListener:
    """An open port; see `gapless.spi.Listener`."""

    def __init__(self, address: str, server: Server) -> None:
        """Takes the server over."""
        self.address = address
        self._server = server

    async def close(self) -> None:
        """Accepts no more; who is in the middle of the handshake is refused, and links go on."""
        self._server.close(close_connections=False)


class WebSocketTransport:
    """Listens and dials with one set of options; see `gapless.spi.Transport`."""

    scheme = "ws"
    encrypts = False
    """A proxy in front may add TLS. The broker cannot see that, and asks for `insecure = true` beyond loopback."""

    def __init__(self, options: WebSocketOptions) -> None:
        """Nothing is bound or dialed yet."""
        self._options = options
        self._tasks: set[asyncio.Task[None]] = set()
        """Of the links that were dialed; the loop alone would not keep them alive."""
        self._settings: dict[str, Any] = {
            "compression": None,  # batches of events are compressed by whoever wants it, and a limit is a limit
            "open_timeout": options.handshake_timeout,
            "close_timeout": options.close_timeout,
            "ping_interval": None,  # sessions have heartbeats of their own
            "max_size": (None, FRAGMENT_BYTES),  # of a fragment; the link judges the message, by a limit that moves
            "write_limit": 0,  # `send` returns when the socket has taken all of it
        }

    def is_loopback(self, address: str) -> bool:
        """Whether only this machine can reach `address`. Names but `localhost` are not looked up."""
        host, _ = parse(address)
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host.lower() == "localhost"

    async def listen(self, address: str, accept: Callable[[Link], LinkHandler]) -> Listener:
        """Binds `address`."""
        host, port = parse(address)

        async def welcome(connection: ServerConnection) -> None:
            link = self._link(connection, render(*connection.remote_address[:2]))
            try:
                handler = accept(link)
            except Exception:
                logger.exception("%s: the link with %s was not accepted", address, link.peer)
                await connection.close(1011)
            else:
                await link.run(handler)

        try:
            # A browser names the page that dials. No page may: whoever visits it could then be anybody's way in.
            server = await serve(welcome, host, port, origins=[None], **self._settings)
        except OSError as error:
            raise ConfigurationError(f"cannot listen on {address}: {error.strerror or error}") from error
        return WebSocketListener(render(host, server.sockets[0].getsockname()[1]), server)

    async def dial(self, address: str, accept: Callable[[Link], LinkHandler]) -> Link:
        """Connects to `address`."""
        host, port = parse(address)
        try:
            # No proxy: the environment's is for browsing, and the address is the broker's.
            connection = await connect(f"ws://{render(host, port)}/", proxy=None, **self._settings)
        except WebSocketException as error:
            raise OSError(f"{address}: no WebSocket there: {error}") from error
        except OSError as error:
            raise type(error)(error.errno, f"{address}: {error.strerror or error}") from error
        link = self._link(connection, address)
        try:
            handler = accept(link)
        except BaseException:
            connection.transport.abort()
            raise
        task = asyncio.create_task(link.run(handler))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return link

    def _link(self, connection: Connection, peer: str) -> WebSocketLink:
        return WebSocketLink(connection, peer, self._options)
