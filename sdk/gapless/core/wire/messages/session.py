"""The session: how it opens, that both sides are there, and how it ends."""

from __future__ import annotations

from gapless.core.wire.messages.base import ClientMessage, Code, ServerMessage


class Hello(ClientMessage, frozen=True, tag=1):
    """Opens a session; the first frame of a connection. Before authentication only this and Proof are parsed."""

    protocol: int
    network: str
    """The network the client knows it is in; "" when it does not know yet."""
    client_id: str
    instance: str
    """Random per client object: the same instance replaces its own earlier session at once."""
    credentials: bytes = b""
    """The first of what proves who the client is; what is in it is the authenticator's business."""


class Challenge(ServerMessage, frozen=True, tag=5):
    """Answers Hello, or a Proof: more is needed to know who the client is."""

    data: bytes


class Proof(ClientMessage, frozen=True, tag=4):
    """Answers a Challenge."""

    data: bytes


class Welcome(ServerMessage, frozen=True, tag=1):
    """Answers Hello, or the last Proof."""

    protocol: int
    session: int
    network: str
    node: str
    durable: bool
    """Whether what the broker acknowledges survives the end of its process."""
    heartbeat_ms: int
    """Each side sends something at least this often; three missed end the session."""
    max_event_bytes: int
    max_frame_bytes: int
    window_batches: int
    """How many batches a publisher may have unacknowledged."""
    window_bytes: int
    answers: tuple[str, ...] = ()
    """What it answers beyond what every broker of this protocol version does: names of client messages."""


class HelloRefused(ServerMessage, frozen=True, tag=2):
    """Answers Hello or a Proof; the connection is closed then. RETRY: try again later, or elsewhere."""

    code: Code
    reason: str


class Heartbeat(ClientMessage, frozen=True, tag=2):
    """I am alive (client)."""


class BrokerHeartbeat(ServerMessage, frozen=True, tag=3):
    """I am alive (broker)."""


class Goodbye(ClientMessage, frozen=True, tag=3):
    """The client ends its session in order."""


class Closing(ServerMessage, frozen=True, tag=4):
    """The broker ends the session in order (shutdown); the client connects elsewhere or again."""

    reason: str
