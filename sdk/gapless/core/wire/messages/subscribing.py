"""Subscribing: attaching to subscriptions, deliveries, credit and acknowledgements."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import msgspec

from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.delivered import DeliveredColumns
from gapless.core.wire.messages.base import (
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
from gapless.core.wire.messages.sharing import Sharing
from gapless.core.wire.token_room import ID_BYTES_MAX, PUBENDS_MAX


class Position(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A tick of a pubend."""

    pubend: PubendId
    tick: RealTick


class Acknowledged(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Up to where a pubend is acknowledged, and the last event at or below that which was handed out (or 0)."""

    pubend: PubendId
    tick: RealTick
    event: RealTick


class StartAt(str, Enum):
    """Where a new subscription begins."""

    LATEST = "latest"
    EARLIEST = "earliest"
    TIME = "time"
    TOKEN = "token"


class InUse(str, Enum):
    """What to do if the subscription has another consumer."""

    ERROR = "error"
    WAIT = "wait"
    TAKEOVER = "takeover"


class Order(str, Enum):
    """In which order the events of several pubends are delivered."""

    PUBEND = "pubend"
    """Each pubend in its own order, the pubends independently."""
    TOTAL = "total"
    """All pubends of a group in one order."""


class OnChange(str, Enum):
    """What to do if the subscription exists with another filter than the one asked for."""

    ERROR = "error"
    KEEP_POSITION = "keep_position"
    """It gets the new filter, and goes on where it stands."""
    JMS = "jms"
    """It is removed and made anew at the latest tick, as the Jakarta Messaging specification has it."""


class Subscribe(ClientMessage, frozen=True, tag=20):
    """Attaches to a subscription, which is created if `sid` is 0 and it does not exist.

    `positions` None: continue at the acknowledged position (or as `start` says, on creation). With `sid`: attach to
    exactly that subscription and generation, and never create.
    """

    request: Number
    name: str | None
    """The name; None if it is not durable."""
    topics: tuple[str, ...]
    selector: str
    start: StartAt
    start_wall: Wall
    """In milliseconds since 1970, for StartAt.TIME, and when a subscription that began so is made again; else 0."""
    positions: list[Position] | None
    token_sid: Number
    """The subscription, generation and seal in the token; 0, 0 and b"" without a token."""
    token_generation: Number
    token_seal: Seal
    acknowledged: list[Acknowledged]
    """The client's last acknowledgements, repeated."""
    in_use: InUse
    credit_events: Number
    credit_bytes: Number
    sid: Number = 0
    generation: Number = 0
    home: Home = ""
    """The SHB that gave `sid`; "" if it told none."""
    token_home: Home = ""
    """The home in the token; "" without one."""
    order: Order = Order.PUBEND
    commits: bool = False
    """Whether the home keeps the consumer's position: it commits, and hands nothing out before that is durable."""
    attempt: Number = 0
    """Counts the requests of a client's `process` to attach, over all its connections: of two for one consumer, which
    may come over two brokers, the later one holds. 0: it did not count."""
    no_local: bool = False
    """Whether it leaves out events whose JMSXAppID is the client's own: its client id or, without one, its instance."""
    on_change: OnChange = OnChange.ERROR
    """With `sid` it does not count: who attaches again changes nothing."""
    epoch: Number = 0
    """Where a consumer has come again what it did not commit: the epoch that it had. 0: it begins."""
    process: Process = ""
    """Whose count `attempt` is; "": that of the connection alone, of an older client."""
    confirms: Number = 0
    """The number of the `RequestFailed` that has asked whether the request is still wanted; 0: it was not asked."""
    asked: Number = 0
    """When the application asked for this consumer, in the same count: all its requests have this number. Of two
    consumers of a `process` the one that was asked for later holds. 0: of an older client, whose `attempt` counts."""
    sharing: Sharing | None = None
    """How it takes part in a shared subscription; None: it is not shared."""


class Attempts(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """How often an event was durably taken before it was handed out, and never committed."""

    pubend: PubendId
    tick: Tick
    count: int


class Unit(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What an application is handed between two commits: events of a pubend, the first and the last of them."""

    pubend: PubendId
    first: RealTick
    last: RealTick
    counted: bool = False
    """Whether it may have been handed out before: then it is one event, and counts as an attempt."""
    resolves: Annotated[tuple[Number, ...], msgspec.Meta(max_length=64)] = ()
    """The numbers of each `Earlier` whose first event this is."""


class Earlier(msgspec.Struct, array_like=True, frozen=True):
    """What may have been handed out, and was not committed, while the subscription had another filter.

    Only events that this filter selects count.
    """

    number: int
    """Another one has another number."""
    topics: tuple[str, ...]
    selector: str
    firsts: tuple[Position, ...] = ()
    """Of these pubends the first event that is not committed may have been; up to where it was sent."""
    units: tuple[Position, ...] = ()
    """Up to where all events may have been."""
    attempts: tuple[Attempts, ...] = ()


class Subscribed(ServerMessage, frozen=True, tag=20):
    """Answers Subscribe. Messages of `sid` follow, from `positions` on."""

    request: int
    sid: int
    """The subscription's id in this session."""
    generation: int
    seal: bytes
    created: bool
    positions: list[Position]
    home: Home = ""
    """The SHB that keeps the subscription; "" if this broker is in no network."""
    home_sid: int = 0
    """Its id there, which its tokens have, if it is attached at another SHB; else 0."""
    group: str = ""
    """The group whose events come in total order; "" without one."""
    epoch: int = 0
    """Of the commit record, if the consumer commits; else 0. It is durable, as is all that the answer names."""
    doubt: bool = False
    """Whether the first event of each pubend may have been handed out to somebody who did not say so."""
    cleared: tuple[PubendId, ...] = ()
    """The pubends on which it is not in doubt all the same."""
    attempts: tuple[Attempts, ...] = ()
    units: tuple[Position, ...] = ()
    """Up to where events may have been handed out in batches that were not committed."""
    no_local: bool = False
    """Whether it leaves out what was asked to be left out; a broker that is too old says nothing."""
    key: str = ""
    """How pubends know the subscription, if the consumer commits; else ""."""
    claim: int = 0
    """The epoch under which its home has claimed it at `enlisted`."""
    enlisted: tuple[PubendId, ...] = ()
    """The pubends at which transactions may store its position."""
    earlier: tuple[Earlier, ...] = ()
    """Of the time before the filter changed, of which `doubt`, `attempts` and `units` say nothing."""
    untaken: tuple[str, ...] = ()
    """Some topics of one that was created just now, if no pubend that the SHB knows takes events on them."""


class RequestFailed(ServerMessage, frozen=True, tag=21):
    """Answers any request with a number: it was refused."""

    request: int
    code: Code
    reason: str
    expression: str = ""
    position: int = 0
    node: str = ""
    """The node that answers it, if it is refused because another one does; else ""."""
    confirm: int = 0
    """Whoever still wants to take something over from somebody else asks again, with this number; 0: as `code` says."""


class Credit(ClientMessage, frozen=True, tag=21):
    """Grants more events and bytes to a subscription.

    A delivery costs its events, and the bytes after its head: count, rows and events. The broker never sends more
    events than it has credit for. While any bytes are left, one delivery may cost more bytes than that, so that a large
    event does not get stuck.
    """

    sid: Number
    events: Number
    bytes: Number
    request: Number = 0
    """The number of the Subscribe that it belongs to, as in Detach."""


class Acknowledge(ClientMessage, frozen=True, tag=22):
    """The client is done with everything up to these positions. It is cumulative."""

    sid: Number
    positions: Annotated[list[Acknowledged], msgspec.Meta(max_length=PUBENDS_MAX)]


class Detach(ClientMessage, frozen=True, tag=23):
    """Ends the consumption of a subscription in this session. A durable subscription lives on."""

    sid: Number
    request: Number = 0
    """The number of the Subscribe that began it: a consumer of the same session that took over is not detached.

    0: any.
    """
    handed: Annotated[list[Unit], msgspec.Meta(max_length=PUBENDS_MAX)] | None = None
    """Of a consumer that commits: what was handed out and not committed. None: it does not say."""
    cleared: Annotated[list[PubendId], msgspec.Meta(max_length=PUBENDS_MAX)] | None = None
    """Of a consumer that was in doubt when it came: on which pubends it no longer was. None: there was no doubt."""


class Commit(ClientMessage, frozen=True, tag=28):
    """The application is done with everything up to these positions. Committed answers, durably."""

    sid: Number
    epoch: Number
    """Of the commit record; a commit of an older one is not taken."""
    number: Number
    """Counts the commits of a consumer."""
    positions: Annotated[list[Acknowledged], msgspec.Meta(max_length=PUBENDS_MAX)]
    unit: Unit | None = None
    """What is handed out next, if its home has to know that before: a batch, or what may have been handed out."""
    enlists: Annotated[PubendId, msgspec.Meta(max_length=ID_BYTES_MAX)] = ""
    """A pubend at which a transaction is going to store the position; it is enlisted and claimed before the answer."""


class Committed(ServerMessage, frozen=True, tag=28):
    """Answers Commit, and all before it: they are durable."""

    sid: int
    number: int


class Detached(ServerMessage, frozen=True, tag=23):
    """The broker has ended the consumption of a subscription: taken over, removed, forbidden, or its token is bad."""

    sid: int
    code: Code
    reason: str


class Delayed(ServerMessage, frozen=True, tag=27):
    """A subscription is attached, and what comes next has to wait, for this reason."""

    sid: int
    reason: str


class PubendNumber(ServerMessage, frozen=True, tag=24):
    """From now on `number` stands for the pubend in this session."""

    number: int
    pubend: PubendId


class DeliverSilence(ServerMessage, frozen=True, tag=25):
    """No (further) matching event up to `upto`, for these subscriptions, or for all attached ones."""

    number: int
    upto: Tick
    sids: list[int] | None


class GapReason(Enum):
    """The possible values of `Gap.reason`: why a broker cannot deliver events any more."""

    RELEASED_EARLY = "released early"
    """By an administrator's policy the pubend has given the events up before every subscription was done with them."""
    DAMAGED = "damaged"
    """The events could not be read any more, and an operator has given them up."""
    TWICE = "the broker ran twice"
    """Two processes of the pubend's broker ran at a time, on copies of one volume perhaps. The one that is shut out may
    have logged events that the other one does not have."""
    CUT = "lost by the log"
    """The log of the pubend is not the broker's own, and has lost them.

    What the subscription had matched was cut off; or the log is gone, or was trimmed, before the broker had read it."""
    TOO_LARGE = "too large to deliver"
    """The event is in no frame that a client takes: a log of others has larger ones, or the limit was lowered."""
    VOLUME_LOST = "the volume of the pubend's broker was lost"
    """The log was in a volume that was lost and made anew, so the pubend is gone: another one is in its place."""
    TOO_LATE = "too late for the total order"
    """The pubend is in place of one that is gone with its volume, and the clock of its broker was set back.

    So the total order had come past the places of these events before they were published."""
    RETIRED = "this broker was retired"
    """The pubend no longer counted this SHB, and gave up events that it had not delivered (T10)."""


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
