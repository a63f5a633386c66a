"""A RabbitMQ node of Debian's package, for its quorum queues and for its streams."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from bench.peers.system import answers, free_port, missing_package, started

SCRIPT = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""Debian's; the one on the PATH changes the user, and with it the directories."""


def missing(client: str) -> str:
    """The client comes from PyPI, the server from the system."""
    if missing := missing_package(client):
        return missing
    return "" if SCRIPT.exists() else f"there is no {SCRIPT} (Debian: apt-get install rabbitmq-server)"


def server_version() -> str:
    """Of RabbitMQ."""
    return next(SCRIPT.parents[1].glob("lib/rabbitmq_server-*")).name.rpartition("-")[2]


@contextlib.contextmanager
def running(directory: Path, port: int, settings: Mapping[str, object], plugins: str = "") -> Iterator[int]:
    """A node of its own, with its own port mapper, which is ended, too; the node's process.

    It is ready when it listens on the port, which the settings have to say.
    """
    (directory / "rabbitmq.conf").write_text(
        "".join(f"{name} = {value}\n" for name, value in settings.items()), "utf-8"
    )
    (directory / "plugins").write_text(f"[{plugins}].\n", "utf-8")
    environment = {
        "HOME": str(directory),
        "ERL_EPMD_PORT": str(free_port()),
        "RABBITMQ_NODENAME": "race@localhost",
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(directory),
        "RABBITMQ_LOG_BASE": str(directory),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
    }
    try:
        with started([str(SCRIPT)], directory, lambda: answers(port), environment) as process:
            yield process.pid
    finally:
        mapper = [shutil.which("epmd") or "epmd", "-kill"]
        subprocess.run(mapper, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, check=False)
