"""Reading by ranges: what is asked of a durable subscription by whoever keeps its position (protocol: ranges)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.delivered import DeliveredColumns
from gapless.core.wire.messages.base import NUMBER_MAX, ClientMessage, Code, Number, Seal, ServerMessage, Wall
from gapless.core.wire.messages.subscribing import InUse, Position, RealTick, StartAt


class Target(msgspec.Struct, array_like=True, frozen=True):
    """Which durable subscription of the session's client is meant.

    By its name; or, with `sid`, by its id and generation, as a token has them.
    """

    name: str
    sid: Number = 0
    generation: Number = 0


class Attach(ClientMessage, frozen=True, tag=40):
    """Creates a durable subscription if it does not exist, and consumes nothing. The fields are Subscribe's."""

    request: Number
    name: str
    topics: tuple[str, ...]
    selector: str
    start: StartAt
    start_wall: Wall
    positions: list[Position] | None
    token_sid: Number
    token_generation: Number
    token_seal: Seal


class AttachedTo(ServerMessage, frozen=True, tag=40):
    """Answers Attach, when the subscription is durable: where it stands, or the token that was given."""

    request: int
    sid: int
    generation: int
    seal: bytes
    positions: list[Position]


class AskHeads(ClientMessage, frozen=True, tag=41):
    """Asks up to where ticks are decided and can be read.

    With `target`: a pubend without anything for that subscription behind `after` is answered as it stands there.
    With `wait_ms`: answered when something is, or so long after, whichever comes first.
    """

    request: Number
    target: Target | None
    after: list[Position] | None
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=600_000)]


class Ticks(ServerMessage, frozen=True, tag=41):
    """Answers AskHeads, AskBound and AskEarliest."""

    request: int
    positions: list[Position]


class AskBound(ClientMessage, frozen=True, tag=42):
    """Asks up to where the heads' ranges behind `start` have no more than so many events, and bytes of events."""

    request: Number
    target: Target
    start: list[Position]
    max_events: Annotated[int, msgspec.Meta(ge=1, le=NUMBER_MAX)] | None
    max_bytes: Annotated[int, msgspec.Meta(ge=1, le=NUMBER_MAX)] | None


class AskEarliest(ClientMessage, frozen=True, tag=43):
    """Asks up to where nothing is left to be read; with `target`, of what that subscription may still read."""

    request: Number
    target: Target | None


class AcknowledgeDurably(ClientMessage, frozen=True, tag=44):
    """A subscription that is read by ranges is done with everything up to here. Answered by Done, durably."""

    request: Number
    target: Target
    token_seal: Seal
    positions: list[Position]


class TakeLease(ClientMessage, frozen=True, tag=45):
    """Takes a subscription for this session alone, until the session or the lease ends."""

    request: Number
    target: Target
    owner: str
    """Who, for people; the same owner replaces himself at once."""
    in_use: InUse


class Leased(ServerMessage, frozen=True, tag=45):
    """Answers TakeLease."""

    request: int
    sid: int


class EndLease(ClientMessage, frozen=True, tag=46):
    """Gives a lease back, or no longer waits for it."""

    request: Number


class LeaseLost(ServerMessage, frozen=True, tag=46):
    """A lease has ended: taken over, or its subscription was removed."""

    request: int
    code: Code
    reason: str


class ReadRange(ClientMessage, frozen=True, tag=47):
    """Reads what a subscription matches in (lo, hi] of a pubend, as far as the credit goes.

    Answered by RangeEvents and RangeGap in tick order, then RangeRead. Reading changes nothing.
    """

    request: Number
    target: Target
    pubend: PubendId
    lo: RealTick
    hi: RealTick
    credit_events: Number
    credit_bytes: Number


class RangeGap(ServerMessage, frozen=True, tag=47):
    """Events in (start, end] of the range may have been lost."""

    request: int
    start: Tick
    end: Tick
    reason: str


class ReadOn(ClientMessage, frozen=True, tag=48):
    """Grants a range read more events and bytes, counted as in Credit."""

    request: Number
    events: Number
    bytes: Number


class RangeRead(ServerMessage, frozen=True, tag=48):
    """The whole range was told."""

    request: int


class EndRead(ClientMessage, frozen=True, tag=49):
    """Nobody wants the rest of a range."""

    request: Number


class RangeEvents(msgspec.Struct, frozen=True):
    """Events of a range. Binary on the wire."""

    request: int
    columns: DeliveredColumns
