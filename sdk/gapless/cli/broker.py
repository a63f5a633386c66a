"""`gapless broker`: a node of its own, until it is told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gapless.cli.connecting import run
from gapless.cli.options import AsJson, naming_what_makes_it
from gapless.cli.output import print_json
from gapless.errors import VolumeAbsentError

if TYPE_CHECKING:
    from gapless.node.config import NodeConfig
    from gapless.node.node import Node

STDIN = 0


class LogFormat(str, Enum):
    """How the log is written."""

    TEXT = "text"
    JSON = "json"


class LogLevel(str, Enum):
    """What is written: this, and what is graver."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def broker(
    *,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The configuration, in TOML; environment variables go before it."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where the data are, whatever else says so; those of an `embedded:DIR` are taken over.",
        ),
    ] = None,
    create: Annotated[
        bool,
        typer.Option(
            "--create",
            help="Make the volume if there is none: needed with --config, and where its directory exists and is empty.",
        ),
    ] = False,
    observe: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Tell figures and health over HTTP there, as 127.0.0.1:7401."),
    ] = None,
    log_format: Annotated[
        LogFormat | None, typer.Option(help="How the log is written: as text, or one JSON object a line.")
    ] = None,
    log_level: Annotated[LogLevel | None, typer.Option(help="What is logged: this, and what is graver.")] = None,
    until_stdin_closes: Annotated[
        bool, typer.Option("--until-stdin-closes", help="End when whoever started the broker is gone.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a broker: without --config on 127.0.0.1:7400 with RocksDB in ./gapless-data, or in --data.

    It prints the URL to connect to once it serves, and logs to the standard error output. SIGTERM and
    Ctrl-C stop it in order.
    """
    from gapless.node.config import PREFIX
    from gapless.observe.logs import BrokerLog

    said = {"OBSERVE__ADDRESS": observe, "NODE__LOG_FORMAT": log_format, "NODE__LOG_LEVEL": log_level}
    more = {f"{PREFIX}{name}": _plain(value) for name, value in said.items() if value is not None}
    log = BrokerLog()
    with log.errors_as_lines():
        if log_format is LogFormat.JSON:  # what is wrong with the configuration is such a line, too
            log.set_up(log_format.value, "info", "")
        settings = configuration(config, data, create=create, **more)
        os.umask(0o077)  # the volume's files, which RocksDB makes, are for nobody else
        log.set_up(settings.node.log_format, settings.node.log_level, settings.node.name)
        if data is not None:
            settings = taking_over(settings, config, data, create=create, **more)
            log.set_up(settings.node.log_format, settings.node.log_level, settings.node.name)
        try:
            _run(settings, as_json=as_json, until_stdin_closes=until_stdin_closes)
        except VolumeAbsentError as error:
            raise VolumeAbsentError(naming_what_makes_it(str(error), "broker", config=config, data=data)) from error


def _run(settings: NodeConfig, *, as_json: bool, until_stdin_closes: bool) -> None:
    """Serves until it is told to stop."""
    from gapless.node.assembly import is_everywhere
    from gapless.node.node import serve

    def announce(node: Node) -> None:
        if as_json:
            told = {"url": node.url, "urls": node.urls, "addresses": node.addresses, "pid": os.getpid()}
            print_json(told | ({"observe": node.observe_url} if node.observe_url else {}))
            return
        beyond = any(map(is_everywhere, node.addresses))
        hint = " (from other machines, by this one's name)" if beyond else ""
        print(f"gapless broker: serving on {' and '.join(node.urls) or node.url}{hint}; Ctrl-C stops it", flush=True)

    async def live() -> None:
        if until_stdin_closes:  # once a signal is heard: `serve` listens to them before it waits for anything
            asyncio.get_running_loop().call_soon(stop_when_stdin_closes)
        await serve(settings, announce)

    run(live())


def _plain(value: str) -> str:
    return str(value.value) if isinstance(value, Enum) else value


def configuration(file: Path | None, data: Path | None, *, create: bool, **more: str) -> NodeConfig:
    """The configuration. What the command says goes before the environment; `more`: variables of it."""
    from gapless.node.config import PREFIX, load_config

    environment = {**os.environ, **more}
    if data is not None:
        environment[f"{PREFIX}STORAGE__PATH"] = str(data.absolute())
    return load_config(file, environment, create=create)


def taking_over(settings: NodeConfig, file: Path | None, data: Path, *, create: bool, **more: str) -> NodeConfig:
    """The configuration of the node that the directory belongs to, if a broker inside a program made it.

    A node that is given a name has that one: then such a directory is somebody else's.
    """
    from gapless.node.assembly import owner_of_volume
    from gapless.node.config import EMBEDDED, PREFIX

    if "name" in settings.node.model_fields_set or owner_of_volume(settings) != EMBEDDED:
        return settings
    return configuration(file, data, create=create, **{f"{PREFIX}NODE__NAME": EMBEDDED, **more})


def stop_when_stdin_closes() -> None:
    """Stops this process, in order, when its standard input ends: whoever held the other end is gone."""

    def watch() -> None:
        while os.read(STDIN, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="stdin", daemon=True).start()
