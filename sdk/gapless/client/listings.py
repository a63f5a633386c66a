"""What a broker tells of its subscriptions, its pubends, itself, and of an SHB that is given up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone

from gapless.core.alarms import RaisedAlarm
from gapless.core.gauges import Gauge, value_of
from gapless.core.stream.ticks import PubendId, ShbId, Tick, time_at
from gapless.core.wire.messages import ListedPubend, ListedSubscription, Retired
from gapless.core.wire.tokens import CheckpointToken


@dataclass(frozen=True, slots=True)
class SubscriptionInfo:
    """A durable subscription, as its broker knew it when it was asked."""

    client_id: str
    name: str
    topics: tuple[str, ...]
    selector: str
    connected: bool
    """Whether somebody consumes it."""
    acknowledged: CheckpointToken
    """The position up to which it is acknowledged."""
    lag_events: int
    """How many events it has not acknowledged; at least so many, unless `lag_complete`."""
    lag_seconds: float
    """How old the oldest of them is by its pubend's clock, 0 without any; at least so old, unless `lag_complete`."""
    lag_complete: bool
    """Whether all that is due to it was counted. What was there before its broker knew of it is read from the log when
    somebody consumes it, and is not counted before: a subscription that begins in the past, or that nobody has
    consumed yet."""


@dataclass(frozen=True, slots=True)
class PubendInfo:
    """One ordered stream with its log, as its broker knew it when it was asked."""

    pubend: PubendId
    topics: tuple[str, ...]
    """Patterns of the topics it may carry."""
    created: datetime
    lost: Tick
    """Everything up to here is gone from the log."""
    newest: Tick
    """The newest event; 0 without one."""
    stable: Tick
    """Everything up to here is decided and durable."""
    released: Tick
    """Every durable subscription has everything up to here behind it."""
    log_bytes: int
    publishers: int
    """How many names have published here."""
    shbs: tuple[ShbId, ...] = ()
    """The subscriber-hosting brokers that its log waits for."""
    delivered: Tick = 0
    """Each of them has noted up to here who wants what; no release policy goes beyond."""
    pinned_bytes: int = 0
    """Of the log: what somebody still needs."""
    undelivered_bytes: int = 0
    """Of the log: what one of the brokers has not got yet."""
    holds: tuple[tuple[ShbId, Tick, int], ...] = ()
    """Brokers with subscriptions that began in the past: from which tick on they need it, and how many bytes."""
    policy: str = ""
    """What is released early, for people; "": nothing."""
    damaged: tuple[tuple[Tick, Tick, str], ...] = ()
    """Ranges (start, end] of its log that cannot be read, and why; "" for what was given up (`gapless repair`)."""
    refusal: str = ""
    """Why nothing can be published to it, for people, or ""."""


@dataclass(frozen=True, slots=True)
class AlarmInfo:
    """What a broker has told its operator since it started: all alarms of one code about one thing."""

    code: str
    """One of those in docs/reference/alarms.md; a newer broker may know more."""
    about: str
    """The pubend, subscription (client id, slash, name) or host that it is about; "": the broker."""
    text: str
    """What was said the last time, for people."""
    count: int
    """How often it was said."""
    first: datetime
    last: datetime
    over: bool
    """Whether the broker has said that it is over."""
    meaning: str
    """What such an alarm means."""
    remedy: str
    """What to do about it."""
    lasts: bool = False
    """Whether it is so until it is over; else it merely happened."""


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """A broker, as it was when it was asked: its figures and its alarms."""

    gauges: tuple[Gauge, ...]
    """In no order that means anything; several of one name differ in their labels."""
    alarms: tuple[AlarmInfo, ...]
    """The latest last."""

    def value(self, name: str, **labels: str) -> int | float:
        """The figure of that name with these labels among others, the first of several. Raises KeyError without one."""
        return value_of(self.gauges, name, **labels)


@dataclass(frozen=True, slots=True)
class Retirement:
    """An SHB that was given up for good, or what would become of that."""

    shb: ShbId
    """Its whole id."""
    pubends: tuple[PubendId, ...]
    """Those whose logs have waited for it until now."""
    before: bool
    """Whether it had been given up before."""


def subscription_info(row: ListedSubscription, network: str) -> SubscriptionInfo:
    """A row as applications see it."""
    ticks = {position.pubend: position.tick for position in row.acknowledged}
    return SubscriptionInfo(
        client_id=row.client_id,
        name=row.name,
        topics=row.topics,
        selector=row.selector,
        connected=row.connected,
        acknowledged=CheckpointToken(network, ticks),
        lag_events=row.lag_events,
        lag_seconds=row.lag_seconds,
        lag_complete=row.lag_complete,
    )


def pubend_info(row: ListedPubend) -> PubendInfo:
    """A row as applications see it."""
    return PubendInfo(
        pubend=row.pubend,
        topics=row.topics,
        created=time_at(row.created),
        lost=row.lost,
        newest=row.newest,
        stable=row.stable,
        released=row.released,
        log_bytes=row.log_bytes,
        publishers=row.publishers,
        shbs=row.shbs,
        delivered=row.delivered,
        pinned_bytes=row.pinned_bytes,
        undelivered_bytes=row.undelivered_bytes,
        holds=row.holds,
        policy=row.policy,
        damaged=row.damaged,
        refusal=row.refusal,
    )


def broker_status(rows: Iterable[Gauge | RaisedAlarm]) -> BrokerStatus:
    """Rows as applications see them."""
    gauges: list[Gauge] = []
    alarms: list[AlarmInfo] = []
    for row in rows:
        if isinstance(row, Gauge):
            gauges.append(row)
        else:
            first, last = (datetime.fromtimestamp(at / 1000, tz=timezone.utc) for at in (row.first, row.last))
            said = (row.code, row.about, row.text, row.count, first, last)
            alarms.append(AlarmInfo(*said, row.over, row.meaning, row.remedy, row.lasts))
    return BrokerStatus(tuple(gauges), tuple(alarms))


def retirement(answer: Retired) -> Retirement:
    """An answer as applications see it."""
    return Retirement(answer.shb, tuple(answer.pubends), answer.before)
