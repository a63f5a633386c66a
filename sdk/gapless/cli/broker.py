"""`gapless broker`: a node of its own, until it is told to stop."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gapless.cli.connecting import run
from gapless.cli.options import AsJson
from gapless.cli.output import print_json

if TYPE_CHECKING:
    from gapless.node.node import Node

STDIN = 0
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def broker(
    *,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The configuration, in TOML; environment variables go before it."),
    ] = None,
    create: Annotated[
        bool,
        typer.Option(
            "--create",
            help="Make the volume if there is none: needed with --config, and where its directory exists and is empty.",
        ),
    ] = False,
    until_stdin_closes: Annotated[
        bool, typer.Option("--until-stdin-closes", help="End when whoever started the broker is gone.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a broker: without --config on 127.0.0.1:7400 with RocksDB in ./gapless-data.

    It prints the URL to connect to once it serves, and logs to the standard error output. SIGTERM and
    Ctrl-C stop it in order.
    """
    from gapless.node.assembly import is_everywhere
    from gapless.node.config import load_config
    from gapless.node.node import serve

    settings = load_config(config, os.environ, create=create)
    os.umask(0o077)  # the volume's files, which RocksDB makes, are for nobody else
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT, stream=sys.stderr)
    if until_stdin_closes:
        stop_when_stdin_closes()

    def announce(node: Node) -> None:
        if as_json:
            print_json({"url": node.url, "urls": node.urls, "addresses": node.addresses, "pid": os.getpid()})
            return
        beyond = any(map(is_everywhere, node.addresses))
        hint = " (from other machines, by this one's name)" if beyond else ""
        print(f"gapless broker: serving on {' and '.join(node.urls) or node.url}{hint}; Ctrl-C stops it", flush=True)

    run(serve(settings, announce))


def stop_when_stdin_closes() -> None:
    """Stops this process, in order, when its standard input ends: whoever held the other end is gone."""

    def watch() -> None:
        while os.read(STDIN, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="stdin", daemon=True).start()
