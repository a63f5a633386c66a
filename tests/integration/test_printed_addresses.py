"""What a broker and the doctor print can be dialled as it stands, whatever transport the listener has."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.command_line import SECONDS_MAX, Shell, line_of

pytestmark = pytest.mark.timeout(180)  # each command is a process of its own

PIGEON = '''
"""A transport whose addresses TCP does not understand: `loft/HOST:PORT`. A listener has to have a keeper."""

from gapless.errors import ConfigurationError
from gapless.plugins import hookimpl
from gapless_transport import tcp


class Loft:
    def __init__(self, listener):
        self.address = f"loft/{listener.address}"
        self.close = listener.close


class Pigeons:
    scheme = "birds"
    encrypts = False
    asks_certificates = False

    def __init__(self, options):
        self.options = options
        self.tcp = tcp.open_transport(options={})

    def is_loopback(self, address):
        return self.tcp.is_loopback(way(address))

    async def listen(self, address, accept):
        if self.options != {"keeper": "Ada"}:
            raise ConfigurationError(f"a loft needs a keeper, and nothing else: {self.options}")
        return Loft(await self.tcp.listen(way(address), accept))

    async def dial(self, address, accept):
        if self.options:
            raise ConfigurationError(f"who sends a pigeon says nothing but where to: {self.options}")
        return await self.tcp.dial(way(address), accept)


def way(address):
    if not address.startswith("loft/"):
        raise ConfigurationError(f"{address!r} is no loft")
    return address.removeprefix("loft/")


@hookimpl
def open_transport(options):
    return Pigeons(dict(options))
'''

LOFT = '[[listen]]\ntransport = "pigeon"\naddress = "loft/127.0.0.1:0"\nkeeper = "Ada"\n'
LOOPBACK = '[[listen]]\naddress = "127.0.0.1:0"\n'
EVERYWHERE = 'node.insecure = true\n[[listen]]\naddress = "0.0.0.0:0"\n'
TO_BE_STARTED = ("broker", "--config", "gapless.toml", "--create", "--until-stdin-closes")


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A shell in whose Python the plugin `pigeon` is installed."""
    site = tmp_path / "site"
    info = site / "pigeon-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pigeon\nVersion: 1.0\n", "utf-8")
    (info / "entry_points.txt").write_text("[gapless.transport]\npigeon = pigeon_transport\n", "utf-8")
    (site / "pigeon_transport.py").write_text(PIGEON, "utf-8")
    directory = tmp_path / "work"
    directory.mkdir()
    shell = Shell(directory)
    shell.environment["PYTHONPATH"] = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    yield shell
    shell.close()


def start(shell: Shell, configuration: str) -> dict[str, Any]:
    """Starts a broker with this configuration; returns what it prints for programs."""
    (shell.directory / "gapless.toml").write_text(configuration, "utf-8")
    said: dict[str, Any] = json.loads(line_of(shell.start(*TO_BE_STARTED, "--json")))
    return said


def is_dialled(shell: Shell, url: str) -> bool:
    """Publishes through it: whether the event is on the broker's disk."""
    done = shell.run("publish", "a", "--url", url, "--json", stdin='{"body": "x"}\n')
    return bool(json.loads(done.stdout)["durable"])


@pytest.mark.parametrize(
    ("configuration", "scheme", "bound"),
    [
        (LOOPBACK, "gapless://127.0.0.1:", "127.0.0.1:"),
        (LOFT, "gapless+pigeon://loft/127.0.0.1:", "loft/127.0.0.1:"),
        (EVERYWHERE, "gapless://127.0.0.1:", "0.0.0.0:"),
    ],
    ids=["tcp", "pigeon", "everywhere"],
)
def test_what_a_broker_prints_for_programs_is_dialled(
    shell: Shell, configuration: str, scheme: str, bound: str
) -> None:
    said = start(shell, configuration)

    assert said["url"].startswith(scheme)
    assert said["urls"] == [said["url"]]
    assert said["addresses"] == [bound + said["url"].removeprefix(scheme)]
    assert is_dialled(shell, said["url"])


def test_each_listener_is_dialled_by_its_own_transport(shell: Shell) -> None:
    said = start(shell, LOFT + LOOPBACK)

    pigeon, tcp = said["urls"]
    assert pigeon.startswith("gapless+pigeon://loft/")
    assert tcp.startswith("gapless://127.0.0.1:")
    assert is_dialled(shell, pigeon)
    assert is_dialled(shell, tcp)


@pytest.mark.parametrize(
    ("configuration", "hint"),
    [(LOFT, ""), (EVERYWHERE, " (from other machines, by this one's name)")],
    ids=["pigeon", "everywhere"],
)
def test_what_a_broker_tells_people_and_its_log_is_dialled(shell: Shell, configuration: str, hint: str) -> None:
    (shell.directory / "gapless.toml").write_text(configuration, "utf-8")
    broker = shell.start(*TO_BE_STARTED)

    said = re.fullmatch(r"gapless broker: serving on (\S+)( \(.+\))?; Ctrl-C stops it\n", line_of(broker))
    assert said is not None
    assert (said[2] or "") == hint
    assert is_dialled(shell, said[1])
    broker.terminate()
    _, log = broker.communicate(timeout=SECONDS_MAX)
    assert f"node 'broker' serves on {said[1]}\n" in log


@pytest.mark.parametrize("listener", [LOFT, LOOPBACK], ids=["pigeon", "tcp"])
def test_the_doctor_dials_the_listener_of_the_configuration_and_says_so(shell: Shell, listener: str) -> None:
    said = start(shell, listener)
    [bound] = said["addresses"]
    started = listener.replace(bound.rpartition(":")[0] + ":0", bound)
    (shell.directory / "gapless.toml").write_text(started, "utf-8")

    found = json.loads(shell.run("doctor", "--config", "gapless.toml", "--json").stdout)

    assert found["findings"] == []
    assert found["configuration"]["listen"] == [bound]
    assert found["configuration"]["urls"] == [said["url"]]
    assert (found["broker"]["url"], found["broker"]["answers"]) == (said["url"], True)


def test_the_doctor_names_no_address_whose_port_the_system_chooses(shell: Shell) -> None:
    start(shell, LOFT)

    found = json.loads(
        shell.run(
            "doctor", "--config", "gapless.toml", "--url", "gapless+pigeon://loft/127.0.0.1:1", "--json", status=1
        ).stdout
    )

    assert found["configuration"]["urls"] == []
    assert found["configuration"]["listen"] == ["loft/127.0.0.1:0"]
