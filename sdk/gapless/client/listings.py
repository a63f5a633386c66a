"""What a broker reports of its subscriptions, its pubends, itself, and of an SHB that is given up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TypeVar

from gapless.core.alarms import RaisedAlarm
from gapless.core.gauges import Gauge, value_of
from gapless.core.stream.ticks import PubendId, ShbId, Tick, time_at
from gapless.core.wire.messages import ListedPubend, ListedSubscription, Retired
from gapless.core.wire.messages import MissingAnswer as WireMissingAnswer
from gapless.core.wire.tokens import CheckpointToken

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MissingAnswer:
    """A node of the network that was asked, and whose part is missing in an answer."""

    node: str
    reason: str
    """Why, for people: it has not answered in time, or has refused."""


class Listing(list[T]):
    """What all nodes of a network have listed: a list, which also says whose part is missing."""

    def __init__(self, rows: Iterable[T] = (), missing: Iterable[MissingAnswer] = (), hidden: int = 0) -> None:
        super().__init__(rows)
        self.missing: tuple[MissingAnswer, ...] = tuple(missing)
        """The nodes whose rows are not in the list; empty if the list is complete."""
        self.hidden = hidden
        """How many rows are not in the list because the broker's rules do not let this client know of them."""


@dataclass(frozen=True, slots=True)
class SubscriptionInfo:
    """A durable subscription, as it was when the broker was asked."""

    client_id: str
    name: str
    topics: tuple[str, ...]
    selector: str
    connected: bool
    """Whether it has a consumer."""
    acknowledged: CheckpointToken
    """The position up to which it is acknowledged."""
    lag_events: int
    """How many events it has not acknowledged; a lower bound, unless `lag_complete`."""
    lag_seconds: float
    """The age of the oldest of these by its pubend's clock, 0 without any; a lower bound, unless `lag_complete`.

    Events of a Kafka partition do not count: their ticks are no times, and their records are not looked at."""
    lag_complete: bool
    """Whether all events due to it were counted.

    Events from before its broker knew of it are read from the log only when it
    is consumed, and are not counted before: so for a subscription that begins in the past, until the broker has read up
    to the present for its consumer. A restart of the broker forgets what it found there and is not acknowledged."""
    node: str = ""
    """The node of the network that hosts it."""
    no_local: bool = False
    """Whether it leaves out events of its own client."""
    roams: bool = False
    """Whether its client has one of its name in the whole network, which can be consumed at every broker."""
    phase: str = ""
    """What it is doing: "free", "consumed", "read by ranges", "being created", "being changed", "being attached" or
    "returning"; "": its broker is too old to say."""
    waiting: tuple[str, ...] = ()
    """A text for each request to have it that waits: whose it is, and what it waits for."""
    pinned_bytes: int | None = None
    """About how many bytes of logs it holds back, which counts for `pinned_bytes` of its principal; None: not known.

    It is what lies above its position, as its broker has found within some seconds, whether other subscriptions hold
    that back as well or not. Not known is it of a subscription that somebody consumes, of one whose principal has no
    such limit, and at a broker that has just begun or is too old to say."""


@dataclass(frozen=True, slots=True)
class PubendInfo:
    """One ordered stream with its log, as it was when the broker was asked."""

    pubend: PubendId
    topics: tuple[str, ...]
    """The patterns of its topics."""
    created: datetime | None
    """None if its ticks are no times."""
    lost: Tick
    """Everything up to here is gone from the log."""
    newest: Tick
    """The newest event; 0 if there is none."""
    stable: Tick
    """Everything up to here is decided and durable."""
    released: Tick
    """Every durable subscription is done with everything up to here."""
    log_bytes: int
    publishers: int
    """How many names have published to it."""
    shbs: tuple[ShbId, ...] = ()
    """The subscriber-hosting brokers for which its log waits."""
    delivered: Tick = 0
    """Each of these has noted up to here which subscriptions match; no release policy goes beyond it."""
    pinned_bytes: int = 0
    """How much of the log some subscription still needs."""
    undelivered_bytes: int = 0
    """How much of the log at least one of these brokers has not got yet."""
    holds: tuple[tuple[ShbId, Tick, int], ...] = ()
    """Brokers with subscriptions that began in the past: from which tick on they need the log, and how many bytes."""
    policy: str = ""
    """What is released early, for people; "" if nothing is."""
    damaged: tuple[tuple[Tick, Tick, str], ...] = ()
    """Ranges (start, end] of its log that cannot be read, with the reason; "" if it was given up (`gapless repair`)."""
    refusal: str = ""
    """Why nothing can be published to it, for people, or ""."""
    node: str = ""
    """The node of the network that hosts it."""
    timed: bool = True
    """Whether its ticks are times; if not, its log numbers its records itself: it is a partition of a Kafka topic."""


@dataclass(frozen=True, slots=True)
class AlarmInfo:
    """An alarm that a broker has raised since it started: all alarms with one code about one thing."""

    code: str
    """A code from docs/reference/alarms.md; a newer broker may have more."""
    about: str
    """The pubend, subscription (client id, slash, name) or host that it is about; "" for the broker itself."""
    text: str
    """The latest text, for people."""
    count: int
    """How often it was raised."""
    first: datetime
    last: datetime
    over: bool
    """Whether the broker has reported that it is over."""
    meaning: str
    """What such an alarm means."""
    remedy: str
    """What to do about it."""
    lasts: bool = False
    """Whether it describes a state that lasts until it is over; if not, it describes an event."""


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """The figures and alarms of a broker, as they were when it was asked."""

    gauges: tuple[Gauge, ...]
    """The figures; their order has no meaning. Figures of one name have different labels."""
    alarms: tuple[AlarmInfo, ...]
    """The alarms; the latest is the last."""

    def value(self, name: str, **labels: str) -> int | float:
        """Returns the first figure with that name and these labels (and perhaps others).

        Raises KeyError if there is none.
        """
        return value_of(self.gauges, name, **labels)


@dataclass(frozen=True, slots=True)
class Retirement:
    """An SHB that was given up for good, or what giving it up would do."""

    shb: ShbId
    """Its whole id."""
    pubends: tuple[PubendId, ...]
    """The pubends whose logs waited for it until now."""
    before: bool
    """Whether it was given up before."""
    confirmed: tuple[str, ...] = ()
    """The nodes at which no log waits for it any more, durably; with `only_look`, those that have answered."""
    missing: tuple[MissingAnswer, ...] = ()
    """The nodes whose logs may still wait for it, because they have not answered or have refused: ask again."""
    running: bool = False
    """Whether the SHB itself has answered: it runs. With `only_look`."""


def subscription_info(row: ListedSubscription, network: str) -> SubscriptionInfo:
    """Returns a row in the form for applications."""
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
        node=row.node,
        no_local=row.no_local,
        roams=row.roams,
        phase=row.phase,
        waiting=row.waiting,
        pinned_bytes=row.pinned_bytes,
    )


def pubend_info(row: ListedPubend) -> PubendInfo:
    """Returns a row in the form for applications."""
    return PubendInfo(
        pubend=row.pubend,
        topics=row.topics,
        created=time_at(row.created) if row.timed else None,
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
        node=row.node,
        timed=row.timed,
    )


def broker_status(rows: Iterable[Gauge | RaisedAlarm]) -> BrokerStatus:
    """Returns rows in the form for applications."""
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
    """Returns an answer in the form for applications."""
    missing = missing_answers(answer.missing)
    return Retirement(answer.shb, tuple(answer.pubends), answer.before, answer.confirmed, missing, answer.running)


def missing_answers(missing: Iterable[WireMissingAnswer]) -> tuple[MissingAnswer, ...]:
    """Returns the nodes whose part is missing, in the form for applications."""
    return tuple(MissingAnswer(each.node, each.reason) for each in missing)
