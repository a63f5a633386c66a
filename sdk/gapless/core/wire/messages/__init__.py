"""The client protocol: every message between a client and its broker (protocol: session, delivery).

Control messages are msgpack arrays tagged with a number; none contains itself. Events travel in
binary messages, `Publish`, `PublishKeyed`, `Deliver` and `RangeEvents` (`gapless.core.wire.codec`). Every frame
but the first in each direction carries the session's number, so that a frame of an earlier session can be
ignored.

One module for each part of a client's life: `session`, `publishing`, `subscribing`, `asking`, `ranges`, `keyed`.
"""

from __future__ import annotations

from typing import TypeAlias

from gapless.core.wire.messages.asking import (
    AskStatus,
    Done,
    ListPubends,
    ListSubscriptions,
    PubendList,
    PubendRow,
    Retire,
    Retired,
    Status,
    SubscriptionList,
    SubscriptionRow,
    Unsubscribe,
)
from gapless.core.wire.messages.base import (
    PROTOCOL,
    ClientMessage,
    Code,
    ServerMessage,
)
from gapless.core.wire.messages.keyed import (
    KeyedPublished,
    PublishKeyed,
)
from gapless.core.wire.messages.publishing import (
    ClosePublisher,
    OpenPublisher,
    Publish,
    Published,
    PublisherOpened,
    PublishRefused,
    TickRun,
)
from gapless.core.wire.messages.ranges import (
    AskBound,
    AskEarliest,
    AskHeads,
    Attach,
    AttachedTo,
    EndLease,
    EndRead,
    Lease,
    Leased,
    LeaseLost,
    RangeEvents,
    RangeGap,
    RangeRead,
    ReadOn,
    ReadRange,
    Settle,
    Target,
    Ticks,
)
from gapless.core.wire.messages.session import (
    Alive,
    Challenge,
    Closing,
    Goodbye,
    Heartbeat,
    Hello,
    Proof,
    Refused,
    Welcome,
)
from gapless.core.wire.messages.subscribing import (
    Acknowledge,
    Acknowledged,
    Credit,
    Deliver,
    Detach,
    Detached,
    Gap,
    InUse,
    Position,
    PubendNumber,
    RealTick,
    RequestFailed,
    Silence,
    StartAt,
    Subscribe,
    Subscribed,
)

__all__ = [
    "PROTOCOL",
    "Acknowledge",
    "Acknowledged",
    "Alive",
    "AnyClientMessage",
    "AnyServerMessage",
    "AskBound",
    "AskEarliest",
    "AskHeads",
    "AskStatus",
    "Attach",
    "AttachedTo",
    "Challenge",
    "ClientMessage",
    "ClosePublisher",
    "Closing",
    "Code",
    "Credit",
    "Deliver",
    "Detach",
    "Detached",
    "Done",
    "EndLease",
    "EndRead",
    "Gap",
    "Goodbye",
    "Heartbeat",
    "Hello",
    "InUse",
    "KeyedPublished",
    "Lease",
    "LeaseLost",
    "Leased",
    "ListPubends",
    "ListSubscriptions",
    "OpenPublisher",
    "Position",
    "Proof",
    "PubendList",
    "PubendNumber",
    "PubendRow",
    "Publish",
    "PublishKeyed",
    "PublishRefused",
    "Published",
    "PublisherOpened",
    "RangeEvents",
    "RangeGap",
    "RangeRead",
    "ReadOn",
    "ReadRange",
    "RealTick",
    "Refused",
    "RequestFailed",
    "Retire",
    "Retired",
    "ServerMessage",
    "Settle",
    "Silence",
    "StartAt",
    "Status",
    "Subscribe",
    "Subscribed",
    "SubscriptionList",
    "SubscriptionRow",
    "Target",
    "TickRun",
    "Ticks",
    "Unsubscribe",
    "Welcome",
]

AnyClientMessage: TypeAlias = (
    Hello
    | Heartbeat
    | Goodbye
    | OpenPublisher
    | ClosePublisher
    | Subscribe
    | Credit
    | Acknowledge
    | Detach
    | Unsubscribe
    | ListSubscriptions
    | ListPubends
    | Retire
    | AskStatus
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
    | Challenge
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
    | Status
    | AttachedTo
    | Ticks
    | Leased
    | LeaseLost
    | RangeGap
    | RangeRead
    | KeyedPublished
)
