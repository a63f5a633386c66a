"""`gapless network`: a described network as processes of this machine, from its first line to its last."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless.node.gauges import SERVING
from integration.broker_process import CLI, PATIENCE, bounded, clean_environment, to_toml, until
from integration.networks_in_process import free_addresses

pytestmark = pytest.mark.timeout(120)
PATIENCE_OF_ALL = 3 * PATIENCE
"""Several interpreters start at once."""


def write_network(directory: Path, router: str = "local", **options: Mapping[str, Any]) -> Path:
    """A PHB, an IB and an SHB in a row."""
    roles = {"phb": ["phb"], "ib": [], "shb": ["shb"]}
    nodes = [
        {"name": name, "roles": roles[name], "address": address, "cell": name, "options": dict(options.get(name, {}))}
        for name, address in zip(roles, free_addresses(3), strict=True)
    ]
    # By default the router of one node: here only the processes count.
    network = {"name": "flights", "secret": "a secret of some length", "router": router}
    path = directory / "network.toml"
    sections = to_toml({"network": network, "node": nodes})
    path.write_text(f'bundles = [["phb", "ib"], ["ib", "shb"]]\n{sections}', "utf-8")
    return path


class Command:
    """`gapless network` while it runs."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.up: dict[str, dict[str, Any]] = {}

    async def until_up(self, count: int = 3) -> None:
        """Waits until so many nodes have said that they are up."""
        assert self.process.stdout is not None
        while len(self.up) < count:
            line = await bounded(self.process.stdout.readline(), PATIENCE_OF_ALL)
            assert line, f"it ended with {self.process.returncode}: {await self.errors()}"
            said = json.loads(line)
            self.up[said["node"]] = said

    async def until_said(self, words: str) -> None:
        """Waits until a line of its standard error output has these words."""
        assert self.process.stderr is not None
        while line := await bounded(self.process.stderr.readline(), PATIENCE_OF_ALL):
            if words in line.decode():
                return
        raise AssertionError(f"it never said {words!r}")

    async def ended(self) -> int:
        """Its exit status."""
        return await bounded(self.process.wait(), PATIENCE_OF_ALL)

    async def errors(self) -> str:
        """What it wrote to its standard error output."""
        assert self.process.stderr is not None
        return (await bounded(self.process.stderr.read())).decode()


@asynccontextmanager
async def running(file: Path, *arguments: str, as_json: bool = True) -> AsyncIterator[Command]:
    """The command on a file; at the end it and all that it started are gone."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *CLI,
        "network",
        str(file),
        *arguments,
        *(["--json"] if as_json else []),
        cwd=file.parent,
        env=clean_environment() | {"GAPLESS_NODE__NAME": "not for these"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    command = Command(process)
    try:
        yield command
    finally:
        if process.returncode is None:
            process.kill()  # its nodes' standard input ends with it
        await process.wait()
        await until(lambda: not any(map(_runs, command.up.values())), "all nodes to end")


def _runs(said: Mapping[str, Any]) -> bool:
    try:
        os.kill(said["pid"], 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{said['pid']}/stat").read_text().split()[2] != "Z" if Path("/proc").exists() else True


async def test_all_nodes_come_up_with_a_line_each_and_one_interrupt_ends_them(tmp_path: Path) -> None:
    file = write_network(tmp_path, shb={"storage": {"plugin": "memory"}})

    async with running(file) as command:
        await command.until_up()
        for name, up in command.up.items():
            async with gapless.connect(up["url"]) as connection:
                status = await bounded(connection.status())
            assert SERVING.gauge(1, name) in status.gauges
        command.process.send_signal(signal.SIGINT)
        assert await command.ended() == 0
        assert not any(map(_runs, command.up.values()))
        assert await command.errors() == ""

    home = tmp_path / "gapless-network/flights"
    assert sorted(path.name for path in home.iterdir()) == ["ib", "phb", "shb"]
    assert (home / "phb/volume").is_dir()
    assert not (home / "ib/volume").exists()  # in memory: an IB has nothing to keep
    assert not (home / "shb/volume").exists()
    assert "takes the links of other nodes on" in (home / "ib/broker.log").read_text()


async def test_the_addresses_that_it_prints_are_those_that_clients_need(tmp_path: Path) -> None:
    """The PHB, which refuses subscriptions and says so, is the first node of the file."""
    async with running(write_network(tmp_path, "knowledge"), as_json=False) as command:
        assert command.process.stdout is not None
        said: dict[str, str] = {}
        while "only to publish" not in said:
            line = (await bounded(command.process.stdout.readline(), PATIENCE_OF_ALL)).decode().strip()
            what, _, url = line.partition(": ")
            said[what] = url
        async with (
            gapless.connect(said["to subscribe, and to publish"]) as near,
            gapless.connect(said["only to publish"]) as far,
        ):
            with pytest.raises(gapless.ConfigurationError, match="'phb' answers Subscribe: connect to a node"):
                await bounded(far.session().subscribe("t", name="refused"))
            subscription = await bounded(near.session().subscribe("t", name="s", start="earliest"))
            for connection in (near, far):
                await bounded(connection.session().publisher("t").send(b"x"), PATIENCE_OF_ALL)
            events = [await bounded(anext(aiter(subscription)), PATIENCE_OF_ALL) for _ in range(2)]
        command.process.send_signal(signal.SIGINT)
        assert await command.ended() == 0

    assert [event.body for event in events] == [b"x", b"x"]


async def test_a_node_that_dies_ends_the_command_and_is_named(tmp_path: Path) -> None:
    async with running(write_network(tmp_path)) as command:
        await command.until_up()
        os.kill(command.up["ib"]["pid"], signal.SIGKILL)

        assert await command.ended() == 1
        assert "gapless: node ib was ended by signal 9; the end of" in await command.errors()
        assert not any(map(_runs, command.up.values()))


async def test_the_others_stay_if_they_are_to(tmp_path: Path) -> None:
    async with running(write_network(tmp_path), "--stay") as command:
        await command.until_up()
        for name in ("ib", "phb"):
            os.kill(command.up[name]["pid"], signal.SIGKILL)
            await command.until_said(f"gapless: node {name} was ended by signal 9")
        async with gapless.connect(command.up["shb"]["url"]) as connection:
            await bounded(connection.status())
        command.process.send_signal(signal.SIGINT)

        assert await command.ended() == 1


async def test_a_node_that_cannot_start_says_why(tmp_path: Path) -> None:
    file = write_network(tmp_path, shb={"shb": {"chekpoint_seconds": 1}})

    async with running(file) as command:
        assert await command.ended() == 1
        errors = await command.errors()

    assert "gapless: node shb ended with status 2" in errors
    assert "chekpoint_seconds" in errors


async def test_a_volume_that_went_missing_is_not_made_anew(tmp_path: Path) -> None:
    file = write_network(tmp_path)
    async with running(file) as command:
        await command.until_up()
        command.process.send_signal(signal.SIGTERM)
        assert await command.ended() == 0
    volume = tmp_path / "gapless-network/flights/phb/volume"
    volume.rename(volume.with_name("elsewhere"))

    async with running(file) as command:
        assert await command.ended() == 1
        assert "there is no volume in" in await command.errors()

    assert not volume.exists()
