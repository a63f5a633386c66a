"""The client protocol: every message between a client and its broker (protocol: session, delivery).

Control messages are msgpack arrays tagged with a number; none of them contains itself. Events travel in binary
messages: `Publish`, `PublishKeyed`, `Deliver`, `DeliverHeld` and `RangeEvents` (`gapless.core.wire.codec`). Every frame
except the first in each direction carries the number of the session, so that a frame of an earlier session can be
ignored.

There is one module for each part of a client's life: `session`, `publishing`, `subscribing`, `asking`, `ranges`,
`sharing`, `keyed`, `users`.
"""

from __future__ import annotations

from typing import TypeAlias

from gapless.core.wire.messages.asking import (
    AskStatus,
    Done,
    ListedPubend,
    ListedSharing,
    ListedSubscription,
    ListPubends,
    ListSubscriptions,
    MissingAnswer,
    PubendList,
    Retire,
    Retired,
    Status,
    SubscriptionList,
    Unsubscribe,
)
from gapless.core.wire.messages.base import (
    PROTOCOL,
    ClientMessage,
    Code,
    RealTick,
    ServerMessage,
)
from gapless.core.wire.messages.keyed import (
    KeyedPublished,
    PublishKeyed,
)
from gapless.core.wire.messages.publishing import (
    ClosePublisher,
    OpenPublisher,
    PositionsStored,
    Publish,
    Published,
    PublisherOpened,
    PublishRefused,
    TickRun,
)
from gapless.core.wire.messages.ranges import (
    AcknowledgeDurably,
    AskBound,
    AskEarliest,
    AskHeads,
    Attach,
    AttachedTo,
    EndLease,
    EndRead,
    Leased,
    LeaseLost,
    RangeEvents,
    RangeGap,
    RangeRead,
    ReadOn,
    ReadRange,
    TakeLease,
    Target,
    Ticks,
)
from gapless.core.wire.messages.session import (
    BrokerHeartbeat,
    Challenge,
    Closing,
    Goodbye,
    Heartbeat,
    Hello,
    HelloRefused,
    Proof,
    Renew,
    Renewed,
    Waiting,
    Welcome,
)
from gapless.core.wire.messages.sharing import (
    DeliverHeld,
    DeliverHeldGap,
    Extend,
    HoldLost,
    Holds,
    Kind,
    Settle,
    Settled,
    Sharing,
    Take,
    Taken,
    Verdict,
)
from gapless.core.wire.messages.subscribing import (
    Acknowledge,
    Acknowledged,
    Attempts,
    Commit,
    Committed,
    Credit,
    Delayed,
    Deliver,
    DeliverGap,
    DeliverSilence,
    Detach,
    Detached,
    Earlier,
    GapReason,
    InUse,
    OnChange,
    Order,
    Position,
    PubendNumber,
    RequestFailed,
    StartAt,
    Subscribe,
    Subscribed,
    Unit,
)
from gapless.core.wire.messages.users import (
    AddUser,
    ChangeUser,
    ListedUser,
    ListUsers,
    RemoveUser,
    UserList,
    Verifier,
)

__all__ = [
    "PROTOCOL",
    "Acknowledge",
    "AcknowledgeDurably",
    "Acknowledged",
    "AddUser",
    "AnyClientMessage",
    "AnyServerMessage",
    "AskBound",
    "AskEarliest",
    "AskHeads",
    "AskStatus",
    "Attach",
    "AttachedTo",
    "Attempts",
    "BrokerHeartbeat",
    "Challenge",
    "ChangeUser",
    "ClientMessage",
    "ClosePublisher",
    "Closing",
    "Code",
    "Commit",
    "Committed",
    "Credit",
    "Delayed",
    "Deliver",
    "DeliverGap",
    "DeliverHeld",
    "DeliverHeldGap",
    "DeliverSilence",
    "Detach",
    "Detached",
    "Done",
    "Earlier",
    "EndLease",
    "EndRead",
    "Extend",
    "GapReason",
    "Goodbye",
    "Heartbeat",
    "Hello",
    "HelloRefused",
    "HoldLost",
    "Holds",
    "InUse",
    "KeyedPublished",
    "Kind",
    "LeaseLost",
    "Leased",
    "ListPubends",
    "ListSubscriptions",
    "ListUsers",
    "ListedPubend",
    "ListedSharing",
    "ListedSubscription",
    "ListedUser",
    "MissingAnswer",
    "OnChange",
    "OpenPublisher",
    "Order",
    "Position",
    "PositionsStored",
    "Proof",
    "PubendList",
    "PubendNumber",
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
    "RemoveUser",
    "Renew",
    "Renewed",
    "RequestFailed",
    "Retire",
    "Retired",
    "ServerMessage",
    "Settle",
    "Settled",
    "Sharing",
    "StartAt",
    "Status",
    "Subscribe",
    "Subscribed",
    "SubscriptionList",
    "Take",
    "TakeLease",
    "Taken",
    "Target",
    "TickRun",
    "Ticks",
    "Unit",
    "Unsubscribe",
    "UserList",
    "Verdict",
    "Verifier",
    "Waiting",
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
    | Commit
    | Detach
    | Take
    | Settle
    | Extend
    | Unsubscribe
    | ListSubscriptions
    | ListPubends
    | Retire
    | AskStatus
    | Renew
    | AddUser
    | ChangeUser
    | RemoveUser
    | ListUsers
    | Attach
    | AskHeads
    | AskBound
    | AskEarliest
    | AcknowledgeDurably
    | TakeLease
    | EndLease
    | ReadRange
    | ReadOn
    | EndRead
)
AnyServerMessage: TypeAlias = (
    Welcome
    | Challenge
    | Waiting
    | Renewed
    | HelloRefused
    | BrokerHeartbeat
    | Closing
    | PublisherOpened
    | Published
    | PositionsStored
    | PublishRefused
    | Subscribed
    | RequestFailed
    | Detached
    | Delayed
    | Committed
    | PubendNumber
    | DeliverSilence
    | DeliverGap
    | DeliverHeldGap
    | Taken
    | Settled
    | HoldLost
    | Done
    | SubscriptionList
    | PubendList
    | Retired
    | Status
    | UserList
    | AttachedTo
    | Ticks
    | Leased
    | LeaseLost
    | RangeGap
    | RangeRead
    | KeyedPublished
)
