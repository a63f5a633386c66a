"""Publishing: opening publishers, and batches, which are answered in order."""

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
    """The number of the publisher in this session, chosen by the client."""
    name: str
    instance: str
    attempt: Number
    topic: str | None
    pubend: PubendId = ""
    """The pubend on which it was first opened; "" the first time."""
    epoch: Number = 0
    """Its last epoch; 0 before it had any. With it the broker fences an instance that comes back after another one."""
    node: str = ""
    """The node where that pubend was, as `PublisherOpened` named it; "" if none was named."""


class ClosePublisher(ClientMessage, frozen=True, tag=11):
    """Ends a publisher; nothing that it sent needs an answer any more. A publisher without a name is forgotten."""

    publisher: Number32


class PublisherOpened(ServerMessage, frozen=True, tag=10):
    """The publisher may send from `sequence + 1` on."""

    publisher: int
    pubend: PubendId
    epoch: int
    sequence: int
    """How many events of this name were ever logged."""
    tick: Tick
    """The tick of the last of them; 0 if there is none."""
    node: str = ""
    """The node that hosts the pubend; "": this one. A client that can reach it had better publish there."""
    tokens: tuple[str, ...] = ()
    """The texts of the tokens that are durable with them, one for each subscription; the one stored last is last."""


class Published(ServerMessage, frozen=True, tag=11):
    """Everything of the publisher up to `sequence` is durable. `ticks`: of the events that are newly durable."""

    publisher: int
    sequence: int
    ticks: list[TickRun]
    durable: bool | None = None
    """Whether they survive the end of the process that keeps the pubend's log; None: of an older broker
    (`Welcome.durable` is about that one alone)."""


class PositionsStored(ServerMessage, frozen=True, tag=13):
    """The tokens of the publisher's oldest unanswered batch are durable. That batch had no events."""

    publisher: int


class PublishRefused(ServerMessage, frozen=True, tag=12):
    """A batch, or the opening, was refused.

    - REJECTED, INVALID_*, FORBIDDEN: the batch is refused for good, and nothing of it was logged. Open the publisher
      again.
    - STALE: the same; a token of the batch stands before the one that is stored.
    - FENCED: the publisher is over.
    - FORGOTTEN: the broker no longer knows the publisher. It is unknown whether what was sent is logged.
    - RESUME: send again from `sequence` on.
    - RETRY: the same, after a while (the disk is full, or the pubend is not there yet).

    The refusal of a batch answers all batches that were sent before it arrived. Batches after the refused one are
    ignored until one at or below `sequence` comes, or another opening (protocol: publishing).
    """

    publisher: int
    sequence: int
    code: Code
    reason: str


class Publish(msgspec.Struct, frozen=True):
    """A batch of events, appended atomically under sequences first..first + count - 1. Binary on the wire.

    `tokens`: the positions that are stored with it in one write (`gapless.core.wire.tokens.join_tokens`), or b"". A
    batch with tokens may be without events: then nothing is appended, and it uses no sequence. Nothing is sent behind
    such a batch before it is answered, because no sequence would show that it is missing.
    """

    publisher: int
    epoch: int
    first: int
    events: EventColumns
    tokens: bytes
