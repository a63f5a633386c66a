"""The limits of client sessions, and what a broker reports to its clients about itself. Times are in nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SECOND = 1_000_000_000
"""One second in nanoseconds."""


CONNECTIONS: Final = "connections in [limits]; [[limit]] has those of a principal"
PUBLISHERS: Final = "publishers in [limits]; [[limit]] has those of a principal"
"""Which limit it is that was reached, for people."""


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """What a broker reports of itself in every Welcome."""

    node: str
    network: str
    durable: bool
    """Whether its volume survives the end of the process."""
    start: int
    """32 bits that no earlier start of the node had: session numbers are unique over restarts and volumes (T34)."""


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """The bounds of every session. A client that breaks a bound that it knows loses its session."""

    handshake: int = 5 * SECOND
    """How long the handshake of a new link may take."""
    postponed: int = 1000
    """So many clients may wait at once for a verdict that an authenticator has postponed; others are to try again."""
    heartbeat: int = 5 * SECOND
    """Each side sends something at least this often."""
    heartbeats_missed: int = 3
    """After so many intervals without a frame the session ends."""
    cut_off: int = 15 * SECOND
    """After so long without a link to any other node of its network, a broker tells its clients that it is cut off."""
    stall: int = 15 * SECOND
    """A link is closed if data waits on it, and nothing leaves for so long."""
    links: int = 10_000
    publishers: int = 4096
    """How many publishers one session may have."""
    event_bytes: int = 1 << 20
    frame_bytes: int = 4 << 20
    window_batches: int = 64
    """How many batches, or openings, of a publisher may be unanswered."""
    window_bytes: int = 8 << 20
    """How many bytes of a publisher may be unanswered; a single batch may be larger."""
    pending_bytes: int = 4 << 20
    """If more bytes than this wait to leave, the link is no longer read, so that answers cannot pile up."""
    pending_bytes_max: int = 48 << 20
    """If more bytes than this wait to leave, the link is closed."""
