"""What `gapless doctor` says of logs: why each is as long as it is, who holds how much of it, and what is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

from gapless.cli.output import shown_bytes, shown_duration, shown_tick

if TYPE_CHECKING:
    from gapless import Gauge, PubendInfo, SubscriptionInfo

ABANDONED: Final = 86_400.0
"""Seconds for which a subscription that nobody consumes may hold events before it is worth a word."""
CLOCK_OFF_SECONDS: Final = 90.0
"""Stamps may be so far from this machine's clock: a minute, and what a broker that is idle lags."""

HELD_SECONDS: Final = 5.0
"""Seconds by which a member of a group in total order may be behind the others before it is worth a word."""
GROUP_TICKS: Final = "gapless_shb_group_ticks"
"""The figure of an SHB that says how far each member of a group is known to it."""

WAITING_COLUMNS: Final = {
    "client_id": "client",
    "name": "subscription",
    "node": "node",
    "phase": "is",
    "waiting": "and for it",
}
PIN_COLUMNS: Final = {
    "pubend": "pubend",
    "client_id": "client",
    "name": "subscription",
    "node": "node",
    "connected": "connected",
    "since_time": "holds events since",
    "lag_events": "lag in events",
    "lag": "lag in time",
    "about": "about",
}


def pins_of(pubends: Sequence[PubendInfo], subscriptions: Sequence[SubscriptionInfo]) -> list[dict[str, Any]]:
    """Which subscription holds how much of which log, whoever holds most first.

    What a pubend logs per second is taken to be even: `about_bytes` is an estimate.
    """
    pins = [
        pin for pubend in pubends for subscription in subscriptions if (pin := _pin(pubend, subscription)) is not None
    ]
    return sorted(pins, key=lambda pin: (-pin["about_bytes"], pin["pubend"], pin["client_id"], pin["name"]))


def waiting_of(subscriptions: Iterable[SubscriptionInfo]) -> list[dict[str, Any]]:
    """The requests that wait for a subscription: what it is doing, who waits, and for what."""
    return [
        {"client_id": each.client_id, "name": each.name, "node": each.node, "phase": each.phase, "waiting": waiting}
        for each in subscriptions
        for waiting in each.waiting
    ]


def abandoned(pins: Sequence[dict[str, Any]]) -> list[str]:
    """A sentence for each subscription that nobody has consumed for long, and that holds events.

    Where not all of these were counted, the log that is kept for them says for how long it was not consumed.
    """

    def kept(pin: dict[str, Any]) -> str:
        if pin["lag_complete"]:
            return f"{pin['lag_events']:,} events, the oldest {shown_duration(pin['lag_seconds'])} old"
        return f"at least {pin['lag_events']:,} events, from {pin['since_time']} on"

    return [
        f"nobody consumes subscription {pin['name']!r} of client {pin['client_id']!r}, and for it {pin['pubend']}"
        f" keeps {kept(pin)}: consume it, or end it with `gapless unsubscribe`"
        for pin in pins
        if not pin["connected"] and pin["lag_seconds" if pin["lag_complete"] else "held_seconds"] > ABANDONED
    ]


def twice_kept(subscriptions: Sequence[SubscriptionInfo]) -> list[str]:
    """A sentence for each name that a client has at several brokers of a network in which it should have it once.

    Until 2026-11 a program that read by ranges at another broker than the home made a second one there; and where a
    network has grown, a client that comes without its token does, at its new home.
    """
    kept: dict[tuple[str, str], list[SubscriptionInfo]] = {}
    for each in subscriptions:
        if each.roams:
            kept.setdefault((each.client_id, each.name), []).append(each)
    return [
        f"client {client_id!r} has {len(copies)} subscriptions {name!r}, each with a position of its own: "
        + " and ".join(_kept_at(info) for info in sorted(copies, key=lambda info: info.node))
        + ". Decide which one your application goes on with, and end each other one at its node:"
        f" `gapless unsubscribe {quote(name)} --client-id {quote(client_id)} --url ADDRESS`, with that node's address"
        for (client_id, name), copies in kept.items()
        if len(copies) > 1
    ]


def _kept_at(info: SubscriptionInfo) -> str:
    least = "" if info.lag_complete else "at least "
    consumed = ", with a consumer" if info.connected else ""
    return f"at {info.node} ({least}{info.lag_events:,} events behind{consumed})"


def keeping_of(pubend: PubendInfo) -> str:
    """Why a log is as long as it is: whom it waits for, and what goes early, for people."""

    def from_time(tick: int) -> str:
        since = max(tick, pubend.lost)
        return shown_tick(since, timed=pubend.timed, after=True) if since else "its beginning"

    if not pubend.timed:
        lowest = min([pubend.released, *(at for _, at, _ in pubend.holds)])
        return f"not this broker's own, so it has its own retention; subscriptions need it from {from_time(lowest)} on"

    parts = [f"{shown_bytes(pubend.log_bytes)} in all"]
    if not pubend.shbs:
        parts.append("nothing is released, for no SHB has been counted yet")
    elif pubend.pinned_bytes:
        lowest = min([pubend.released, *(at for _, at, _ in pubend.holds)])
        parts.append(f"{shown_bytes(pubend.pinned_bytes)} for subscriptions, from {from_time(lowest)} on")
    parts += [f"{shown_bytes(size)} held by {shb}, from {from_time(at)} on" for shb, at, size in pubend.holds]
    if pubend.shbs and pubend.undelivered_bytes:
        waits = " or ".join(pubend.shbs)
        parts.append(f"{shown_bytes(pubend.undelivered_bytes)} not yet with {waits}, so that no policy takes it")
    rest = pubend.log_bytes - pubend.pinned_bytes
    if pubend.shbs and rest > 0:
        parts.append(f"{shown_bytes(rest)} that nobody needs, for `earliest` (min_retain)")
    parts.append(f"released early: {pubend.policy or 'nothing'}")
    return "; ".join(parts)


def misstamped(pubends: Sequence[PubendInfo], wall: int) -> list[str]:
    """A sentence for each pubend whose events are stamped far from this machine's clock (ms since 1970)."""
    from gapless.core.stream.ticks import wall_at

    off = [(pubend, (wall_at(pubend.stable) - wall) / 1000) for pubend in pubends if pubend.stable and pubend.timed]
    return [
        f"{pubend.pubend} stamps events {shown_duration(abs(seconds))} {'ahead of' if seconds > 0 else 'behind'} this"
        " machine's clock: one of the two is wrong, or the broker's was, and ticks never go back; its log says which"
        for pubend, seconds in off
        if abs(seconds) > CLOCK_OFF_SECONDS
    ]


def absent(pubends: Sequence[PubendInfo]) -> list[str]:
    """A sentence for each pubend whose log has waited long for an SHB that does not take what is published.

    A PHB that has just started has heard of nobody yet, and is left in peace.
    """
    from gapless.core.stream.ticks import seconds_between

    late = [
        (pubend, seconds_between(pubend.delivered, pubend.newest))
        for pubend in pubends
        if pubend.shbs and pubend.delivered and pubend.undelivered_bytes and pubend.timed
    ]
    return [
        f"{pubend.pubend} keeps {shown_bytes(pubend.undelivered_bytes)} that one of its SHBs has not taken"
        f" for {shown_duration(seconds)}: {', '.join(pubend.shbs)}. Start it, or give it up with `gapless retire`"
        for pubend, seconds in late
        if seconds > ABANDONED
    ]


def damaged(pubends: Sequence[PubendInfo]) -> list[str]:
    """A sentence for each range that cannot be read, and for each pubend that takes nothing because of that."""
    unreadable = [
        f"{pubend.pubend} cannot be read from {_range(pubend, start, end)}, and its subscribers wait there:"
        f" see `gapless repair` ({why})"
        for pubend in pubends
        for start, end, why in pubend.damaged
        if why
    ]
    return [*unreadable, *(pubend.refusal for pubend in pubends if pubend.refusal)]


def _range(pubend: PubendInfo, start: int, end: int) -> str:
    if pubend.timed:
        return f"tick {start + 1} to {end}"
    return f"{shown_tick(start, timed=False, after=True)} to {shown_tick(end, timed=False)}"


def held_groups(gauges: Sequence[Gauge], after: float = HELD_SECONDS) -> list[str]:
    """A sentence for each group in total order that one of its members holds at this SHB, and since when it does.

    `after`: seconds by which it has to be behind the others.
    """
    from gapless.core.stream.ticks import seconds_between, time_at

    remedy = "Start its node, or look at its link and clock; a member that is gone for ever is taken out of the group"
    groups: dict[str, dict[str, int]] = {}
    for gauge in gauges:
        labels = dict(gauge.labels)
        if gauge.name == GROUP_TICKS:
            groups.setdefault(labels["group"], {})[labels["member"]] = int(gauge.value)
    found = []
    for group, known in groups.items():
        first, last = max(known, key=lambda each: known[each]), min(known, key=lambda each: known[each])
        if not known[last]:
            found.append(
                f"the group {group!r} is held by {last}, which has never been heard of here: subscribers with"
                f" order='total' wait. {remedy}"
            )
        elif (behind := seconds_between(known[last], known[first])) > after:
            found.append(
                f"the group {group!r} is held by {last} since {time_at(known[last]):%Y-%m-%d %H:%M:%S}: nothing later"
                f" is known of it, {shown_duration(behind)} behind {first}, and subscribers with order='total' get"
                f" nothing later of any member. {remedy}"
            )
    return found


def _pin(pubend: PubendInfo, subscription: SubscriptionInfo) -> dict[str, Any] | None:
    from gapless.core.stream.ticks import seconds_between, tick_at_time

    acknowledged = subscription.acknowledged.ticks.get(pubend.pubend)
    if acknowledged is None or acknowledged >= pubend.newest:
        return None
    if subscription.lag_complete and not subscription.lag_events and acknowledged < pubend.released:
        return None  # what came since was not for it, and was released
    oldest = pubend.lost if pubend.created is None else max(pubend.lost, tick_at_time(pubend.created))
    since = max(acknowledged, oldest)
    share = (pubend.newest - since) / (pubend.newest - oldest) if pubend.newest > oldest else 1.0
    return {
        "pubend": pubend.pubend,
        "client_id": subscription.client_id,
        "name": subscription.name,
        "node": subscription.node,
        "connected": subscription.connected,
        "since": acknowledged,
        "since_time": shown_tick(since, timed=pubend.timed, after=not pubend.timed),
        "lag_events": subscription.lag_events,
        "lag_seconds": subscription.lag_seconds,
        "lag_complete": subscription.lag_complete,
        "held_seconds": seconds_between(since, pubend.newest) if pubend.timed else 0.0,
        "about_bytes": round(pubend.log_bytes * min(1.0, share)),
    }
