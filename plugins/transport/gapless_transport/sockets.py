"""What is done to sockets, whichever loop they belong to."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from typing import Any, Protocol

from gapless.errors import ConfigurationError
from gapless_transport.addresses import render

UNSENT_BYTES = 64 << 10
"""How much the kernel may hold that it has not sent yet: what an urgent frame cannot overtake any more."""

_OPTIONS = (
    (socket.IPPROTO_TCP, "TCP_NODELAY", 1),
    (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
    (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 30),
    (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 10),
    (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
    (socket.IPPROTO_TCP, "TCP_NOTSENT_LOWAT", UNSENT_BYTES),
)


class HasOptions(Protocol):
    """A socket, or what a transport shows of one."""

    def setsockopt(self, level: int, option: int, value: int, /) -> None:
        """Sets an option."""


def prepare(sock: HasOptions) -> None:
    """Sets a link's socket up: no delay, keepalive, and a short queue in the kernel where that is possible."""
    for level, name, value in _OPTIONS:
        option = getattr(socket, name, None)
        if option is not None:
            with contextlib.suppress(OSError):  # some systems refuse it once the other end is gone
                sock.setsockopt(level, option, value)


async def bind(address: str, host: str, port: int, backlog: int) -> list[socket.socket]:
    """Listening sockets for every address that `host` means; for port 0, for the first of them.

    Raises ConfigurationError when the name is unknown or the port is taken.
    """
    sockets: list[socket.socket] = []
    absent: OSError | None = None
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for family, _, _, _, where in found[:1] if port == 0 else found:
            try:
                sockets.append(_listening(family, where, backlog))
            except OSError as error:
                # A name may mean an address that this machine does not have, as ::1 in many containers.
                if error.errno != errno.EADDRNOTAVAIL:
                    raise
                absent = error
        if absent is not None and not sockets:
            raise absent
    except OSError as error:
        for sock in sockets:
            sock.close()
        raise ConfigurationError(f"cannot listen on {address}: {error.strerror or error}") from error
    return sockets


def shut_down(connection: socket.socket) -> None:
    """Ends a connection under whatever uses its socket, which then hears of the end and closes it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def peer_of(sock: socket.socket) -> str:
    """The other end's address, as far as it is known: it may be gone already."""
    try:
        host, port = sock.getpeername()[:2]
    except OSError:
        return "a vanished peer"
    return render(host, port)


def _listening(family: int, where: Any, backlog: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        if os.name == "posix":
            # Elsewhere this option would let two processes share the port.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # So that 0.0.0.0 and [::] can be bound side by side.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(where)
        sock.listen(backlog)
    except BaseException:
        sock.close()
        raise
    return sock
