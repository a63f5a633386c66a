"""The client protocol: every message between a client and its broker (algorithms.md 3.10).

Control messages are msgpack arrays tagged with a number; none contains itself. Events travel in
binary messages, `Publish`, `PublishKeyed`, `Deliver` and `RangeEvents` (`gapless.core.codec`). Every frame
but the first in each direction carries the session's number, so that a frame of an earlier session can be
ignored.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated, TypeAlias

import msgspec

from gapless.core.events import DeliveredColumns, EventColumns
from gapless.core.ticks import FOREVER, PubendId, ShbId, Tick

PROTOCOL = 1
"""The version of the client protocol that this build speaks."""


class Code(str, Enum):
    """Why a request was refused. The client turns each into one error class."""

    CONFIGURATION = "configuration"
    UNAUTHORIZED = "unauthorized"
    NETWORK_MISMATCH = "network-mismatch"
    PROTOCOL_VERSION = "protocol-version"
    INVALID_SELECTOR = "invalid-selector"
    INVALID_TOPIC = "invalid-topic"
    INVALID_MESSAGE = "invalid-message"
    INVALID_TOKEN = "invalid-token"
    TOKEN_MISMATCH = "token-mismatch"
    TOKEN_AHEAD = "token-ahead"
    NOT_FOUND = "subscription-not-found"
    IN_USE = "subscription-in-use"
    TAKEN_OVER = "subscription-taken-over"
    MISMATCH = "subscription-mismatch"
    UNSUBSCRIBED = "unsubscribed"
    FENCED = "publisher-fenced"
    REJECTED = "publish-rejected"
    RESUME = "publish-resume"
    RETRY = "retry"
    CLOSED = "closed"


class ClientMessage(msgspec.Struct, array_like=True, frozen=True, tag_field="kind"):
    """A message from a client."""


class ServerMessage(msgspec.Struct, array_like=True, frozen=True, tag_field="kind"):
    """A message to a client."""


# ------------------------------------------------------------------------------------------ session


class Hello(ClientMessage, frozen=True, tag=1):
    """Opens a session; the first frame of a connection, and the only one parsed before authentication."""

    protocol: int
    network: str
    """The network the client knows it is in; "" when it does not know yet."""
    client_id: str
    instance: str
    """Random per client object: the same instance replaces its own earlier session at once."""
    credentials: bytes = b""


class Welcome(ServerMessage, frozen=True, tag=1):
    """Answers Hello."""

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


class Refused(ServerMessage, frozen=True, tag=2):
    """Answers Hello; the connection is closed then. RETRY: try again later, or elsewhere."""

    code: Code
    reason: str


class Heartbeat(ClientMessage, frozen=True, tag=2):
    """I am alive (client)."""


class Alive(ServerMessage, frozen=True, tag=3):
    """I am alive (broker)."""


class Goodbye(ClientMessage, frozen=True, tag=3):
    """The client ends its session in order."""


class Closing(ServerMessage, frozen=True, tag=4):
    """The broker ends the session in order (shutdown); the client connects elsewhere or again."""

    reason: str


# --------------------------------------------------------------------------------------- publishing


class TickRun(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An arithmetic run of `count` ticks: first, first + step, and so on."""

    first: Tick
    step: int
    count: int


class OpenPublisher(ClientMessage, frozen=True, tag=10):
    """Opens a publisher, or opens it again on a new connection (a higher attempt of the same instance)."""

    publisher: int
    """The session's own number for it, chosen by the client."""
    name: str
    instance: str
    attempt: int
    topic: str | None
    pubend: PubendId = ""
    """The pubend it is on since it was first opened; "" the first time."""
    epoch: int = 0
    """The epoch it had last, 0 before it had any: one that comes back does not fence who has come since."""


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

    REJECTED, INVALID_*: that batch is refused for good, and nothing of it was logged. FENCED: the
    publisher is over. RESUME: send again from `sequence` on. RETRY: try again after a while (a full
    disk, a pubend that is not there yet): send again from `sequence` on. The refusal of a batch speaks
    for all batches sent before it came: those behind it get no answer of their own.
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


# -------------------------------------------------------------------------------------- subscribing


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

    request: int
    name: str | None
    """None: not durable."""
    topics: tuple[str, ...]
    selector: str
    start: StartAt
    start_wall: int
    """For StartAt.TIME, and when what began so is made again: milliseconds since 1970; else 0."""
    positions: list[Position] | None
    token_sid: int
    """Which subscription, generation and seal the token names; 0, 0 and b"" without one."""
    token_generation: int
    token_seal: bytes
    acknowledged: list[Acknowledged]
    """The client's last acknowledgement, repeated."""
    in_use: InUse
    credit_events: int
    credit_bytes: int
    sid: int = 0
    generation: int = 0


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

    sid: int
    events: int
    bytes: int
    request: int = 0
    """The number of the Subscribe that it belongs to, as in Detach."""


class Acknowledge(ClientMessage, frozen=True, tag=22):
    """Cumulative: everything up to these positions is done with."""

    sid: int
    positions: list[Acknowledged]


class Detach(ClientMessage, frozen=True, tag=23):
    """Ends the consumption of a subscription in this session; a durable one lives on."""

    sid: int
    request: int = 0
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


class Silence(ServerMessage, frozen=True, tag=25):
    """Nothing (more) that matches up to `upto`, for these subscriptions, or for all attached ones."""

    number: int
    upto: Tick
    sids: list[int] | None


class Gap(ServerMessage, frozen=True, tag=26):
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


# ------------------------------------------------------------------------------------------- asking


class Unsubscribe(ClientMessage, frozen=True, tag=30):
    """Removes a durable subscription."""

    request: int
    name: str
    client_id: str


class Done(ServerMessage, frozen=True, tag=30):
    """A request without an answer of its own has been carried out, durably."""

    request: int


class ListSubscriptions(ClientMessage, frozen=True, tag=31):
    """Asks for all durable subscriptions."""

    request: int


class SubscriptionRow(msgspec.Struct, array_like=True, frozen=True):
    """One durable subscription."""

    sid: int
    client_id: str
    name: str
    topics: tuple[str, ...]
    selector: str
    connected: bool
    acknowledged: list[Position]
    lag_events: int
    lag_seconds: float


class SubscriptionList(ServerMessage, frozen=True, tag=31):
    """Answers ListSubscriptions."""

    request: int
    rows: list[SubscriptionRow]
    more: bool = False
    """Whether another one follows, with more rows."""


class ListPubends(ClientMessage, frozen=True, tag=32):
    """Asks for all pubends of the broker."""

    request: int


class PubendRow(msgspec.Struct, array_like=True, frozen=True):
    """One pubend."""

    pubend: PubendId
    topics: tuple[str, ...]
    created: Tick
    lost: Tick
    """Everything up to here is gone from the log."""
    newest: Tick
    """The newest event, or 0."""
    stable: Tick
    """Everything up to here is decided and durable."""
    released: Tick
    """Every durable subscription has everything up to here behind it."""
    log_bytes: int
    publishers: int
    shbs: tuple[ShbId, ...] = ()
    """The SHBs that its log waits for."""
    delivered: Tick = 0
    """Each of them has everything up to here in its PFS."""
    pinned_bytes: int = 0
    """Of the log: above what everybody is done with."""
    undelivered_bytes: int = 0
    """Of the log: above `delivered`."""
    holds: tuple[tuple[ShbId, Tick, int], ...] = ()
    """SHBs that need more kept than they have reported: from which tick on, and how many bytes are above it."""
    policy: str = ""
    """What is released early; "": nothing."""


class PubendList(ServerMessage, frozen=True, tag=32):
    """Answers ListPubends."""

    request: int
    rows: list[PubendRow]


class Retire(ClientMessage, frozen=True, tag=33):
    """An administrator gives an SHB up for good, at all pubends of this broker (algorithms.md T10). Idempotent."""

    request: int
    shb: str
    """Its id, or the name of its node, if no other SHB is called so."""
    only_look: bool = False
    """Nothing is done; the answer says what would be."""


class Retired(ServerMessage, frozen=True, tag=33):
    """Answers Retire, durably."""

    request: int
    shb: ShbId
    pubends: list[PubendId]
    """Those that have counted it until now; none if it had been retired before, and has not come back."""
    before: bool
    """Whether it had been retired before."""


# ------------------------------------------------------------------------------------------- ranges


class Target(msgspec.Struct, array_like=True, frozen=True):
    """Which durable subscription of the session's client is meant.

    By its name; or, with `sid`, by its id and generation, as a token has them.
    """

    name: str
    sid: int = 0
    generation: int = 0


class Attach(ClientMessage, frozen=True, tag=40):
    """Creates a durable subscription if it does not exist, and consumes nothing. The fields are Subscribe's."""

    request: int
    name: str
    topics: tuple[str, ...]
    selector: str
    start: StartAt
    start_wall: int
    positions: list[Position] | None
    token_sid: int
    token_generation: int
    token_seal: bytes


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

    request: int
    target: Target | None
    after: list[Position] | None
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=600_000)]


class Ticks(ServerMessage, frozen=True, tag=41):
    """Answers AskHeads, AskBound and AskEarliest."""

    request: int
    positions: list[Position]


class AskBound(ClientMessage, frozen=True, tag=42):
    """Asks up to where the heads' ranges behind `start` have no more than so many events, and bytes of events."""

    request: int
    target: Target
    start: list[Position]
    max_events: Annotated[int, msgspec.Meta(ge=1)] | None
    max_bytes: Annotated[int, msgspec.Meta(ge=1)] | None


class AskEarliest(ClientMessage, frozen=True, tag=43):
    """Asks up to where nothing is left to be read; with `target`, of what that subscription may still read."""

    request: int
    target: Target | None


class Settle(ClientMessage, frozen=True, tag=44):
    """A subscription that is read by ranges is done with everything up to here. Answered by Done, durably."""

    request: int
    target: Target
    token_seal: bytes
    positions: list[Position]


class Lease(ClientMessage, frozen=True, tag=45):
    """Takes a subscription for this session alone, until the session or the lease ends."""

    request: int
    target: Target
    owner: str
    """Who, for people; the same owner replaces himself at once."""
    in_use: InUse


class Leased(ServerMessage, frozen=True, tag=45):
    """Answers Lease."""

    request: int
    sid: int


class EndLease(ClientMessage, frozen=True, tag=46):
    """Gives a lease back, or no longer waits for it."""

    request: int


class LeaseLost(ServerMessage, frozen=True, tag=46):
    """A lease has ended: taken over, or its subscription was removed."""

    request: int
    code: Code
    reason: str


class ReadRange(ClientMessage, frozen=True, tag=47):
    """Reads what a subscription matches in (lo, hi] of a pubend, as far as the credit goes.

    Answered by RangeEvents and RangeGap in tick order, then RangeRead. Reading changes nothing.
    """

    request: int
    target: Target
    pubend: PubendId
    lo: RealTick
    hi: RealTick
    credit_events: int
    credit_bytes: int


class RangeGap(ServerMessage, frozen=True, tag=47):
    """Events in (start, end] of the range may have been lost."""

    request: int
    start: Tick
    end: Tick
    reason: str


class ReadOn(ClientMessage, frozen=True, tag=48):
    """Grants a range read more events and bytes, counted as in Credit."""

    request: int
    events: int
    bytes: int


class RangeRead(ServerMessage, frozen=True, tag=48):
    """The whole range was told."""

    request: int


class EndRead(ClientMessage, frozen=True, tag=49):
    """Nobody wants the rest of a range."""

    request: int


class RangeEvents(msgspec.Struct, frozen=True):
    """Events of a range. Binary on the wire."""

    request: int
    columns: DeliveredColumns


class PublishKeyed(msgspec.Struct, frozen=True):
    """Events index, index + 1, … of a producer's epoch; those at or below its mark are dropped. Binary on the wire."""

    request: int
    epoch: int
    index: int
    producer: str
    topic: str
    """What the producer is placed by; "": by its name alone."""
    events: EventColumns


class KeyedPublished(ServerMessage, frozen=True, tag=50):
    """Answers PublishKeyed, durably: the ticks of the events that were logged, the last ones of the batch."""

    request: int
    pubend: PubendId
    ticks: list[TickRun]


AnyClientMessage: TypeAlias = (
    Hello
    | Heartbeat
    | Goodbye
    | OpenPublisher
    | Subscribe
    | Credit
    | Acknowledge
    | Detach
    | Unsubscribe
    | ListSubscriptions
    | ListPubends
    | Retire
    | Attach
    | AskHeads
    | AskBound
    | AskEarliest
    | Settle
    | Lease
    | EndLease
    | ReadRange
    | ReadOn
    | EndRead
)
AnyServerMessage: TypeAlias = (
    Welcome
    | Refused
    | Alive
    | Closing
    | PublisherOpened
    | Published
    | PublishRefused
    | Subscribed
    | RequestFailed
    | Detached
    | PubendNumber
    | Silence
    | Gap
    | Done
    | SubscriptionList
    | PubendList
    | Retired
    | AttachedTo
    | Ticks
    | Leased
    | LeaseLost
    | RangeGap
    | RangeRead
    | KeyedPublished
)
