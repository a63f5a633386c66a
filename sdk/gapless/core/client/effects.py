"""What the client's core asks of its shell, and what it tells it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from gapless.core.messages import PubendRow, SubscriptionRow
from gapless.core.ticks import PubendId, Tick
from gapless.errors import GaplessError

Payload: TypeAlias = "bytes | tuple[bytes, bytes]"


# ---------------------------------------------------------------------------------------- the link


@dataclass(frozen=True, slots=True)
class Dial:
    """Connect to `address`; answered by `on_link_up(link)`, or `on_link_down(link)` if nobody answers."""

    link: int
    address: str


@dataclass(frozen=True, slots=True)
class SendFrames:
    """Send these payloads, in order; urgent ones may overtake those that have not left yet."""

    link: int
    payloads: list[Payload]
    urgent: bool


@dataclass(frozen=True, slots=True)
class RaiseLimit:
    """From now on accept frames of up to `limit` bytes."""

    link: int
    limit: int


@dataclass(frozen=True, slots=True)
class Hangup:
    """Send what is pending and close the link, or give up dialling it. No answer is expected."""

    link: int
    reason: str


# ---------------------------------------------------------------------------------- the connection


@dataclass(frozen=True, slots=True)
class Connected:
    """A session is open."""

    address: str
    node: str
    network: str


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The session is over; another one is being tried for."""

    address: str
    reason: str


@dataclass(frozen=True, slots=True)
class Unreachable:
    """Every address has been tried in vain since a session was last open; trying goes on."""

    reason: str


@dataclass(frozen=True, slots=True)
class Closed:
    """The connection is over for good: `error` says why, None when `close()` was called. Nothing follows."""

    error: GaplessError | None


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that a person should see once in the log."""

    text: str


# -------------------------------------------------------------------------------------- the answers


@dataclass(frozen=True, slots=True)
class PublisherReady:
    """The result of opening a publisher: where it is, and how many events its name had logged by then."""

    pubend: PubendId
    sequence: int


@dataclass(frozen=True, slots=True)
class Attached:
    """The result of subscribing."""

    sid: int
    generation: int
    created: bool


Result: TypeAlias = PublisherReady | Attached | Sequence[SubscriptionRow] | Sequence[PubendRow] | None


@dataclass(frozen=True, slots=True)
class Answered:
    """The request, publisher or subscription with this number has its answer."""

    request: int
    result: Result


@dataclass(frozen=True, slots=True)
class Failed:
    """The request failed; or the publisher or subscription with this number is over. Said once."""

    request: int
    error: GaplessError


class Receipted(msgspec.Struct, frozen=True, gc=False):
    """A batch is logged, under these ticks, one per event (0 where the broker did not remember it)."""

    publisher: int
    ticket: int
    pubend: PubendId
    ticks: Sequence[Tick]
    durable: bool


@dataclass(frozen=True, slots=True)
class NotPublished:
    """A batch will get no receipt."""

    publisher: int
    ticket: int
    error: GaplessError


@dataclass(frozen=True, slots=True)
class Arrived:
    """There is something to take, or `drain` was called. Said again only after `take` found nothing."""

    subscription: int


Effect: TypeAlias = (
    Dial
    | SendFrames
    | RaiseLimit
    | Hangup
    | Connected
    | Disconnected
    | Unreachable
    | Closed
    | Notice
    | Answered
    | Failed
    | Receipted
    | NotPublished
    | Arrived
)
