"""The session: how it opens, how both sides show that they are alive, and how it ends."""

from __future__ import annotations

from typing import Final

from gapless.core.wire.messages.base import ClientMessage, Code, Number, ServerMessage

FRAME_BYTES_MAX: Final = 64 << 20
"""No broker may be set to longer frames, so a client believes none that says so."""


class Hello(ClientMessage, frozen=True, tag=1):
    """Opens a session; the first frame of a connection. Before authentication only this and Proof are parsed."""

    protocol: int
    network: str
    """The client's network; "" if the client does not know it yet."""
    client_id: str
    instance: str
    """Random per client object. The same instance replaces its own earlier session at once."""
    credentials: bytes = b""
    """The first credentials of the client; only the authenticator knows what is in them."""
    mechanism: str = ""
    """Which kind of authenticator is to judge them (`gapless.core.ports.Authenticator`); "": the client has none."""

    def __repr__(self) -> str:
        return f"Hello({self.client_id!r}, {self.mechanism!r}, …)"  # never the credentials


class Challenge(ServerMessage, frozen=True, tag=5):
    """Answers Hello, or a Proof: the broker needs more to know who the client is."""

    data: bytes


class Proof(ClientMessage, frozen=True, tag=4):
    """Answers a Challenge."""

    data: bytes

    def __repr__(self) -> str:
        return "Proof(…)"


class Waiting(ServerMessage, frozen=True, tag=6):
    """The answer to Hello or a Proof comes later, although nothing is wrong with the broker: it takes its time."""

    wait_ms: int
    """Milliseconds."""


class Renew(ClientMessage, frozen=True, tag=5):
    """The client's credentials will expire: here are others. Renewed answers it, or RequestFailed."""

    request: Number
    mechanism: str
    credentials: bytes

    def __repr__(self) -> str:
        return f"Renew({self.request}, {self.mechanism!r}, …)"


class Renewed(ServerMessage, frozen=True, tag=7):
    """The session goes on."""

    request: int
    expires_ms: int
    """As in Welcome, from now on."""


class Welcome(ServerMessage, frozen=True, tag=1):
    """Answers Hello, or the last Proof."""

    protocol: int
    session: int
    network: str
    node: str
    durable: bool
    """Whether the broker's own volume survives the end of its process. What it acknowledges may be logged elsewhere, so
    each receipt says it of its pubend."""
    heartbeat_ms: int
    """Each side sends something at least this often. After three missed intervals the session ends."""
    max_event_bytes: int
    max_frame_bytes: int
    window_batches: int
    """How many batches a publisher may have unacknowledged."""
    window_bytes: int
    answers: tuple[str, ...] = ()
    """The client messages that this broker answers beyond those of the protocol version, by name."""
    expires_ms: int = 0
    """So many milliseconds later the credentials expire, and the session with them, unless it is renewed; 0: never."""


class HelloRefused(ServerMessage, frozen=True, tag=2):
    """Answers Hello or a Proof; then the connection is closed. RETRY: try again later, or another broker."""

    code: Code
    reason: str


class Heartbeat(ClientMessage, frozen=True, tag=2):
    """The client is alive."""


class BrokerHeartbeat(ServerMessage, frozen=True, tag=3):
    """The broker is alive."""

    cut_off: str = ""
    """Why nothing can come here now: this broker has lost all links to its network. A client that knows the address of
    another broker goes there."""


class Goodbye(ClientMessage, frozen=True, tag=3):
    """The client ends its session in order."""


class Closing(ServerMessage, frozen=True, tag=4):
    """The broker ends the session in order (at shutdown, say). The client connects again, here or elsewhere."""

    reason: str
