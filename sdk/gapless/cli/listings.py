"""`gapless subscriptions`, `pubends` and `unsubscribe`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gapless.cli.connecting import connected, credentials_of, run
from gapless.cli.options import DEFAULT_URL, DEFAULT_WAIT, AsJson, ClientId, Url, User, Wait
from gapless.cli.output import one_line, print_json, print_listing, shown_bytes, shown_lag, shown_tick

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gapless import Listing, MissingAnswer, PubendInfo, SubscriptionInfo

SUBSCRIPTION_COLUMNS = {
    "client_id": "client",
    "name": "name",
    "topics": "topics",
    "selector": "selector",
    "state": "state",
    "lag_events": "lag in events",
    "lag": "lag in time",
    "node": "node",
}
PINNED_COLUMN = {"pinned": "holds back"}
"""One more, where it is known of any subscription."""
PUBEND_COLUMNS = {
    "pubend": "pubend",
    "topics": "topics",
    "since": "has events since",
    "newest_time": "newest event",
    "log": "log",
    "publishers": "publishers",
    "node": "node",
}
NO_PUBEND = "there is no pubend: where one should come from a log of others, `gapless doctor` says what it waits for"


def subscriptions(
    *, url: Url = DEFAULT_URL, user: User = "", wait: Wait = DEFAULT_WAIT, as_json: AsJson = False
) -> None:
    """List the durable subscriptions of all clients and nodes, their positions and how far they lag.

    A node that does not answer is named, and makes the exit status 1.
    """
    credentials = credentials_of(url, user)

    async def ask() -> Listing[SubscriptionInfo]:
        async with connected(url, "", wait, credentials) as connection:
            return await connection.subscriptions()

    found = run(ask())
    fields = subscription_json if as_json else subscription_cells
    show(found, fields, subscription_columns(found), as_json=as_json, empty="there is no durable subscription")


def pubends(*, url: Url = DEFAULT_URL, user: User = "", wait: Wait = DEFAULT_WAIT, as_json: AsJson = False) -> None:
    """List the pubends of all nodes and what they hold.

    A node that does not answer is named, and makes the exit status 1.
    """
    credentials = credentials_of(url, user)

    async def ask() -> Listing[PubendInfo]:
        async with connected(url, "", wait, credentials) as connection:
            return await connection.pubends()

    fields = pubend_json if as_json else pubend_cells
    show(run(ask()), fields, PUBEND_COLUMNS, as_json=as_json, empty=NO_PUBEND)


def show(
    found: Listing[Any],
    fields: Callable[[Any], dict[str, Any]],
    columns: Mapping[str, str],
    *,
    as_json: bool,
    empty: str,
) -> None:
    """Prints what was found, how much is hidden, and whose part is missing; with that the command ends with 1."""
    rows = [fields(info) for info in found]
    if as_json:
        hidden = [{"hidden": found.hidden}] if found.hidden else []
        print_json([*rows, *hidden, *map(missing_json, found.missing)])
    else:
        if rows or not (found.missing or found.hidden):
            print_listing(rows, columns, as_json=False, empty=empty)
        if found.hidden:
            print(f"{found.hidden} more are not shown: the rules of the broker do not let you know of them")
        print_missing(found.missing)
    if found.missing:
        raise typer.Exit(1)


def missing_json(missing: MissingAnswer) -> dict[str, Any]:
    """A node whose part is missing, as JSON says it."""
    return {"node": missing.node, "missing": missing.reason}


def print_missing(missing: Iterable[MissingAnswer]) -> None:
    """Prints whose part is missing."""
    for each in missing:
        print(f"the part of node {one_line(each.node)} is missing: {one_line(each.reason)}")


def unsubscribe(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    *,
    url: Url = DEFAULT_URL,
    user: User = "",
    client_id: ClientId = "",
    wait: Wait = DEFAULT_WAIT,
    as_json: AsJson = False,
) -> None:
    """End a durable subscription for good: what it has not consumed is not kept for it any more."""
    credentials = credentials_of(url, user)

    async def ask() -> None:
        async with connected(url, "", wait, credentials) as connection:
            await connection.unsubscribe(name, client_id=client_id)

    run(ask())
    if as_json:
        print_json({"unsubscribed": name, "client_id": client_id})
    else:
        print(f"subscription {name!r} has ended")


def subscription_columns(found: Iterable[SubscriptionInfo]) -> dict[str, str]:
    """The columns of a table of subscriptions, with their headings."""
    is_known = any(info.pinned_bytes is not None for info in found)
    return SUBSCRIPTION_COLUMNS | (PINNED_COLUMN if is_known else {})


def subscription_json(info: SubscriptionInfo) -> dict[str, Any]:
    """A subscription as JSON says it."""
    return {
        "client_id": info.client_id,
        "name": info.name,
        "topics": list(info.topics),
        "selector": info.selector,
        "no_local": info.no_local,
        "connected": info.connected,
        "acknowledged": dict(info.acknowledged.ticks),
        "lag_events": info.lag_events,
        "lag_seconds": info.lag_seconds,
        "lag_complete": info.lag_complete,
        "node": info.node,
        "phase": info.phase,
        "waiting": list(info.waiting),
        "pinned_bytes": info.pinned_bytes,
    }


def subscription_cells(info: SubscriptionInfo) -> dict[str, Any]:
    """A subscription as a table shows it."""
    return {
        **subscription_json(info),
        "selector": f"{info.selector} (no_local)".lstrip() if info.no_local else info.selector,
        "state": subscription_state(info),
        "pinned": None if info.pinned_bytes is None else shown_bytes(info.pinned_bytes),
        **shown_lag(info.lag_events, info.lag_seconds, complete=info.lag_complete),
    }


def subscription_state(info: SubscriptionInfo) -> str:
    """What a subscription is doing, and how many wait for it, for people."""
    phase = info.phase or ("consumed" if info.connected else "free")
    return f"{phase}, {len(info.waiting)} waiting" if info.waiting else phase


def pubend_json(info: PubendInfo) -> dict[str, Any]:
    """A pubend as JSON says it."""
    return {
        "pubend": info.pubend,
        "topics": list(info.topics),
        "created": info.created and info.created.isoformat(),
        "lost": info.lost,
        "newest": info.newest,
        "stable": info.stable,
        "released": info.released,
        "log_bytes": info.log_bytes,
        "publishers": info.publishers,
        "shbs": list(info.shbs),
        "delivered": info.delivered,
        "pinned_bytes": info.pinned_bytes,
        "undelivered_bytes": info.undelivered_bytes,
        "holds": [{"shb": shb, "since": at, "bytes": size} for shb, at, size in info.holds],
        "policy": info.policy,
        "damaged": [{"after": start, "upto": end, "reason": why} for start, end, why in info.damaged],
        "refusal": info.refusal,
        "node": info.node,
        "timed": info.timed,
    }


def pubend_cells(info: PubendInfo) -> dict[str, Any]:
    """A pubend as a table shows it."""
    if info.lost or info.created is None:
        since = shown_tick(info.lost, timed=info.timed, after=True)
    else:
        since = f"{info.created:%Y-%m-%d %H:%M:%S}"
    return {
        **pubend_json(info),
        "since": since,
        "newest_time": shown_tick(info.newest, timed=info.timed) if info.newest else None,
        "log": shown_bytes(info.log_bytes) if info.timed else None,
        "publishers": info.publishers if info.timed or info.publishers else None,
    }
