"""Questions with one answer each: listings, the status, removing a subscription, retiring an SHB."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from gapless.core.alarms import RaisedAlarm
from gapless.core.gauges import Gauge
from gapless.core.stream.ticks import PubendId, ShbId, Tick
from gapless.core.wire.messages.base import ClientMessage, Number, ServerMessage
from gapless.core.wire.messages.subscribing import Position


class Unsubscribe(ClientMessage, frozen=True, tag=30):
    """Removes a durable subscription."""

    request: Number
    name: str
    client_id: str


class Done(ServerMessage, frozen=True, tag=30):
    """A request without an answer of its own has been carried out, durably."""

    request: int


class ListSubscriptions(ClientMessage, frozen=True, tag=31):
    """Asks for all durable subscriptions."""

    request: Number


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
    """Whether all that it has not acknowledged was counted; else there are at least so many, and so old."""


class SubscriptionList(ServerMessage, frozen=True, tag=31):
    """Answers ListSubscriptions."""

    request: int
    rows: list[ListedSubscription]
    more: bool = False
    """Whether another one follows, with more rows."""


class ListPubends(ClientMessage, frozen=True, tag=32):
    """Asks for all pubends of the broker."""

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
    damaged: tuple[tuple[Tick, Tick, str], ...] = ()
    """Ranges (lo, hi] that cannot be read, and why; "" for one that an operator has given up."""
    refusal: str = ""
    """Why nothing can be published to it, or ""."""


class PubendList(ServerMessage, frozen=True, tag=32):
    """Answers ListPubends."""

    request: int
    rows: list[ListedPubend]


class Retire(ClientMessage, frozen=True, tag=33):
    """An administrator gives an SHB up for good, at all pubends of this broker (T10). Idempotent."""

    request: Number
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


class AskStatus(ClientMessage, frozen=True, tag=34):
    """Asks for the figures and the alarms of the broker. Only where Welcome says that it answers this."""

    request: Number


class Status(ServerMessage, frozen=True, tag=34):
    """Answers AskStatus."""

    request: int
    rows: list[Gauge | RaisedAlarm]
    more: bool = False
    """Whether another one follows, with more rows."""


def status_parts(request: int, rows: Iterable[Gauge | RaisedAlarm], part_bytes: int) -> Iterator[Status]:
    """The answer in parts, whose rows take about so many bytes; at least one part."""
    part: list[Gauge | RaisedAlarm] = []
    size = 0
    for row in rows:
        row_size = len(msgspec.msgpack.encode(row))
        if part and size + row_size > part_bytes:
            yield Status(request, part, more=True)
            part, size = [], 0
        part.append(row)
        size += row_size
    yield Status(request, part)
