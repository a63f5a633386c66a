"""Reading by ranges: requests about a durable subscription whose position the client keeps (protocol: ranges)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.delivered import DeliveredColumns
from gapless.core.wire.messages.base import (
    NUMBER_MAX,
    ClientMessage,
    Code,
    Home,
    Number,
    Process,
    RealTick,
    Seal,
    ServerMessage,
    Wall,
)
from gapless.core.wire.messages.subscribing import InUse, Position, StartAt


class Target(msgspec.Struct, array_like=True, frozen=True):
    """A durable subscription of the session's client.

    It is named by its name; or, with `sid`, by its id and generation, as in a token.
    """

    name: str
    sid: Number = 0
    generation: Number = 0
    home: Home = ""
    """The SHB that gave `sid`; "" if it told none."""


class Attach(ClientMessage, frozen=True, tag=40):
    """Creates a durable subscription unless it exists, without consuming. The fields are those of Subscribe."""

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
    token_home: Home = ""
    no_local: bool = False


class AttachedTo(ServerMessage, frozen=True, tag=40):
    """Answers Attach, when the subscription is durable. `positions`: where it stands, or the token that was given."""

    request: int
    sid: int
    generation: int
    seal: bytes
    positions: list[Position]
    home: Home = ""


class AskHeads(ClientMessage, frozen=True, tag=41):
    """Asks up to where ticks are decided and can be read.

    With `target`: if a pubend has nothing for that subscription after its position in `after`, the answer is that
    position. With `wait_ms`: the answer comes when there is something, or after that time, whichever comes first.
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
    """Asks how far the ranges from `start` to the heads go with at most so many events, and bytes of events."""

    request: Number
    target: Target
    start: list[Position]
    max_events: Annotated[int, msgspec.Meta(ge=1, le=NUMBER_MAX)] | None
    max_bytes: Annotated[int, msgspec.Meta(ge=1, le=NUMBER_MAX)] | None


class AskEarliest(ClientMessage, frozen=True, tag=43):
    """Asks up to where nothing is left to read; with `target`, up to where nothing is left for that subscription."""

    request: Number
    target: Target | None


class AcknowledgeDurably(ClientMessage, frozen=True, tag=44):
    """A subscription that is read by ranges is done with everything up to here. Done answers, durably."""

    request: Number
    target: Target
    token_seal: Seal
    positions: list[Position]


class TakeLease(ClientMessage, frozen=True, tag=45):
    """Takes a subscription for this session alone, until the session or the lease ends."""

    request: Number
    target: Target
    owner: str
    """The owner, for people. The same owner replaces its own lease at once."""
    in_use: InUse
    attempt: Number = 0
    """With `process`, `confirms` and `asked`: as in Subscribe."""
    process: Process = ""
    confirms: Number = 0
    asked: Number = 0
    again: bool = False
    """Whether this client had the lease before, and asks for it after a lost connection."""


class Leased(ServerMessage, frozen=True, tag=45):
    """Answers TakeLease."""

    request: int
    sid: int


class EndLease(ClientMessage, frozen=True, tag=46):
    """Gives a lease back, or stops waiting for it."""

    request: Number


class LeaseLost(ServerMessage, frozen=True, tag=46):
    """A lease has ended: taken over, its subscription was removed, or rules forbid it since."""

    request: int
    code: Code
    reason: str


class ReadRange(ClientMessage, frozen=True, tag=47):
    """Reads what a subscription matches in (lo, hi] of a pubend, as far as the credit goes.

    The answers are RangeEvents and RangeGap in tick order, then RangeRead. Reading changes nothing.
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
    """The whole range was sent."""

    request: int


class EndRead(ClientMessage, frozen=True, tag=49):
    """Ends a range read: its rest is not wanted."""

    request: Number


class RangeEvents(msgspec.Struct, frozen=True):
    """Events of a range. Binary on the wire."""

    request: int
    columns: DeliveredColumns
