"""The tree router of docs/howto/write-a-routing-plugin.md on real nodes, in a network that has links and no cells."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import gapless
from documents import ROOT, install_programs
from integration.broker_process import bounded, to_toml
from integration.command_line import Shell
from integration.networks_in_process import free_addresses
from integration.test_network_command import PATIENCE_OF_ALL, running

PAGE = ROOT / "docs" / "howto" / "write-a-routing-plugin.md"
LINKS = [["phb", "ib"], ["ib", "shb"], ["ib", "shb2"]]
ROLES = {"phb": ["phb"], "ib": [], "shb": ["shb"], "shb2": ["shb"]}

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A network's file; its router is found by whoever starts from now on, as if it were installed."""
    plugin = tmp_path / "plugin"
    plugin.mkdir()
    install_programs(PAGE, plugin, "tree_router")
    path = os.pathsep.join(filter(None, (str(plugin), os.environ.get("PYTHONPATH"))))
    monkeypatch.setenv("PYTHONPATH", path)
    nodes = [
        {"name": name, "roles": roles, "address": address}
        for (name, roles), address in zip(ROLES.items(), free_addresses(len(ROLES)), strict=True)
    ]
    settings = {"name": "flights", "secret": "a secret of some length", "router": "tree"}
    file = tmp_path / "network.toml"
    file.write_text(f"links = {json.dumps(LINKS)}\n{to_toml({'network': settings, 'node': nodes})}", "utf-8")
    return file


async def test_an_event_of_one_end_comes_to_the_others_and_doctor_finds_nothing_wrong(
    network: Path, tmp_path: Path
) -> None:
    async with running(network) as command:
        await command.until_up(len(ROLES))
        async with (
            gapless.connect(command.up["shb"]["url"]) as here,
            gapless.connect(command.up["shb2"]["url"]) as there,
            gapless.connect(command.up["phb"]["url"]) as source,
        ):
            subscriptions = [
                await bounded(connection.session().subscribe("t", name=name, selector="n > 1", start="earliest"))
                for connection, name in ((here, "s"), (there, "s2"))
            ]
            for connection in (source, here):
                publisher = connection.session().publisher("t")
                for number in range(4):
                    await bounded(publisher.send(b"%d" % number, properties={"n": number}), PATIENCE_OF_ALL)
            for subscription in subscriptions:
                events = [await bounded(anext(aiter(subscription)), PATIENCE_OF_ALL) for _ in range(4)]
                assert [event.body for event in events] == [b"2", b"3", b"2", b"3"]
            url = command.up["shb2"]["url"]
            done = await asyncio.to_thread(Shell(tmp_path).run, "doctor", "--network", network, "--url", url, "--json")
        command.process.send_signal(signal.SIGINT)
        assert await command.ended() == 0

    seen: dict[str, Any] = json.loads(done.stdout)
    assert seen["findings"] == []
    assert {(node["node"], node["answers"], node["same_map"]) for node in seen["nodes"]} == {
        (name, True, True) for name in ROLES
    }
    ends = [(one, other, True) for link in LINKS for one, other in (link, link[::-1])]
    assert sorted((end["from"], end["to"], end["up"]) for end in seen["links"]) == sorted(ends)
    assert sorted(shb["shb"].partition("@")[0] for shb in seen["shbs"]) == ["shb", "shb2"]


def test_what_the_router_refuses_is_said_before_anything_starts(network: Path, tmp_path: Path) -> None:
    network.write_text(network.read_text("utf-8").replace('["ib", "shb2"]', '["ib", "shb2"], ["shb", "shb2"]'), "utf-8")

    done = Shell(tmp_path).run("network", network, "--check", status=2)

    assert "makes a cycle, and the nodes must be a tree: take out one of the links of the cycle" in done.stderr
