"""The effects of the client's core: what it asks of its shell, and what it reports to the application."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.messages import AttachedTo, KeyedPublished, MissingAnswer, Retired, Ticks
from gapless.core.wire.tokens import Tokens
from gapless.errors import GaplessError

Payload: TypeAlias = "bytes | tuple[bytes, bytes]"


# ---------------------------------------------------------------------------------------- the link


class AskCredentials(msgspec.Struct, frozen=True):
    """Say the client's credentials, for a link that will be dialled to `address`, or for the session on it.

    The answer is `on_credentials(link)`, or `on_no_credentials(link)`; none after `CloseLink`.
    """

    link: int
    address: str


class OpenLink(msgspec.Struct, frozen=True):
    """Connect to `address`. The answer is `on_link_up(link)`, or `on_link_down(link)` if there is no connection."""

    link: int
    address: str


class SendFrames(msgspec.Struct, frozen=True):
    """Send these payloads, in order. Urgent payloads may overtake those that have not left yet."""

    link: int
    payloads: list[Payload]
    urgent: bool


class AskRoom(msgspec.Struct, frozen=True):
    """Call `on_room(link)` as soon as at most `upto` bytes wait on the link, of all that was sent before."""

    link: int
    upto: int


class RaiseLimit(msgspec.Struct, frozen=True):
    """Accept frames of up to `limit` bytes from now on."""

    link: int
    limit: int


class CloseLink(msgspec.Struct, frozen=True):
    """Send what is pending and close the link, or give up dialling it. No answer is expected."""

    link: int
    reason: str


# ---------------------------------------------------------------------------------- the connection


class Connected(msgspec.Struct, frozen=True):
    """A session is open."""

    address: str
    node: str
    network: str


class Delayed(msgspec.Struct, frozen=True):
    """The broker at `address` takes so many nanoseconds longer to say whether it takes the credentials."""

    address: str
    wait: int


class Disconnected(msgspec.Struct, frozen=True):
    """The session is over. The core tries to open another one."""

    address: str
    reason: str


class Unreachable(msgspec.Struct, frozen=True):
    """Every address has failed since the last session. The core goes on trying those that may take this client."""

    reason: str
    is_refused: bool = False
    """Whether the rest of them does not take the credentials."""


class Closed(msgspec.Struct, frozen=True):
    """The connection is over for good. `error`: the reason, or None after `close()`. No effect follows."""

    error: GaplessError | None


class Notice(msgspec.Struct, frozen=True):
    """A text that a person should see once in the log."""

    text: str


# -------------------------------------------------------------------------------------- the answers


class PublisherReady(msgspec.Struct, frozen=True):
    """The result of opening a publisher: its pubend, how many events its name had logged by then, and its tokens."""

    pubend: PubendId
    sequence: int
    tokens: Tokens = ()


class Attached(msgspec.Struct, frozen=True):
    """The result of subscribing."""

    sid: int
    generation: int
    created: bool
    untaken: tuple[str, ...] = ()
    """Some of its topics, if it is new and no pubend takes events on them."""


class Listed(msgspec.Struct, frozen=True):
    """The rows of a list."""

    rows: Sequence[Any]
    """`ListedSubscription`, `ListedPubend`, `ListedUser`, or of a status `Gauge` and `RaisedAlarm`."""
    missing: Sequence[MissingAnswer] = ()
    """The nodes whose rows are not there."""
    hidden: int = 0
    """How many rows are not there because the client may not know of them."""


Result: TypeAlias = PublisherReady | Attached | Listed | Retired | AttachedTo | Ticks | KeyedPublished | None


class Answered(msgspec.Struct, frozen=True):
    """The answer to the request, publisher or subscription with this number."""

    request: int
    result: Result


class Failed(msgspec.Struct, frozen=True):
    """The request failed; or the publisher or subscription with this number is over. It is emitted once."""

    request: int
    error: GaplessError


class Receipted(msgspec.Struct, frozen=True, gc=False):
    """A batch is logged under these ticks, one per event (0 where the broker does not know the tick any more)."""

    publisher: int
    ticket: int
    pubend: PubendId
    ticks: Sequence[Tick]
    durable: bool


class NotPublished(msgspec.Struct, frozen=True):
    """A batch that will get no receipt."""

    publisher: int
    ticket: int
    error: GaplessError


class Arrived(msgspec.Struct, frozen=True):
    """There is something to take, or `drain` was called. It is emitted again only after `take` has found nothing."""

    subscription: int


class SettlementAnswered(msgspec.Struct, frozen=True):
    """A settlement of a shared subscription is durable."""

    subscription: int
    number: int
    lost: tuple[int, ...] = ()
    """The delivery numbers of what was not held any more: for that it did not take effect."""
    uncertain: bool = False
    """Whether the broker does not know any more if it took effect."""


Effect: TypeAlias = (
    AskCredentials
    | OpenLink
    | SendFrames
    | AskRoom
    | RaiseLimit
    | CloseLink
    | Connected
    | Delayed
    | Disconnected
    | Unreachable
    | Closed
    | Notice
    | Answered
    | Failed
    | Receipted
    | NotPublished
    | Arrived
    | SettlementAnswered
)
