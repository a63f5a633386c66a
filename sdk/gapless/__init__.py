"""Durable publish/subscribe in which the application owns the position and every tick is accounted for."""

from gapless import sync
from gapless.client.ack_modes import AckMode
from gapless.client.batches import Batch
from gapless.client.connection import Connection, connect
from gapless.client.credentials import BearerToken, Password
from gapless.client.holds import HeldBatch
from gapless.client.listings import (
    AlarmInfo,
    BrokerStatus,
    Listing,
    MissingAnswer,
    PubendInfo,
    Retirement,
    SubscriptionInfo,
)
from gapless.client.messages import Message
from gapless.client.publisher import Publisher
from gapless.client.ranges.archives import Archive
from gapless.client.ranges.keyed import KeyedReceipt
from gapless.client.ranges.leasing import Lease
from gapless.client.ranges.reading import RangeReader
from gapless.client.receipts import Receipt, Recovery
from gapless.client.session import Session
from gapless.client.shared import SharedSubscription
from gapless.client.subscription import Subscription
from gapless.client.token_store import TokenStore
from gapless.client.transform import InputBatch, Transform
from gapless.core.client.consuming.held import HeldEvent
from gapless.core.client.consuming.items import Gap, Silence
from gapless.core.gauges import Gauge
from gapless.core.stream.events import Event
from gapless.core.wire.tokens import CheckpointToken
from gapless.errors import (
    ArchiveError,
    AuthenticationError,
    AuthorizationError,
    ConfigurationError,
    ConnectionClosedError,
    ConnectionRefusedByBrokerError,
    DescriptorsExhaustedError,
    GapError,
    GaplessError,
    HoldLostError,
    InvalidMessageError,
    InvalidSelectorError,
    InvalidTokenError,
    InvalidTopicError,
    LocalProtocolError,
    NoAnswerError,
    NodeTwiceError,
    PluginError,
    ProtocolError,
    PublisherFencedError,
    PublishError,
    PublishRejectedError,
    PublishUncertainError,
    RecordsDamagedError,
    RemoteProtocolError,
    SettlementUncertainError,
    StaleTokenError,
    StorageError,
    SubscriptionElsewhereError,
    SubscriptionError,
    SubscriptionInUseError,
    SubscriptionMismatchError,
    SubscriptionNotFoundError,
    SubscriptionTakenOverError,
    TokenAheadError,
    TokenMismatchError,
    TransactionInDoubtError,
    TransactionRolledBackError,
    VolumeAbsentError,
    VolumeCorruptError,
    VolumeFailedError,
    VolumeForeignError,
    VolumeFullError,
    VolumeLockedError,
)
from gapless.selectors.selector import Selector

__all__ = [
    "AckMode",
    "AlarmInfo",
    "Archive",
    "ArchiveError",
    "AuthenticationError",
    "AuthorizationError",
    "Batch",
    "BearerToken",
    "BrokerStatus",
    "CheckpointToken",
    "ConfigurationError",
    "Connection",
    "ConnectionClosedError",
    "ConnectionRefusedByBrokerError",
    "DescriptorsExhaustedError",
    "Event",
    "Gap",
    "GapError",
    "GaplessError",
    "Gauge",
    "HeldBatch",
    "HeldEvent",
    "HoldLostError",
    "InputBatch",
    "InvalidMessageError",
    "InvalidSelectorError",
    "InvalidTokenError",
    "InvalidTopicError",
    "KeyedReceipt",
    "Lease",
    "Listing",
    "LocalProtocolError",
    "Message",
    "MissingAnswer",
    "NoAnswerError",
    "NodeTwiceError",
    "Password",
    "PluginError",
    "ProtocolError",
    "PubendInfo",
    "PublishError",
    "PublishRejectedError",
    "PublishUncertainError",
    "Publisher",
    "PublisherFencedError",
    "RangeReader",
    "Receipt",
    "RecordsDamagedError",
    "Recovery",
    "RemoteProtocolError",
    "Retirement",
    "Selector",
    "Session",
    "SettlementUncertainError",
    "SharedSubscription",
    "Silence",
    "StaleTokenError",
    "StorageError",
    "Subscription",
    "SubscriptionElsewhereError",
    "SubscriptionError",
    "SubscriptionInUseError",
    "SubscriptionInfo",
    "SubscriptionMismatchError",
    "SubscriptionNotFoundError",
    "SubscriptionTakenOverError",
    "TokenAheadError",
    "TokenMismatchError",
    "TokenStore",
    "TransactionInDoubtError",
    "TransactionRolledBackError",
    "Transform",
    "VolumeAbsentError",
    "VolumeCorruptError",
    "VolumeFailedError",
    "VolumeForeignError",
    "VolumeFullError",
    "VolumeLockedError",
    "connect",
    "sync",
]

__version__ = "0.1.0"
