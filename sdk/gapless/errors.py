"""Every error gapless raises, in one tree.

    GaplessError
    ├── ConfigurationError            a setting, an address or a name is wrong; says which
    │   ├── PluginError               a plugin is unknown, doubled, incomplete, or its extra is not installed
    │   ├── NodeTwiceError            a later process of the same node runs, and counts
    │   └── SubscriptionElsewhereError  another node keeps the subscription; carries `.node`
    ├── InvalidSelectorError          a selector does not parse or type-check; carries `.position`
    ├── InvalidTopicError             a topic name or topic pattern is malformed
    ├── InvalidMessageError           a body, a property or a whole event is not allowed
    ├── InvalidTokenError             a checkpoint token is garbled
    │   └── TokenMismatchError        a token of another network, subscription or pubend epoch
    │       └── TokenAheadError       a token where nobody can have come: ahead of everything, or of lost data
    ├── StaleTokenError               the position belongs to another consumer, or stands further on already
    ├── AuthorizationError            this client is not allowed to do that
    ├── NoAnswerError                 another node of the network, which was asked, has not answered
    ├── SubscriptionError             a subscription cannot be used as asked
    │   ├── SubscriptionNotFoundError it does not exist (any more)
    │   ├── SubscriptionInUseError    another consumer holds it
    │   ├── SubscriptionTakenOverError  another consumer has taken it from this one
    │   └── SubscriptionMismatchError it exists with other topics, another selector or order
    ├── GapError                      a gap was reached; carries `.gap`
    ├── HoldLostError                 what was settled was not held any more; carries `.events`
    ├── SettlementUncertainError      nobody knows whether a settlement took effect; carries `.events`
    ├── ArchiveError                  an archive is not there, not whole, in use, or gives what it should not
    ├── PublishError                  a publish did not succeed
    │   ├── PublishRejectedError      nothing was logged
    │   │   └── PublisherFencedError  a newer publisher of that name exists
    │   └── PublishUncertainError     closed before the answer: `recover()` tells
    ├── ConnectionClosedError         the connection was closed, by this side or for good
    │   └── ConnectionRefusedByBrokerError  the broker refused the handshake
    │       └── AuthenticationError   it does not take the credentials, or they must not be shown to it
    ├── ProtocolError                 a frame breaks the protocol
    │   ├── LocalProtocolError        this side did
    │   └── RemoteProtocolError       the other side did
    └── StorageError                  a storage plugin failed
        ├── VolumeLockedError         another process holds the volume
        ├── VolumeForeignError        the volume belongs to another node or network, or is no volume at all
        ├── VolumeAbsentError         there is no volume where one should be, or no longer
        ├── VolumeCorruptError        the volume lost or garbled something; it must not be served
        │   └── RecordsDamagedError   some records of a stream, and no others: the rest is served
        └── VolumeFailedError         a write or sync failed; reads work, writing needs a reopened volume
            ├── DescriptorsExhaustedError   the process may open no more files; the disk is as it was
            └── VolumeFullError       the disk is full

All of them pickle, with their attributes.
"""

from __future__ import annotations

from typing import Any


class GaplessError(Exception):
    """Base of every error raised by gapless on purpose."""


class ConfigurationError(GaplessError):
    """A setting, an address or a name is wrong; the message names it and says what to do."""


class PluginError(ConfigurationError):
    """A plugin is unknown, doubled, misspelt, or needs an extra that is not installed."""


class NodeTwiceError(ConfigurationError):
    """A later process of the same node runs, on a copy of its volume perhaps: this one is shut out by its network."""

    def __init__(self, message: str, later: int = 0) -> None:
        """`later`: the incarnation of that process."""
        super().__init__(message, later)
        self.message = message
        self.later = later

    def __str__(self) -> str:
        return self.message


class SubscriptionElsewhereError(ConfigurationError):
    """Another node of the network keeps the subscription, and it is read by ranges there alone.

    `node` is its name. A client with several addresses has tried each: none of them is that node, or it is away.
    """

    def __init__(self, message: str, node: str = "") -> None:
        super().__init__(message, node)
        self.message = message
        self.node = node

    def __str__(self) -> str:
        return self.message


class InvalidSelectorError(GaplessError):
    """A selector does not parse or does not type-check.

    `position` is the 0-based offset in `expression` at which it went wrong.
    """

    def __init__(self, message: str, expression: str = "", position: int = 0) -> None:
        super().__init__(message, expression, position)
        self.message = message
        self.expression = expression
        self.position = position

    def __str__(self) -> str:
        if not self.expression:
            return self.message
        return f"{self.message} (at position {self.position})\n  {self.expression}\n  {' ' * self.position}^"


class InvalidTopicError(GaplessError):
    """A topic name or a topic pattern is malformed."""


class InvalidMessageError(GaplessError):
    """A body, a property or a whole event is not allowed; nothing was sent."""


class InvalidTokenError(GaplessError):
    """A checkpoint token is truncated, garbled or of an unknown version."""


class TokenMismatchError(InvalidTokenError):
    """A checkpoint token names another network, another subscription, or another epoch of a pubend."""


class TokenAheadError(TokenMismatchError):
    """A token, or what is acknowledged, stands where nobody can have come: the broker has lost data, or never had it.

    Either it is ahead of everything that the pubend has; it is not taken, or its subscription would be silent for ever.
    Or it stands at an event that the broker never logged, in one of the latest sixteen times in which it was not
    running: then the broker has lost data since the token was made (was an old copy of its storage restored?).

    A position that a broker has handed out is never refused by the volume that it comes from. Not found out is a token
    of lost data that stands behind the silence after an event, or in a time before those sixteen: it is taken, and
    what was published since the loss is delivered.
    """


class StaleTokenError(GaplessError):
    """A position was not stored: another consumer has claimed it since, or one that stands further on is stored."""


class AuthorizationError(GaplessError):
    """This client, known for what it is, is not allowed to do that; says what."""


class NoAnswerError(GaplessError):
    """Another node of the network, which was asked by the broker of this connection, has not answered; says why."""


class SubscriptionError(GaplessError):
    """A subscription cannot be used as asked."""


class SubscriptionNotFoundError(SubscriptionError):
    """The subscription does not exist, or no longer."""


class SubscriptionInUseError(SubscriptionError):
    """Another consumer holds the subscription."""


class SubscriptionTakenOverError(SubscriptionError):
    """Another consumer has taken the subscription over."""


class SubscriptionMismatchError(SubscriptionError):
    """The subscription exists with other topics, another selector, no_local or order; see `on_change`."""


class GapError(GaplessError):
    """A gap was reached: events of its range may have been lost to early release.

    Raised once; the subscription's token then stands behind the gap. `gap` is the `Gap`.
    """

    def __init__(self, gap: Any) -> None:
        super().__init__(gap)
        self.gap = gap

    def __str__(self) -> str:
        return f"{self.gap}"


class HoldLostError(GaplessError):
    """Of a shared subscription: events were settled that this consumer did not hold any more.

    Another consumer has got them, or will get them: what was done with them here will be done again. `events` are
    these alone, and gaps; all others of the call are settled, durably.
    """

    def __init__(self, message: str, events: Any = ()) -> None:
        super().__init__(message, events)
        self.message = message
        self.events = events

    def __str__(self) -> str:
        return self.message


class SettlementUncertainError(GaplessError):
    """Of a shared subscription: it is not known whether what was said of `events` took effect.

    The subscription was closed before the broker answered; or the broker was asked again, after a day without a
    connection, and does not know any more. They may be settled, or may come again, and are marked then.
    """

    def __init__(self, message: str, events: Any = ()) -> None:
        super().__init__(message, events)
        self.message = message
        self.events = events

    def __str__(self) -> str:
        return self.message


class ArchiveError(GaplessError):
    """An archive is not there, not whole, not this one, or in use; or it gives what it should not."""


class PublishError(GaplessError):
    """A publish did not succeed."""


class PublishRejectedError(PublishError):
    """The broker refused the events; nothing was logged."""


class PublisherFencedError(PublishRejectedError):
    """Another publisher of the same name has been opened since, and owns it; this one is over, and logged nothing more.

    Publishers that run at the same time need a name each, or none. What was sent in an earlier session, and had no
    answer, is a PublishUncertainError instead.
    """


class PublishUncertainError(PublishError):
    """The connection was closed before the broker answered; `Publisher.recover()` tells what was logged.

    Of a publisher without a name nobody can tell.
    """


class ConnectionClosedError(GaplessError):
    """The connection is closed."""


class ConnectionRefusedByBrokerError(ConnectionClosedError):
    """The broker refused the handshake; trying again will not help."""


class AuthenticationError(ConnectionRefusedByBrokerError):
    """The broker does not take the credentials of this client, or takes none of this kind; trying again will not help.

    Also for credentials that are not shown to a broker: they are too long, or others could read them on the way.
    """


class ProtocolError(GaplessError):
    """A frame breaks the protocol."""


class LocalProtocolError(ProtocolError):
    """This side broke the protocol."""


class RemoteProtocolError(ProtocolError):
    """The other side broke the protocol."""


class StorageError(GaplessError):
    """A storage plugin failed."""


class VolumeLockedError(StorageError):
    """Another process (or another volume object of this one) holds the volume."""


class VolumeForeignError(StorageError):
    """The volume belongs to another node or network, or to a newer owner; or the directory is not a volume."""


class VolumeAbsentError(StorageError):
    """There is no volume where one should be: none was ever made there, or its disk is not mounted.

    Also for one that was open: it has been removed, replaced or unmounted beneath the broker.
    """


class VolumeCorruptError(StorageError):
    """The volume lost or garbled something that had been durable; it must not be served."""


class RecordsDamagedError(VolumeCorruptError):
    """Records of one stream cannot be read: those with an index in (after, upto]. All others can.

    `given_up`: an operator has said that they are lost (`gapless repair`).
    """

    def __init__(self, message: str, after: int, upto: int, given_up: bool) -> None:  # noqa: FBT001  # pickled
        super().__init__(message, after, upto, given_up)
        self.message = message
        self.after = after
        self.upto = upto
        self.given_up = given_up

    def __str__(self) -> str:
        return self.message


class VolumeFailedError(StorageError):
    """A write or a sync failed. Reads go on; to write again, close the volume and open it anew.

    Whether the failed batch is there after reopening is undetermined.
    """


class DescriptorsExhaustedError(VolumeFailedError):
    """The process may open no more files: the disk is as good as before. Raise the limit, or open fewer."""


class VolumeFullError(VolumeFailedError):
    """The disk is full."""


class TransactionRolledBackError(GaplessError):
    """A transaction could not be committed; nothing of it took effect. What it consumed is handed out again."""


class TransactionInDoubtError(GaplessError):
    """A transaction ended before the broker said whether it was committed."""
