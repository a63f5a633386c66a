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

from gapless.cli.connecting import connected, credentials_of, run, within
from gapless.cli.doctor_logs import (
    PIN_COLUMNS,
    WAITING_COLUMNS,
    abandoned,
    absent,
    damaged,
    held_groups,
    keeping_of,
    misstamped,
    pins_of,
    twice_kept,
    waiting_of,
)
from gapless.cli.doctor_services import own_name, services
from gapless.cli.options import DEFAULT_URL, DEFAULT_WAIT, URL_OPTION, AsJson, User, Wait, naming_what_makes_it
from gapless.cli.output import one_line, print_json, print_table, shown_bytes, shown_lag, some_lines, table_of
from gapless.errors import AuthorizationError, ConfigurationError, GaplessError, PluginError, VolumeLockedError

if TYPE_CHECKING:
    from gapless import AlarmInfo, BrokerStatus, Connection, Gauge, PubendInfo, SubscriptionInfo
    from gapless.client.credentials import CredentialSource
    from gapless.node.config import NodeConfig
    from gapless.node.network import NetworkDescription

ALARMING: Final = 86_400.0
"""Seconds for which an alarm that tells of what merely happened is worth a word."""
SPACE_FACTOR: Final = 4
"""So many times `min_free_bytes` should be free, or it is worth a word."""

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
    waiting: list[dict[str, Any]] = field(default_factory=list)
    """The requests of clients that wait for a subscription."""
    alarms: list[dict[str, Any]] = field(default_factory=list)
    gauges: list[dict[str, Any]] = field(default_factory=list)
    network: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """The nodes, links, services and SHBs of a network."""

    def fields(self) -> dict[str, Any]:
        """As JSON says it."""
        return {
            "ok": not self.findings,
            "findings": self.findings,
            **self.facts,
            **self.network,
            "pins": self.pins,
            "waiting": self.waiting,
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
    user: User = "",
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
        from gapless.cli.doctor_network import urls_of

        description = load_network_of(network)
        where = url or urls_of(description) or DEFAULT_URL
        run(examine_network(examination, description, where, wait, credentials_of(where, user)))
        finish(examination, as_json=as_json)
        return
    if config is None and url is not None:
        expected = True
    else:
        settings = examine_configuration(examination, config)
        expected = settings is not None and examine_storage(examination, settings)
    where = url or own_url(examination)
    run(examine_broker(examination, where, wait, credentials_of(where, user), expected=expected))
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
    from gapless.core.stream import fast

    names = sorted({_distribution(line) for line in requires("gapless") or () if "extra ==" not in line})
    examination.facts["versions"] = {
        "gapless": version("gapless"),
        "python": f"{platform.python_version()} ({platform.python_implementation()}, {sys.executable})",
        "platform": platform.platform(),
        "gapless-fast": fast.VERSION or "not used: brokers and publishers are slower without it",
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
    from gapless.node.assembly import check_settings, dialable, doubts_about, load_plugins
    from gapless.node.config import load_config

    examination.facts["configuration"] = {"file": str(path) if path is not None else None}
    try:
        settings = load_config(path, os.environ)
        loaded = load_plugins(settings)
        # As a broker does at its start: each section is read by what it is for.
        check_settings(loaded, time.monotonic_ns(), time.time_ns() // 1_000_000)
    except ConfigurationError as error:
        examination.findings.append(f"configuration: {error}")
        return None
    doubts = doubts_about(loaded.config, loaded.authorizer.authorizer)
    examination.findings += (f"configuration: {doubt}" for doubt in doubts)
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


async def examine_broker(
    examination: Examination, url: str, wait: float, credentials: CredentialSource | None, *, expected: bool
) -> None:
    """Whether a broker answers, and who holds how much of which log there.

    `expected`: it has to, for somebody has named it, or has the volume open.
    """
    try:
        async with connected(url, "", wait, credentials) as connection:
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
        examination.findings += held_groups(status.gauges)
        examination.findings += services({own_name(status.gauges): status.gauges})
    examine_logs(examination, pubends, subscriptions)


def examine_logs(
    examination: Examination, pubends: Sequence[PubendInfo], subscriptions: Sequence[SubscriptionInfo]
) -> None:
    """Why each log is as long as it is, who holds how much of it, and what is wrong with it."""
    examination.facts["logs"] = {info.pubend: keeping_of(info) for info in pubends}
    examination.pins = pins_of(pubends, subscriptions)
    examination.waiting = waiting_of(subscriptions)
    examination.findings += abandoned(examination.pins)
    examination.findings += absent(pubends)
    examination.findings += misstamped(pubends, time.time_ns() // 1_000_000)
    examination.findings += damaged(pubends)
    examination.findings += twice_kept(subscriptions)


def load_network_of(path: Path) -> NetworkDescription:
    """The network that a file describes. Raises ConfigurationError."""
    from gapless.node.network import load_network

    return load_network(path)


async def examine_network(
    examination: Examination,
    description: NetworkDescription,
    where: str,
    wait: float,
    credentials: CredentialSource | None,
) -> None:
    """All nodes of a network: who answers, whose map differs, which links are down, and which SHB is behind."""
    from gapless.cli import doctor_network as of_network

    facts = examination.facts["network"] = {"name": description.name, "file": str(description.path), "url": where}
    try:
        view = await of_network.look(description, where, wait, credentials)
    except GaplessError as error:
        examination.findings.append(f"no node of the network can be asked: {error}. --url names one that can be")
        return
    facts["asked"] = view.asked
    examination.network = {
        "nodes": of_network.node_rows(view),
        "links": of_network.link_rows(view),
        "services": of_network.services_of(view),
        "shbs": of_network.shb_rows(view),
    }
    examination.findings += of_network.findings_of(view)
    now = time.time_ns() // 1_000_000
    for name, status in view.statuses.items():
        examination.alarms += [{"node": name, **alarm_json(alarm)} for alarm in status.alarms]
        examination.gauges += [{"node": name, **gauge_json(gauge)} for gauge in status.gauges]
        told = [alarm for alarm in status.alarms if not of_network.is_told_better(view, name, alarm)]
        findings = [*alarming(told, now), *held_groups(status.gauges)]
        examination.findings += [f"node {name}: {finding}" for finding in findings]
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
        f"alarm {alarm.code}: {alarm.text}"
        f" ({'once,' if alarm.count == 1 else f'{alarm.count} times, last'} at {alarm.last:%Y-%m-%d %H:%M:%S})."
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


def print_examination(examination: Examination) -> None:
    """Prints all of it for a person."""
    for title, facts in examination.facts.items():
        print(title)
        for name, value in facts.items():
            print(f"  {name}: {one_line(_fact(value))}")
    if examination.pins:
        rows = [
            pin
            | shown_lag(pin["lag_events"], pin["lag_seconds"], complete=pin["lag_complete"])
            | {"about": shown_bytes(pin["about_bytes"])}
            for pin in examination.pins
        ]
        print_table(table_of(rows, PIN_COLUMNS))
    if examination.waiting:
        print_table(table_of(examination.waiting, WAITING_COLUMNS))
    if examination.network:
        from gapless.cli.doctor_network import columns_of

        for name, found in examination.network.items():
            if found:
                print_table(table_of(found, columns_of(name, found)))
    node = {"node": "node"} if examination.network else {}
    if examination.gauges and not examination.network:  # of many nodes they are for programs
        rows = [gauge | {"of": ", ".join(gauge["labels"].values())} for gauge in examination.gauges]
        print_table(table_of(rows, GAUGE_COLUMNS))
    if examination.alarms:
        print_table(table_of(examination.alarms, node | ALARM_COLUMNS))
    for finding in examination.findings:
        print(f"FOUND: {some_lines(finding)}")
    if not examination.findings:
        print("nothing is wrong")


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
        why = naming_what_makes_it(str(error), "broker", config=settings.source)
        examination.findings.append(f"the volume in {directory} cannot be opened: {why}")
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
