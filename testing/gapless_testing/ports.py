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

    Raises OSError when there are not so many.
    """
    ports = random.SystemRandom().sample(_PORTS, min(len(_PORTS), count + _TRIES_MAX))
    free: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(free) < count:
            if not ports:
                raise OSError(f"found {len(free)} free ports of {count} from {_PORTS.start} to {_PORTS.stop - 1}")
            port = ports.pop()
            with contextlib.suppress(OSError):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
                free.append(port)
    return free
