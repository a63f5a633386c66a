"""An open port. It accepts by itself, because uvloop closes a listener for good when files run out."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence

from gapless import loggers
from gapless.spi import Link, LinkHandler
from gapless_transport import tls, tls_files
from gapless_transport.room import Room
from gapless_transport.sockets import peer_of, shut_down
from gapless_transport.tcp_link import TcpLink
from gapless_transport.tcp_options import TcpOptions
from gapless_transport.tls_files import TlsFiles

logger = loggers.logger(__name__)

CLOSED_DURING_TLS = "it closed the connection during the TLS handshake: it may not trust our certificate"
ACCEPT_PAUSE_SECONDS = 0.5
"""How long a listener rests when the process or the machine has no file or memory left for a connection."""
ACCEPTS_MAX = 64
"""How many connections are accepted in one turn of the loop."""


class TcpListener:
    """Accepts connections on its sockets; see `gapless.spi.Listener`."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        address: str,
        accept: Callable[[Link], LinkHandler],
        options: TcpOptions,
        files: TlsFiles | None,
        look: Callable[[], object],
    ) -> None:
        """Takes the listening sockets over and starts to accept.

        `files`: for TLS. `look` is called every second, in a thread, to see whether they have changed.
        """
        self.address = address
        self._accept = accept
        self._options = options
        self._files = files
        self._sockets = sockets
        self._full = False
        self._room = Room(address, options.unfinished_max, options.unfinished_patience)
        # Every connection counts from the moment it is accepted, long before TLS is established.
        self._links: set[TcpLink] = set()
        self._handshakes: dict[TcpLink, tuple[asyncio.Task[None], socket.socket]] = {}
        self._tasks = [asyncio.create_task(self._accept_forever(sock)) for sock in sockets]
        if files is not None:
            self._tasks.append(asyncio.create_task(_look_forever(look)))

    async def close(self) -> None:
        """Accepts no more. Connections that are not links yet are closed; links go on."""
        await asyncio.sleep(0)  # a connection that was accepted in this very turn would be lost with its task
        for task in self._tasks:
            task.cancel()
        for link, (_, connection) in self._handshakes.items():
            if not link.begun:
                shut_down(connection)
        tasks = [*self._tasks, *(task for task, _ in self._handshakes.values())]
        self._tasks.clear()
        if tasks:
            await asyncio.wait(tasks)
        for sock in self._sockets:
            sock.close()

    async def _accept_forever(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        resting = False
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except ConnectionError:
                continue
            except OSError as error:
                if not resting:
                    logger.warning("%s cannot accept connections for now: %s", self.address, error)
                resting = True
                await asyncio.sleep(ACCEPT_PAUSE_SECONDS)
                continue
            resting = False
            self._welcome(connection)
            for another in _who_else_waits(listening):
                self._welcome(another)

    def _welcome(self, connection: socket.socket) -> None:
        if len(self._links) >= self._options.connections_max:
            if not self._full:
                logger.warning("%s refuses connections: it has %d already", self.address, len(self._links))
            self._full = True
            connection.close()
            return
        self._full = False
        # A connection has one version of the files, whatever becomes of them: what was shown is known, and stays true.
        version = self._files.version if self._files is not None else None
        link = TcpLink(
            self._accept,
            self._options,
            self._links.discard,
            peer=peer_of(connection),
            secure=version is not None,
            room=self._room,
        )
        if version is not None and version.own is not None:
            link.shown = version.own.der
        self._links.add(link)
        context = version.context if version is not None else None
        self._handshakes[link] = asyncio.create_task(self._establish(link, connection, context)), connection

    async def _establish(self, link: TcpLink, connection: socket.socket, context: ssl.SSLContext | None) -> None:
        timeout = self._options.handshake_timeout if context is not None else None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: link, connection, ssl=context, ssl_handshake_timeout=timeout
            )
        except OSError as error:
            reason = tls.reason_of(error)
            if not str(error):  # of which the loops do not say what it was
                reason = CLOSED_DURING_TLS
            logger.info("%s: no link with %s: %s", self.address, link.peer, reason)
        finally:
            del self._handshakes[link]
            if not link.begun:
                self._links.discard(link)
        if link.refusal is not None:
            logger.error("%s: link with %s was not accepted", self.address, link.peer, exc_info=link.refusal)


async def _look_forever(look: Callable[[], object]) -> None:
    while True:
        await asyncio.sleep(tls_files.LOOK_SECONDS)
        await asyncio.to_thread(look)


def _who_else_waits(listening: socket.socket) -> Iterator[socket.socket]:
    """Accepts the connections that wait behind the first: a busy loop takes long for a few turns for each of them."""
    for _ in range(ACCEPTS_MAX - 1):
        try:
            connection, _ = listening.accept()
        except OSError:
            return  # nobody, or it is said when the next one is waited for
        connection.setblocking(False)
        yield connection
