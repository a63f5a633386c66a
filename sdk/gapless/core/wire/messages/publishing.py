"""Publishing: a publisher is opened, and its batches are answered in order."""

from __future__ import annotations

import msgspec

from gapless.core.stream.columns import EventColumns
from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.messages.base import ClientMessage, Code, Number, Number32, ServerMessage


class TickRun(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An arithmetic run of `count` ticks: first, first + step, and so on."""

    first: Tick
    step: int
    count: int


class OpenPublisher(ClientMessage, frozen=True, tag=10):
    """Opens a publisher, or opens it again on a new connection (a higher attempt of the same instance)."""

    publisher: Number32
    """The session's own number for it, chosen by the client."""
    name: str
    instance: str
    attempt: Number
    topic: str | None
    pubend: PubendId = ""
    """The pubend it is on since it was first opened; "" the first time."""
    epoch: Number = 0
    """The epoch it had last, 0 before it had any: one that comes back does not fence who has come since."""


class ClosePublisher(ClientMessage, frozen=True, tag=11):
    """A publisher is over, and nothing that it has sent needs an answer any more. One without a name is forgotten."""

    publisher: Number32


class PublisherOpened(ServerMessage, frozen=True, tag=10):
    """The publisher may send from `sequence + 1` on."""

    publisher: int
    pubend: PubendId
    epoch: int
    sequence: int
    """How many events of this name were ever logged."""
    tick: Tick
    """The tick of the last of them; 0 when there is none."""


class Published(ServerMessage, frozen=True, tag=11):
    """Everything of the publisher up to `sequence` is durable; `ticks` are those of the events newly so."""

    publisher: int
    sequence: int
    ticks: list[TickRun]


class PublishRefused(ServerMessage, frozen=True, tag=12):
    """A batch, or the opening, was not taken.

    REJECTED, INVALID_*, FORBIDDEN: that batch is refused for good, and nothing of it was logged: open again.
    FENCED: the publisher is over. FORGOTTEN: the broker no longer knows it, and nobody can tell whether what
    was sent is logged. RESUME: send again from `sequence` on. RETRY: the same after a while (a full disk, a pubend
    that is not there yet). The refusal of a batch answers all batches sent before it came: those behind it are
    ignored, until one at or below `sequence` comes, or another opening (protocol: publishing).
    """

    publisher: int
    sequence: int
    code: Code
    reason: str


class Publish(msgspec.Struct, frozen=True):
    """A batch of events, appended atomically under sequences first..first + count - 1. Binary on the wire."""

    publisher: int
    epoch: int
    first: int
    events: EventColumns
