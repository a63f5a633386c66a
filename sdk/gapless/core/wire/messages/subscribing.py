"""Subscribing: what is wanted and from where, what is handed out, and what is done with."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, TypeAlias

import msgspec

from gapless.core.stream.ticks import FOREVER, PubendId, Tick
from gapless.core.wire.delivered import DeliveredColumns
from gapless.core.wire.messages.base import ClientMessage, Code, Number, Seal, ServerMessage, Wall

RealTick: TypeAlias = Annotated[Tick, msgspec.Meta(ge=0, le=FOREVER)]
"""A tick that there can be: others do not parse, lest one client's nonsense be told to all."""


class Position(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A tick of a pubend."""

    pubend: PubendId
    tick: RealTick


class Acknowledged(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Up to where a pubend is acknowledged, and the last Event at or below it that was handed out (or 0)."""

    pubend: PubendId
    tick: RealTick
    event: RealTick


class StartAt(str, Enum):
    """Where a subscription that is created begins."""

    LATEST = "latest"
    EARLIEST = "earliest"
    TIME = "time"
    TOKEN = "token"


class InUse(str, Enum):
    """What to do about another consumer of the subscription."""

    ERROR = "error"
    WAIT = "wait"
    TAKEOVER = "takeover"


class Subscribe(ClientMessage, frozen=True, tag=20):
    """Attaches to a subscription, which is created when `sid` is 0 and it does not exist.

    `positions` None: resume at the acknowledged position (or as `start` says on creation). With
    `sid`: attach to exactly that subscription and generation, never create.
    """

    request: Number
    name: str | None
    """None: not durable."""
    topics: tuple[str, ...]
    selector: str
    start: StartAt
    start_wall: Wall
    """For StartAt.TIME, and when what began so is made again: milliseconds since 1970; else 0."""
    positions: list[Position] | None
    token_sid: Number
    """Which subscription, generation and seal the token names; 0, 0 and b"" without one."""
    token_generation: Number
    token_seal: Seal
    acknowledged: list[Acknowledged]
    """The client's last acknowledgement, repeated."""
    in_use: InUse
    credit_events: Number
    credit_bytes: Number
    sid: Number = 0
    generation: Number = 0


class Subscribed(ServerMessage, frozen=True, tag=20):
    """Answers Subscribe. Messages of `sid` follow, from `positions` on."""

    request: int
    sid: int
    generation: int
    seal: bytes
    created: bool
    positions: list[Position]


class RequestFailed(ServerMessage, frozen=True, tag=21):
    """Answers any request that has a number."""

    request: int
    code: Code
    reason: str
    expression: str = ""
    position: int = 0


class Credit(ClientMessage, frozen=True, tag=21):
    """Grants more events and bytes to a subscription.

    A delivery costs its events, and the bytes behind its head: count, rows and events. The broker never
    sends more events than it has credit for. While bytes are left, one delivery may take more than there
    are, so that an event larger than what is left is not stuck.
    """

    sid: Number
    events: Number
    bytes: Number
    request: Number = 0
    """The number of the Subscribe that it belongs to, as in Detach."""


class Acknowledge(ClientMessage, frozen=True, tag=22):
    """Cumulative: everything up to these positions is done with."""

    sid: Number
    positions: Annotated[list[Acknowledged], msgspec.Meta(max_length=4096)]


class Detach(ClientMessage, frozen=True, tag=23):
    """Ends the consumption of a subscription in this session; a durable one lives on."""

    sid: Number
    request: Number = 0
    """The number of the Subscribe that began it: who took it over in the same session is not meant. 0: whoever."""


class Detached(ServerMessage, frozen=True, tag=23):
    """The broker ended the consumption of a subscription: taken over, unsubscribed, or its token is bad."""

    sid: int
    code: Code
    reason: str


class PubendNumber(ServerMessage, frozen=True, tag=24):
    """From now on, in this session, `number` stands for the pubend."""

    number: int
    pubend: PubendId


class DeliverSilence(ServerMessage, frozen=True, tag=25):
    """Nothing (more) that matches up to `upto`, for these subscriptions, or for all attached ones."""

    number: int
    upto: Tick
    sids: list[int] | None


class GapReason(Enum):
    """All that `Gap.reason` can be: what a broker says of what it cannot deliver any more."""

    RELEASED_EARLY = "released early"
    """An administrator had the pubend let go of it before everybody was done with it."""
    DAMAGED = "damaged"
    """It could not be read any more, and an operator has given it up."""
    RETIRED = "this broker was retired"
    """The pubend did not count this SHB any more, and let go of what it had not delivered (T10)."""


class DeliverGap(ServerMessage, frozen=True, tag=26):
    """Events in (start, end] may have been lost."""

    sid: int
    number: int
    start: Tick
    end: Tick
    reason: str


class Deliver(msgspec.Struct, frozen=True):
    """Events of one pubend for one subscription. Binary on the wire."""

    sid: int
    number: int
    columns: DeliveredColumns
