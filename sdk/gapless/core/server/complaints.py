"""Reports clients that break the protocol to the operator, with the reason, but not a thousand times."""

from __future__ import annotations

from collections import deque
from typing import Final

SECOND: Final = 1_000_000_000
PERIOD: Final = 60 * SECOND
"""The time for which the limits hold, in nanoseconds."""
OF_A_HOST_MAX: Final = 5
"""How many complaints about one host are reported in a period."""
MAX: Final = 50
"""How many complaints are reported in a period altogether."""
REASON_MAX: Final = 300
"""How many characters of a reason are reported: a client may have written a part of it."""


class Complaints:
    """Decides which complaints are reported, and counts the others."""

    def __init__(self) -> None:
        self._said: deque[tuple[int, str]] = deque()
        """When something was reported, and about which host, in the latest period."""
        self._unsaid = 0

    def text(self, peer: str, client_id: str | None, reason: str, now: int) -> str | None:
        """Returns the line for the log; None if there were too many. `client_id`: None if it is not known yet."""
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
    """Returns the machine of a peer, without the port."""
    return peer.rpartition(":")[0] or peer


def _printable(text: str) -> str:
    shown = text if text.isprintable() else ascii(text)[1:-1]
    return shown if len(shown) <= REASON_MAX else f"{shown[:REASON_MAX]}…"
