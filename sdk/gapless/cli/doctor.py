"""`gapless doctor`: looks at this installation and its broker, and says what is wrong and what to do."""

from __future__ import annotations

import asyncio
import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from gapless.cli.connecting import connected, run, within
from gapless.cli.options import DEFAULT_URL, DEFAULT_WAIT, URL_OPTION, AsJson, Wait
from gapless.cli.output import print_json, print_table, shown_bytes, shown_duration, shown_lag, table_of
from gapless.errors import AuthorizationError, ConfigurationError, GaplessError, PluginError, VolumeLockedError

if TYPE_CHECKING:
    from gapless import AlarmInfo, BrokerStatus, Connection, Gauge, PubendInfo, SubscriptionInfo
    from gapless.node.config import NodeConfig
    from gapless.node.network import NetworkDescription

ABANDONED: Final = 86_400.0
"""Seconds for which a subscription that nobody consumes may hold events before it is worth a word."""
ALARMING: Final = 86_400.0
"""Seconds for which an alarm that tells of what merely happened is worth a word."""
CLOCK_OFF_SECONDS: Final = 90.0
"""Stamps may be so far from this machine's clock: a minute, and what a broker that is idle lags."""
SPACE_FACTOR: Final = 4
"""So many times `min_free_bytes` should be free, or it is worth a word."""

PIN_COLUMNS: Final = {
    "pubend": "pubend",
    "client_id": "client",
    "name": "subscription",
    "connected": "connected",
    "since_time": "holds events since",
    "lag_events": "lag in events",
    "lag": "lag in time",
    "about": "about",
}
GAUGE_COLUMNS: Final = {"name": "figure", "of": "of", "value": "value", "help": "what it says"}
ALARM_COLUMNS: Final = {
    "code": "alarm",
    "about": "about",
    "count": "times",
    "last": "last",
    "over": "over",
    "text": "what was said",
}

DoctorUrl: TypeAlias = Annotated[str | None, URL_OPTION]


@dataclass(slots=True)
class Examination:
    """What was looked at, and what is wrong."""

    facts: dict[str, Any] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    pins: list[dict[str, Any]] = field(default_factory=list)
    alarms: list[dict[str, Any]] = field(default_factory=list)
    gauges: list[dict[str, Any]] = field(default_factory=list)
    network: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """The nodes, links and SHBs of a network."""

    def fields(self) -> dict[str, Any]:
        """As JSON says it."""
        return {
            "ok": not self.findings,
            "findings": self.findings,
            **self.facts,
            **self.network,
            "pins": self.pins,
            "alarms": self.alarms,
            "gauges": self.gauges,
        }


def doctor(
    *,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The broker's configuration; default: as for `gapless broker`.")
    ] = None,
    network: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The description of a network: look at all of its nodes.")
    ] = None,
    url: DoctorUrl = None,
    wait: Wait = DEFAULT_WAIT,
    as_json: AsJson = False,
) -> None:
    """Look at this installation: versions, plugins, configuration, disk, and who holds how much of which log.

    With --url (or GAPLESS_URL) and without --config it looks at that broker, which has to answer, and leaves the
    configuration and the disk of this machine alone. With --network it looks at all nodes of a network, through the one
    at --url, or one that the file has a client's address of. The exit status is 1 if something was found.
    """
    examination = Examination()
    examine_versions(examination)
    examine_plugins(examination)
    if network is not None:
        if config is not None:
            raise ConfigurationError("--network looks at a network, --config at one broker: name one of them")
        run(examine_network(examination, load_network_of(network), url, wait))
        finish(examination, as_json=as_json)
        return
    if config is None and url is not None:
        expected = True
    else:
        settings = examine_configuration(examination, config)
        expected = settings is not None and examine_storage(examination, settings)
    run(examine_broker(examination, url or own_url(examination), wait, expected=expected))
    finish(examination, as_json=as_json)


def finish(examination: Examination, *, as_json: bool) -> None:
    """Prints all of it, and ends the command with 1 if something was found."""
    if as_json:
        print_json(examination.fields())
    else:
        print_examination(examination)
    if examination.findings:
        raise typer.Exit(1)


def examine_versions(examination: Examination) -> None:
    """Python, gapless, and what it stands on."""
    names = sorted({_distribution(line) for line in requires("gapless") or () if "extra ==" not in line})
    examination.facts["versions"] = {
        "gapless": version("gapless"),
        "python": f"{platform.python_version()} ({platform.python_implementation()}, {sys.executable})",
        "platform": platform.platform(),
        **{name: found for name in names if (found := _version(name))},
    }


def examine_plugins(examination: Examination) -> None:
    """Which plugins are installed, and whether each can be loaded."""
    from gapless import plugins

    found: dict[str, dict[str, str | None]] = {}
    for kind in plugins.KINDS:
        found[kind] = {}
        for name in plugins.names(kind):
            try:
                plugins.load(kind, name)
                found[kind][name] = None
            except PluginError as error:
                found[kind][name] = str(error)
                examination.findings.append(str(error))
    examination.facts["plugins"] = found


def examine_configuration(examination: Examination, path: Path | None) -> NodeConfig | None:
    """The broker's configuration; None when something is wrong with it."""
    from gapless.node.assembly import dialable, load_plugins
    from gapless.node.config import load_config

    examination.facts["configuration"] = {"file": str(path) if path is not None else None}
    try:
        settings = load_config(path, os.environ)
        loaded = load_plugins(settings)
    except ConfigurationError as error:
        examination.findings.append(f"configuration: {error}")
        return None
    examination.facts["configuration"] |= {
        "node": settings.node.name,
        "storage": settings.storage.plugin,
        "path": settings.storage.path,
        "listen": [listen.address for listen in settings.listen],
        # Where the system is to choose a port, only the broker knows what to dial.
        "urls": [dialable(*pair) for pair in loaded.listeners if not pair[0].address.endswith(":0")],
    }
    return settings


def own_url(examination: Examination) -> str:
    """Where the broker of the configuration that was looked at is reached; the default if that says nothing."""
    urls: list[str] = examination.facts.get("configuration", {}).get("urls", [])
    return urls[0] if urls else DEFAULT_URL


def examine_storage(examination: Examination, settings: NodeConfig) -> bool:
    """The disk, and whether the volume can be opened. Returns whether a broker has it open."""
    directory = Path(settings.storage.path)
    state, in_use = "in memory", False
    if settings.storage.plugin != "memory":
        _examine_disk(examination, directory, settings.node.min_free_bytes)
        state, in_use = _volume_state(examination, directory, settings)
    examination.facts["volume"] = {"path": str(directory), "state": state}
    return in_use


async def examine_broker(examination: Examination, url: str, wait: float, *, expected: bool) -> None:
    """Whether a broker answers, and who holds how much of which log there.

    `expected`: it has to, for somebody has named it, or has the volume open.
    """
    try:
        async with connected(url, "", wait) as connection:
            asked = asyncio.gather(connection.pubends(), connection.subscriptions())
            pubends, subscriptions = await within(wait, asked, f"the broker at {url} does not answer questions")
            status = await within(wait, _status(connection), f"the broker at {url} does not tell its status")
    except GaplessError as error:
        examination.facts["broker"] = {"url": url, "answers": False, "reason": str(error)}
        if expected:
            examination.findings.append(f"a broker should be there, but cannot be reached: {error}")
        return
    examination.facts["broker"] = {
        "url": url,
        "answers": True,
        "pubends": len(pubends),
        "subscriptions": len(subscriptions),
        "log_bytes": sum(info.log_bytes for info in pubends),
    }
    if isinstance(status, str):
        examination.facts["broker"]["status"] = status
    else:
        examination.alarms = [alarm_json(alarm) for alarm in status.alarms]
        examination.gauges = [gauge_json(gauge) for gauge in status.gauges]
        examination.findings += alarming(status.alarms, time.time_ns() // 1_000_000)
    examine_logs(examination, pubends, subscriptions)


def examine_logs(
    examination: Examination, pubends: Sequence[PubendInfo], subscriptions: Sequence[SubscriptionInfo]
) -> None:
    """Why each log is as long as it is, who holds how much of it, and what is wrong with it."""
    examination.facts["logs"] = {info.pubend: keeping_of(info) for info in pubends}
    examination.pins = pins_of(pubends, subscriptions)
    examination.findings += abandoned(examination.pins)
    examination.findings += absent(pubends)
    examination.findings += misstamped(pubends, time.time_ns() // 1_000_000)
    examination.findings += damaged(pubends)


def load_network_of(path: Path) -> NetworkDescription:
    """The network that a file describes. Raises ConfigurationError."""
    from gapless.node.network import load_network

    return load_network(path)


async def examine_network(
    examination: Examination, description: NetworkDescription, url: str | None, wait: float
) -> None:
    """All nodes of a network: who answers, whose map differs, which links are down, and which SHB is behind."""
    from gapless.cli import doctor_network as of_network

    where = url or of_network.urls_of(description) or DEFAULT_URL
    facts = examination.facts["network"] = {"name": description.name, "file": str(description.path), "url": where}
    try:
        view = await of_network.look(description, where, wait)
    except GaplessError as error:
        examination.findings.append(f"no node of the network can be asked: {error}. --url names one that can be")
        return
    facts["asked"] = view.asked
    examination.network = {
        "nodes": of_network.node_rows(view),
        "links": of_network.link_rows(view),
        "shbs": of_network.shb_rows(view),
    }
    examination.findings += of_network.findings_of(view)
    now = time.time_ns() // 1_000_000
    for name, status in view.statuses.items():
        examination.alarms += [{"node": name, **alarm_json(alarm)} for alarm in status.alarms]
        examination.gauges += [{"node": name, **gauge_json(gauge)} for gauge in status.gauges]
        told = [alarm for alarm in status.alarms if not of_network.is_told_better(view, name, alarm)]
        examination.findings += [f"node {name}: {finding}" for finding in alarming(told, now)]
    examine_logs(examination, view.pubends, view.subscriptions)


async def _status(connection: Connection) -> BrokerStatus | str:
    """The broker's status, or why it cannot tell it: it may be older than this command."""
    try:
        return await connection.status()
    except (AuthorizationError, ConfigurationError) as error:
        return str(error)


def alarming(alarms: Sequence[AlarmInfo], now: int) -> list[str]:
    """A sentence for each alarm that lasts and is not over, and for each other one of the last day.

    `now`: milliseconds since 1970.
    """
    return [
        f"alarm {alarm.code}: {alarm.text} ({alarm.count} times, last at {alarm.last:%Y-%m-%d %H:%M:%S})."
        f" {alarm.remedy}"
        for alarm in alarms
        if (not alarm.over if alarm.lasts else now / 1000 - alarm.last.timestamp() < ALARMING)
    ]


def alarm_json(alarm: AlarmInfo) -> dict[str, Any]:
    """An alarm as JSON says it."""
    return {**asdict(alarm), "first": alarm.first.isoformat(), "last": alarm.last.isoformat()}


def gauge_json(gauge: Gauge) -> dict[str, Any]:
    """A figure as JSON says it."""
    return {
        "name": gauge.name,
        "labels": dict(gauge.labels),
        "value": gauge.value,
        "counter": gauge.counter,
        "help": gauge.help,
    }


def pins_of(pubends: Sequence[PubendInfo], subscriptions: Sequence[SubscriptionInfo]) -> list[dict[str, Any]]:
    """Which subscription holds how much of which log, whoever holds most first.

    What a pubend logs per second is taken to be even: `about_bytes` is an estimate.
    """
    pins = [
        pin for pubend in pubends for subscription in subscriptions if (pin := _pin(pubend, subscription)) is not None
    ]
    return sorted(pins, key=lambda pin: (-pin["about_bytes"], pin["pubend"], pin["client_id"], pin["name"]))


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


def keeping_of(pubend: PubendInfo) -> str:
    """Why a log is as long as it is: whom it waits for, and what goes early, for people."""
    from gapless.core.stream.ticks import time_at

    def from_time(tick: int) -> str:
        return f"{time_at(max(tick, pubend.lost)):%Y-%m-%d %H:%M:%S}" if max(tick, pubend.lost) else "its beginning"

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

    off = [(pubend, (wall_at(pubend.stable) - wall) / 1000) for pubend in pubends if pubend.stable]
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
        if pubend.shbs and pubend.delivered and pubend.undelivered_bytes
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
        f"{pubend.pubend} cannot be read from tick {start + 1} to {end}, and its subscribers wait there:"
        f" see `gapless repair` ({why})"
        for pubend in pubends
        for start, end, why in pubend.damaged
        if why
    ]
    return [*unreadable, *(pubend.refusal for pubend in pubends if pubend.refusal)]


def print_examination(examination: Examination) -> None:
    """Prints all of it for a person."""
    for title, facts in examination.facts.items():
        print(title)
        for name, value in facts.items():
            print(f"  {name}: {_fact(value)}")
    if examination.pins:
        rows = [
            pin
            | shown_lag(pin["lag_events"], pin["lag_seconds"], complete=pin["lag_complete"])
            | {"about": shown_bytes(pin["about_bytes"])}
            for pin in examination.pins
        ]
        print_table(table_of(rows, PIN_COLUMNS))
    if examination.network:
        from gapless.cli.doctor_network import COLUMNS

        for name, found in examination.network.items():
            if found:
                print_table(table_of(found, COLUMNS[name]))
    node = {"node": "node"} if examination.network else {}
    if examination.gauges and not examination.network:  # of many nodes they are for programs
        rows = [gauge | {"of": ", ".join(gauge["labels"].values())} for gauge in examination.gauges]
        print_table(table_of(rows, GAUGE_COLUMNS))
    if examination.alarms:
        print_table(table_of(examination.alarms, node | ALARM_COLUMNS))
    for finding in examination.findings:
        print(f"FOUND: {finding}")
    if not examination.findings:
        print("nothing is wrong")


def _pin(pubend: PubendInfo, subscription: SubscriptionInfo) -> dict[str, Any] | None:
    from gapless.core.stream.ticks import seconds_between, tick_at_time, time_at

    acknowledged = subscription.acknowledged.ticks.get(pubend.pubend)
    if acknowledged is None or acknowledged >= pubend.newest:
        return None
    if subscription.lag_complete and not subscription.lag_events and acknowledged < pubend.released:
        return None  # what came since was not for it, and was released
    oldest = max(pubend.lost, tick_at_time(pubend.created))
    since = max(acknowledged, oldest)
    share = (pubend.newest - since) / (pubend.newest - oldest) if pubend.newest > oldest else 1.0
    return {
        "pubend": pubend.pubend,
        "client_id": subscription.client_id,
        "name": subscription.name,
        "node": subscription.node,
        "connected": subscription.connected,
        "since": acknowledged,
        "since_time": f"{time_at(since):%Y-%m-%d %H:%M:%S}",
        "lag_events": subscription.lag_events,
        "lag_seconds": subscription.lag_seconds,
        "lag_complete": subscription.lag_complete,
        "held_seconds": seconds_between(since, pubend.newest),
        "about_bytes": round(pubend.log_bytes * min(1.0, share)),
    }


def _volume_state(examination: Examination, directory: Path, settings: NodeConfig) -> tuple[str, bool]:
    from gapless import plugins
    from gapless.spi import Create, VolumeIdentity

    if settings.create is Create.WHERE_NOTHING_IS and not directory.exists():
        return "not there yet: the broker makes it", False
    identity = VolumeIdentity(settings.node.network, settings.node.name)
    try:
        open_storage = plugins.load("storage", settings.storage.plugin)
        options = settings.storage.options
        volume = open_storage(path=str(directory), identity=identity, options=options, create=Create.NO)
        if volume.damage:
            examination.findings.append(
                f"the volume in {directory} is damaged: see `gapless repair`; until then it gives no space back to the"
                f" disk ({volume.damage})"
            )
        volume.close()
    except VolumeLockedError as error:
        return f"open: {error}", True
    except GaplessError as error:
        examination.findings.append(f"the volume in {directory} cannot be opened: {error}")
        return "cannot be opened", False
    return "can be opened; no broker has it open", False


def _examine_disk(examination: Examination, directory: Path, min_free_bytes: int) -> None:
    there = directory.absolute()
    while not there.exists():
        there = there.parent
    usage = shutil.disk_usage(there)
    examination.facts["disk"] = {
        "path": str(there),
        "free_bytes": usage.free,
        "total_bytes": usage.total,
        "min_free_bytes": min_free_bytes,
    }
    if not os.access(there, os.W_OK):
        examination.findings.append(f"{there} cannot be written by this user, and the broker's data belong there")
    if usage.free < min_free_bytes:
        examination.findings.append(
            f"{there} has {shown_bytes(usage.free)} left, less than node.min_free_bytes: publishers have to wait"
        )
    elif usage.free < SPACE_FACTOR * min_free_bytes:
        examination.findings.append(
            f"{there} has only {shown_bytes(usage.free)} left; below {shown_bytes(min_free_bytes)}"
            " (node.min_free_bytes) publishers have to wait"
        )


def _fact(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} ({why})" if why else name for name, why in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _distribution(requirement: str) -> str:
    """The name at the beginning of a requirement."""
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    return match[0] if match else requirement


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
