"""What the operator is told of clients that break the protocol: whom, and why, but not a thousand times."""

from __future__ import annotations

from collections import deque
from typing import Final

SECOND: Final = 1_000_000_000
PERIOD: Final = 60 * SECOND
"""Nanoseconds for which the limits hold."""
OF_A_HOST_MAX: Final = 5
"""Complaints of one host in a period."""
MAX: Final = 50
"""Complaints of all in a period."""
REASON_MAX: Final = 300
"""Characters of a reason: a client may have written some of it."""


class Complaints:
    """Decides what is said, and counts what is not."""

    def __init__(self) -> None:
        self._said: deque[tuple[int, str]] = deque()
        """When, and of which host; the latest period."""
        self._unsaid = 0

    def text(self, peer: str, client_id: str | None, reason: str, now: int) -> str | None:
        """The line for the log; None if there were enough of late. `client_id`: None before anybody said it."""
        said = self._said
        while said and said[0][0] <= now - PERIOD:
            said.popleft()
        host = host_of(peer)
        if len(said) >= MAX or sum(other == host for _, other in said) >= OF_A_HOST_MAX:
            self._unsaid += 1
            return None
        said.append((now, host))
        who = "" if client_id is None else f", client {client_id!r}"
        others = f" (and {self._unsaid} more like it, which were not told)" if self._unsaid else ""
        self._unsaid = 0
        return f"the connection with {_printable(peer)}{who} ended: {_printable(reason)}{others}"


def host_of(peer: str) -> str:
    """The machine of a peer, whatever port it came from."""
    return peer.rpartition(":")[0] or peer


def _printable(text: str) -> str:
    shown = text if text.isprintable() else ascii(text)[1:-1]
    return shown if len(shown) <= REASON_MAX else f"{shown[:REASON_MAX]}…"
