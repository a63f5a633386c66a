"""`Receipt.durable` is about the pubend's log, through whichever node of a network one publishes."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gapless
import gapless.sync
from integration.networks_in_process import network_of

MESSAGE = gapless.Message(b"x")


async def asked(url: str) -> dict[str, bool]:
    """What each way to publish says."""
    said: dict[str, bool] = {}
    async with gapless.connect(url, wait=True) as connection, connection.session() as session:
        publisher = session.publisher("flights")
        said["send"] = (await publisher.send(b"x")).durable
        said["send_batch"] = (await publisher.send_batch([MESSAGE]))[0].durable
        async for receipt in publisher.send_all([MESSAGE]):
            said["send_all"] = receipt.durable
        for _ in range(2):  # the second one repeats the first
            said["keyed"] = (await connection.publish("sink", 1, 0, [MESSAGE], topic="flights")).durable
    said |= await asyncio.to_thread(blocking, url)
    return said


def blocking(url: str) -> dict[str, bool]:
    """The same of the blocking API, and of the command line."""
    with gapless.sync.connect(url) as connection, connection.session() as session:
        said = {"blocking": session.publisher("flights").send(b"x").durable}
    command = [sys.executable, "-m", "gapless.cli", "publish", "flights", "--url", url, "--json"]
    done = subprocess.run(command, input='{"body": "x"}\n', capture_output=True, text=True, env=os.environ, check=True)
    return said | {"command line": json.loads(done.stdout)["durable"]}


def storages(directory: Path, on_disk: set[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in ("phb", "ib", "shb"):
        on = {"plugin": "rocksdb", "path": str(directory / name)}
        yield name, {"storage": on if name in on_disk else {"plugin": "memory", "path": ""}}


@pytest.mark.parametrize("on_disk", [{"phb"}, {"ib", "shb"}], ids=["the PHB on disk", "all but the PHB on disk"])
async def test_a_receipt_says_where_the_event_is(tmp_path: Path, on_disk: set[str]) -> None:
    async with network_of(tmp_path, "phb", "ib", "shb") as network:
        for name, sections in storages(tmp_path, on_disk):
            await network.start(name, **sections)
        said = {name: await asked(node.url) for name, node in network.nodes.items()}

    wrong = [
        (name, way) for name, ways in said.items() for way, durable in ways.items() if durable != ("phb" in on_disk)
    ]
    assert wrong == []
    assert {len(ways) for ways in said.values()} == {6}
