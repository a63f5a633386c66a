"""Requests with one answer each: listings, the status, removing a subscription, retiring an SHB."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec

from gapless.core.alarms import RaisedAlarm
from gapless.core.gauges import Gauge
from gapless.core.stream.ticks import PubendId, ShbId, Tick
from gapless.core.wire.messages.base import ClientMessage, Number, ServerMessage
from gapless.core.wire.messages.subscribing import Position

Row = TypeVar("Row")


class MissingAnswer(msgspec.Struct, array_like=True, frozen=True):
    """A node of the network whose part of an answer is missing."""

    node: str
    reason: str
    """Why, for people."""


class Unsubscribe(ClientMessage, frozen=True, tag=30):
    """Removes a durable subscription."""

    request: Number
    name: str
    client_id: str


class Done(ServerMessage, frozen=True, tag=30):
    """A request without an answer of its own was carried out, durably."""

    request: int


class ListSubscriptions(ClientMessage, frozen=True, tag=31):
    """Asks for all durable subscriptions of the network."""

    request: Number


class ListedSharing(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """How the consumers of a shared subscription stand."""

    unsettled: int
    """How many events nobody has settled yet, of those that its SHB looks at."""
    held: int
    """How many of these some consumer holds."""
    consumers: int
    holder: str = ""
    """The client instance that has held an event for the longest time; "": nobody holds one."""
    held_seconds: float = 0
    """Since when."""


class ListedSubscription(msgspec.Struct, array_like=True, frozen=True):
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
    lag_complete: bool
    """Whether everything unacknowledged was counted; if not, the two numbers are lower bounds."""
    node: str = ""
    """The node that hosts it."""
    no_local: bool = False
    """Whether it leaves out what its own client publishes."""
    roams: bool = False
    """Whether its client has one of its name in the whole network, which can be consumed at every SHB."""
    phase: str = ""
    """What it is doing; "": its SHB is too old to say."""
    waiting: tuple[str, ...] = ()
    """A text for each request for it that waits: who, and for what."""
    pinned_bytes: int | None = None
    """About how many bytes of logs it holds back while nobody consumes it, where a limit counts that; None: unknown."""
    sharing: ListedSharing | None = None
    """None: it is not shared."""


class SubscriptionList(ServerMessage, frozen=True, tag=31):
    """Answers ListSubscriptions."""

    request: int
    rows: list[ListedSubscription]
    more: bool = False
    """Whether another message with more rows follows."""
    missing: tuple[MissingAnswer, ...] = ()
    """Nodes whose subscriptions are not in the list. Only in the last message."""
    hidden: int = 0
    """How many are not in this message because its receiver may not know of them."""


class ListPubends(ClientMessage, frozen=True, tag=32):
    """Asks for all pubends of the network."""

    request: Number


class ListedPubend(msgspec.Struct, array_like=True, frozen=True):
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
    """Every durable subscription is done with everything up to here."""
    log_bytes: int
    publishers: int
    shbs: tuple[ShbId, ...] = ()
    """The SHBs that its log waits for."""
    delivered: Tick = 0
    """Each of these SHBs has everything up to here in its PFS."""
    pinned_bytes: int = 0
    """How much of the log lies above what every subscription is done with."""
    undelivered_bytes: int = 0
    """How much of the log lies above `delivered`."""
    holds: tuple[tuple[ShbId, Tick, int], ...] = ()
    """SHBs that need more than they have reported: from which tick on, and how many bytes lie above it."""
    policy: str = ""
    """What is released early, for people; "" if nothing is."""
    damaged: tuple[tuple[Tick, Tick, str], ...] = ()
    """Ranges (lo, hi] that cannot be read, each with the reason; "" if an operator has given it up."""
    refusal: str = ""
    """Why nothing can be published to it, or ""."""
    node: str = ""
    """The node that hosts it."""
    timed: bool = True
    """Whether its ticks are times; if not, its log numbers its records itself."""


class PubendList(ServerMessage, frozen=True, tag=32):
    """Answers ListPubends."""

    request: int
    rows: list[ListedPubend]
    missing: tuple[MissingAnswer, ...] = ()
    """Nodes whose pubends are not in the list."""
    hidden: int = 0
    """How many are not in the list because its receiver may not know of them."""


class Retire(ClientMessage, frozen=True, tag=33):
    """Gives an SHB up for good, at all pubends of the network; sent by an administrator (T10). Idempotent."""

    request: Number
    shb: str
    """Its id, or the name of its node, if no other SHB has that name."""
    only_look: bool = False
    """Whether nothing is to be done; then the answer reports what would be."""
    running: bool = False
    """Whether it is to be given up although it runs."""


class Retired(ServerMessage, frozen=True, tag=33):
    """Answers Retire, durably."""

    request: int
    shb: ShbId
    pubends: list[PubendId]
    """The pubends that counted it until now; none if it was retired before and has not come back."""
    before: bool
    """Whether it was retired before."""
    confirmed: tuple[str, ...] = ()
    """The nodes at which no log waits for it any more; if nothing was to be done, those that have answered."""
    missing: tuple[MissingAnswer, ...] = ()
    """The nodes whose logs may still wait for it."""
    running: bool = False
    """Whether the SHB itself has answered: it runs."""


class AskStatus(ClientMessage, frozen=True, tag=34):
    """Asks for the figures and the alarms of a node. Sent only if the broker's Welcome lists it in `answers`."""

    request: Number
    node: str = ""
    """Which one; "" for the one that the client is connected to."""


class Status(ServerMessage, frozen=True, tag=34):
    """Answers AskStatus."""

    request: int
    rows: list[Gauge | RaisedAlarm]
    more: bool = False
    """Whether another message with more rows follows."""


def status_parts(request: int, rows: Iterable[Gauge | RaisedAlarm], part_bytes: int) -> Iterator[Status]:
    """Yields the answer in parts, whose rows take about so many bytes each; at least one part."""
    for part, more in in_parts(rows, part_bytes):
        yield Status(request, part, more)


def in_parts(rows: Iterable[Row], part_bytes: int) -> Iterator[tuple[list[Row], bool]]:
    """Yields rows in lists that take about so many bytes each, and whether more follow; at least one list."""
    part: list[Row] = []
    size = 0
    for row in rows:
        row_size = len(msgspec.msgpack.encode(row))
        if part and size + row_size > part_bytes:
            yield part, True
            part, size = [], 0
        part.append(row)
        size += row_size
    yield part, False
