"""What a broker allows its clients, and what it tells them about itself. Times are nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass

SECOND = 1_000_000_000
"""Nanoseconds."""

HELLO_BYTES_MAX = 4096
"""The longest payload that is looked at before a client is authenticated (INV14)."""


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """What a broker says of itself in every Welcome."""

    node: str
    network: str
    durable: bool
    """Whether what is acknowledged survives the end of the process."""
    start: int
    """32 bits that no start of the node had before: makes session numbers unique over restarts and volumes (T34)."""


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """The bounds that every session keeps; a client that breaks one it was told of loses its session."""

    handshake: int = 5 * SECOND
    """How long a new link may take until it is known whose it is."""
    heartbeat: int = 5 * SECOND
    """Each side sends something at least this often."""
    heartbeats_missed: int = 3
    """So many intervals without a frame end the session."""
    stall: int = 15 * SECOND
    """A link on which nothing leaves for so long, although something waits, is closed."""
    links: int = 10_000
    publishers: int = 4096
    """Publishers of one session."""
    event_bytes: int = 1 << 20
    frame_bytes: int = 4 << 20
    window_batches: int = 64
    """Batches that a publisher may have unanswered, and as many openings."""
    window_bytes: int = 8 << 20
    """Bytes a publisher may have unanswered; a batch on its own may be larger."""
    pending_bytes: int = 4 << 20
    """Above this many bytes waiting to leave, nothing more is read from the link: answers cannot pile up."""
    pending_bytes_max: int = 48 << 20
    """Above this many the link is closed."""
