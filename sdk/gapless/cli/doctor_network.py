"""`gapless doctor --network`: what all nodes of a network say of themselves and of each other, and what is wrong.

One node is connected to. It asks the others, so whoever cannot be reached there has not answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gapless.cli.connecting import connected, statuses, within
from gapless.cli.doctor_services import own_name, service_rows, services
from gapless.cli.output import shown_bytes, shown_duration
from gapless.core.gauges import values_by
from gapless.core.network.facts import LINK_HIGH
from gapless.core.network.peers import LINK_BEHIND, LINK_UP, LINK_WAITING, LINKS_ENDED, NETWORK_MAP
from gapless.core.stream.ticks import seconds_between
from gapless.errors import ConnectionClosedError, GaplessError

if TYPE_CHECKING:
    from gapless import AlarmInfo, BrokerStatus, Connection, PubendInfo, SubscriptionInfo
    from gapless.client.credentials import CredentialSource
    from gapless.node.network import NetworkDescription

LINK_SLOW: Final = 1.0
"""Seconds that a link may be behind."""
SHB_LAGS: Final = 10.0
"""Seconds that an SHB may be behind."""
SHB_HEAD: Final = "gapless_shb_head_ticks"
SHB_RELEASED: Final = "gapless_shb_released_ticks"
UNREACHABLE: Final = "node_unreachable"
MAPS_DIFFER: Final = "maps_differ"
REFUSED: Final = "node_refused"
ADVICE: Final = {
    "secret": "Give it the network's secret (secret_file), and restart it",
    "certificate": "Give it its own certificate, of an authority that the others know, and restart it",
    "in the network": "Give it this network's file, or look who answers at its address",
    "map": "Give all nodes the same network file, and restart those that have an older one",
    "": "See whether it runs, what its log says, and what is between it and its neighbours",
}
"""What to do about a node that cannot be reached, by a word in what its neighbours say of it."""

NODE_COLUMNS: Final = {
    "node": "node",
    "roles": "roles",
    "cell": "cell",
    "place": "place",
    "address": "for nodes",
    "answers": "answers",
    "same_map": "same network file",
}
LINK_COLUMNS: Final = {
    "from": "link from",
    "to": "to",
    "up": "up",
    "waiting_bytes": "bytes waiting",
    "behind_seconds": "behind (s)",
    "ended": "times ended",
}
SHB_COLUMNS: Final = {
    "shb": "SHB",
    "pubend": "pubend",
    "answers": "answers",
    "behind_seconds": "behind (s)",
    "pins": "the log waits for it",
    "pinned_bytes": "bytes of the log above",
}
SERVICE_COLUMNS: Final = {
    "node": "node",
    "host": "pubends of",
    "served_by": "served by",
    "past": "past",
    "pubends": "pubends",
    "cut": "do not come",
}
COLUMNS: Final = {"nodes": NODE_COLUMNS, "links": LINK_COLUMNS, "services": SERVICE_COLUMNS, "shbs": SHB_COLUMNS}
MAY_BE_EMPTY: Final = ("cell", "place")
"""Columns that are left out where no row has anything in them."""


@dataclass(slots=True)
class NetworkView:
    """What was learnt of a network."""

    description: NetworkDescription
    asked: str
    """The node that was connected to."""
    statuses: dict[str, BrokerStatus] = field(default_factory=dict)
    """Of the nodes that have answered."""
    silent: dict[str, str] = field(default_factory=dict)
    """Why the others have not."""
    pubends: Sequence[PubendInfo] = ()
    subscriptions: Sequence[SubscriptionInfo] = ()
    refusals: dict[str, str] = field(default_factory=dict)
    """Which nodes that have answered left something out, and why."""


def urls_of(description: NetworkDescription) -> str:
    """Where clients connect to nodes, as far as the network's file says that; "" if it does not."""
    listeners = [
        listener
        for node in description.file.node
        for listener in node.options.get("listen", ())
        if isinstance(listener, Mapping) and listener.get("transport", "tcp") == "tcp"
    ]
    addresses = [str(listener.get("address", "")) for listener in listeners]
    known = [address for address in addresses if address and not address.endswith(":0")]
    return f"gapless://{','.join(known)}" if known else ""


async def look(
    description: NetworkDescription, url: str, wait: float, credentials: CredentialSource | None
) -> NetworkView:
    """Asks every node of the network through the one at `url`. Raises GaplessError when there is none to ask."""
    async with connected(url, "", wait, credentials) as connection:
        if connection.network != description.name:
            raise ConnectionClosedError(
                f"the broker at {url} is in the network {connection.network!r}, not in {description.name!r}"
            )
        return await within(wait, _ask(description, connection), f"the broker at {url} does not answer questions")


async def _ask(description: NetworkDescription, connection: Connection) -> NetworkView:
    view = NetworkView(description, await _own_name(connection))
    names = [node.name for node in description.file.node]
    # At once with the lists: so it takes no longer than the one node that does not answer.
    pubends, subscriptions, found = await asyncio.gather(
        connection.pubends(),
        connection.subscriptions(),
        statuses(connection, names),
    )
    view.pubends, view.subscriptions = pubends, subscriptions
    for name, status in found.items():
        if isinstance(status, GaplessError):
            view.silent[name] = str(status)
        else:
            view.statuses[name] = status
    left_out = {each.node: each.reason for each in (*pubends.missing, *subscriptions.missing)}
    view.refusals = {name: reason for name, reason in left_out.items() if name not in view.silent}
    return view


async def _own_name(connection: Connection) -> str:
    return own_name((await connection.status()).gauges)


# --------------------------------------------------------------------------------------- what there is


def node_rows(view: NetworkView) -> list[dict[str, Any]]:
    """A row for each node of the network's file."""
    return [
        {
            "node": node.name,
            "roles": list(node.roles),
            "cell": node.cell,
            "place": node.place,
            "address": node.address,
            "answers": node.name in view.statuses,
            "reason": view.silent.get(node.name, ""),
            "same_map": _has_same_map(view, node.name),
        }
        for node in view.description.file.node
    ]


def columns_of(table: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The columns of one of the tables, for these rows."""
    columns = COLUMNS[table].items()
    return {key: heading for key, heading in columns if key not in MAY_BE_EMPTY or any(row[key] for row in rows)}


def link_rows(view: NetworkView) -> list[dict[str, Any]]:
    """A row for each end of each link that there should be, or is, as far as its node tells of it."""
    links = dict.fromkeys(view.description.map().links)
    for one, status in view.statuses.items():
        for other, up in values_by(status.gauges, LINK_UP, "node").items():
            if up and (other, one) not in links:  # past somebody who is away, for one
                links[one, other] = None
    return [row for pair in links for row in _ends(view, *pair) if row is not None]


def services_of(view: NetworkView) -> list[dict[str, Any]]:
    """A row for each node and each other one whose pubends are to come there, where the router tells of it."""
    return service_rows({name: status.gauges for name, status in view.statuses.items()})


def shb_rows(view: NetworkView) -> list[dict[str, Any]]:
    """A row for each SHB that a pubend's log waits for: how far it is behind, and whether it is the one waited for."""
    rows = []
    for pubend in view.pubends:
        released = {shb: _released(view, shb, pubend) for shb in pubend.shbs}
        known = [tick for tick in released.values() if tick is not None]
        held = {shb: size for shb, _, size in pubend.holds}
        for shb in pubend.shbs:
            node = shb.partition("@")[0]
            status = view.statuses.get(node)
            head = None if status is None else values_by(status.gauges, SHB_HEAD, "pubend").get(pubend.pubend)
            behind = None if head is None or not pubend.timed else max(0.0, seconds_between(int(head), pubend.stable))
            # Of whoever does not answer nobody knows how far he is: it may be he.
            pins = released[shb] is None or released[shb] == min(known) or shb in held
            rows.append(
                {
                    "shb": shb,
                    "pubend": pubend.pubend,
                    "answers": status is not None,
                    "behind_seconds": behind,
                    "pins": pins and bool(pubend.pinned_bytes),
                    "pinned_bytes": max(pubend.pinned_bytes, held.get(shb, 0)) if pins else 0,
                }
            )
    return rows


def _released(view: NetworkView, shb: str, pubend: PubendInfo) -> int | None:
    status = view.statuses.get(shb.partition("@")[0])
    tick = None if status is None else values_by(status.gauges, SHB_RELEASED, "pubend").get(pubend.pubend)
    return None if tick is None else int(tick)


def _has_same_map(view: NetworkView, name: str) -> bool | None:
    """Whether a node has the map of the file; None if it is not known."""
    if name not in view.statuses:
        return None
    digests = values_by(view.statuses[name].gauges, NETWORK_MAP, "digest")
    return view.description.digest.hex() in digests


def _ends(view: NetworkView, one: str, other: str) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    return _end(view, one, other), _end(view, other, one)


def _end(view: NetworkView, of: str, to: str) -> dict[str, Any] | None:
    """A link as the node at one end tells of it; None if it does not answer, or wants no such link."""
    status = view.statuses.get(of)
    if status is None:
        return None
    up, waiting, behind, ended = (
        values_by(status.gauges, family, "node").get(to) for family in (LINK_UP, LINK_WAITING, LINK_BEHIND, LINKS_ENDED)
    )
    if up is None:
        return None
    return {
        "from": of,
        "to": to,
        "up": bool(up),
        "waiting_bytes": int(waiting or 0),
        "behind_seconds": float(behind or 0),
        "ended": int(ended or 0),
    }


# -------------------------------------------------------------------------------------- what is wrong


def findings_of(view: NetworkView) -> Iterator[str]:
    """A sentence for each thing that is wrong, with what to do about it."""
    yield from _silent_nodes(view)
    yield from _other_maps(view)
    for one, other in view.description.map().links:
        yield from _broken_link(view, one, other)
    for row in link_rows(view):
        yield from _slow_link(row)
    yield from services({name: status.gauges for name, status in view.statuses.items()}, view.silent)
    yield from _shbs(view)
    for name, reason in view.refusals.items():
        yield f"node {name} has left out of a listing what it has: {reason}. Ask as somebody who may see it"


def said_of(view: NetworkView, node: str) -> str:
    """What other nodes say of a node that they miss: of each what it said last, and once what several say."""
    said: dict[str, list[str]] = {}
    for name, status in view.statuses.items():
        alarms = [alarm for alarm in status.alarms if _explains(alarm, node)]
        if alarms:
            said.setdefault(max(alarms, key=lambda alarm: alarm.last).text, []).append(name)
    return "; ".join(f"{' and '.join(names)}: {text}" for text, names in said.items())


def is_told_better(view: NetworkView, of: str, alarm: AlarmInfo) -> bool:
    """Whether an alarm of a node is part of another finding, or is about a link that is there again."""
    if alarm.code in {UNREACHABLE, MAPS_DIFFER}:
        return True
    end = _end(view, of, alarm.about)
    return alarm.code == REFUSED and (alarm.about in view.silent or (end is not None and end["up"]))


def _explains(alarm: AlarmInfo, node: str) -> bool:
    return alarm.about == node and (alarm.code == REFUSED or (alarm.code == UNREACHABLE and not alarm.over))


def _silent_nodes(view: NetworkView) -> Iterator[str]:
    for name, reason in view.silent.items():
        said = said_of(view, name)
        advice = next(advice for word, advice in ADVICE.items() if word in said)
        yield f"node {name} cannot be reached from {view.asked}: {said or reason}. {advice}"


def _other_maps(view: NetworkView) -> Iterator[str]:
    for name in view.statuses:
        if _has_same_map(view, name) is False:
            yield (
                f"node {name} was started with another network file than {view.description.path}: give it this one and"
                " restart it; or, if it has the newer one, ask with that and restart the others"
            )


def _broken_link(view: NetworkView, one: str, other: str) -> Iterator[str]:
    if one in view.silent or other in view.silent:
        return  # that is a finding already
    ends = [end for end in _ends(view, one, other) if end is not None]
    up = [end for end in ends if end["up"]]
    if not ends or len(up) == 2:
        return
    reasons = [*_reason(view, one, other), *_reason(view, other, one)]
    why = f": {'; '.join(reasons)}" if reasons else ""
    if up and len(ends) == 2:
        end = up[0]
        yield (
            f"the link between {one} and {other} works one way only, or has just gone down: {end['from']} has it,"
            f" {end['to']} does not{why}. Ask again; if it stays so, look at firewalls, proxies and cables between them"
        )
    elif not up:
        yield (
            f"there is no link between {one} and {other}, though both can be reached{why}. Look at what is between the"
            " two; until then everything takes other ways"
        )


def _reason(view: NetworkView, of: str, to: str) -> Iterator[str]:
    for alarm in view.statuses[of].alarms:
        if alarm.code == UNREACHABLE and alarm.about == to and not alarm.over:
            yield f"{of} says {alarm.text!r}"


def _slow_link(row: Mapping[str, Any]) -> Iterator[str]:
    waiting, behind = row["waiting_bytes"], row["behind_seconds"]
    if row["up"] and (waiting > LINK_HIGH or behind > LINK_SLOW):
        yield (
            f"the link from {row['from']} to {row['to']} is slow: {shown_bytes(waiting)} wait there, and what was sent"
            f" {behind:.1f} s ago has not arrived. Look what else it carries; what does not get through now comes later"
        )


def _shbs(view: NetworkView) -> Iterator[str]:
    nodes = {node.name for node in view.description.file.node}
    for row in shb_rows(view):
        shb, pubend, behind = row["shb"], row["pubend"], row["behind_seconds"]
        node = shb.partition("@")[0]
        if node not in nodes:
            yield (
                f"{pubend} waits for SHB {shb}, and {view.description.path} has no such node: if it is gone for good,"
                f" give it up with `gapless retire {shb}`"
            )
        elif not row["answers"]:
            kept = shown_bytes(row["pinned_bytes"])
            yield (
                f"{pubend} waits for SHB {shb}, which cannot be reached, and keeps {kept}: start it; if it is gone for"
                f" good, give it up with `gapless retire {shb}`"
            )
        elif behind is not None and behind > SHB_LAGS:
            yield (
                f"SHB {shb} is {shown_duration(behind)} behind {pubend}: its subscriptions get that late. See whether a"
                " link on the way is slow, or its machine busy"
            )
