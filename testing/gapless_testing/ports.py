"""Ports that a server can be told of before it starts, and again when it is started anew."""

from __future__ import annotations

import contextlib
import random
import socket
from typing import Final

__all__ = ["free_ports"]

_PORTS: Final = range(20_000, 32_000)
"""Below those that systems give to the near end of a connection, Linux from 32,768 on: another process that connects
somewhere would take such a port while its server is down."""
_TRIES_MAX: Final = 1_000


def free_ports(count: int) -> list[int]:
    """Ports of loopback, all different, on which nobody listens now.

    As long as this process lives, nobody else is given them here, in whatever process: each stays bound, in such a way
    that a server can listen there. Raises OSError when there are not so many.
    """
    ports = random.SystemRandom().sample(_PORTS, min(len(_PORTS), count + _TRIES_MAX))
    free: list[int] = []
    while len(free) < count:
        if not ports:
            raise OSError(f"found {len(free)} free ports of {count} from {_PORTS.start} to {_PORTS.stop - 1}")
        port = ports.pop()
        with contextlib.suppress(OSError), socket.socket() as sock:
            sock.bind(("127.0.0.1", port))  # fails where anyone has it
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as a server sets it, so that both may have it
            sock.detach()
            free.append(port)
    return free
