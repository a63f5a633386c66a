"""Networks of real nodes in this process, over real TCP: each node is dialed through a proxy that a test commands."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import gapless
from gapless import plugins
from gapless.core.gauges import value_of
from gapless.core.network.peers import LINK_UP
from gapless.node.config import make_config
from gapless.node.node import Node
from gapless_sim import hostile
from gapless_testing.fault_proxy import FaultProxy
from gapless_testing.ports import free_ports
from integration.broker_process import to_toml, until

SECRET = "a secret of some length"
ROLES = {"phb": ["phb"], "phb2": ["phb"], "ib": [], "shb": ["shb"], "shb2": ["shb"]}

plugins.add("routing", "hostile", hostile)  # honest without rates, and a full mesh


def free_addresses(count: int) -> list[str]:
    """Addresses of loopback that nobody listens at."""
    return [f"127.0.0.1:{port}" for port in free_ports(count)]


class TestNetwork:
    """Nodes of one network file, each behind a proxy, with the router `hostile` at no rates."""

    __test__ = False

    def __init__(self, directory: Path, proxies: Mapping[str, FaultProxy]) -> None:
        self.directory = directory
        self.proxies = proxies
        self.nodes: dict[str, Node] = {}
        self.network: dict[str, Any] = {"name": "flights", "secret": SECRET, "router": "hostile"}
        self.tls: dict[str, Any] = {}
        self.groups: list[dict[str, Any]] = []

    def write(self, file: str = "network.toml", **network: Any) -> Path:
        """Writes a network file; `network`: what of its section is to be different."""
        path = self.directory / file
        nodes = [
            {"name": node, "roles": ROLES[node], "address": proxy.address, "cell": node}
            for node, proxy in self.proxies.items()
        ]
        names = list(self.proxies)
        bundles = [list(pair) for pair in pairwise(names)]
        sections: dict[str, Any] = {"network": self.network | network, "node": nodes, "group": self.groups}
        if self.tls:
            sections = {"network": sections["network"], "network.tls": self.tls, "node": nodes}
        path.write_text(f"bundles = {bundles}\n{to_toml(sections)}", "utf-8")
        return path

    async def start(self, name: str, path: Path | None = None, *, as_node: str = "", **sections: Any) -> Node:
        """Starts a node, on a port of its own behind its proxy."""
        settings: dict[str, Any] = {
            "network": {"file": str(path or self.write()), "node": as_node or name, "listen": "127.0.0.1:0"},
            "storage": {"plugin": "memory", "path": ""},
            "listen": [{"address": "127.0.0.1:0"}],
            **sections,
        }
        node = self.nodes[name] = await Node.start(make_config(settings))
        self.proxies[name].target = node.nodes_address
        return node

    async def start_all(self) -> None:
        """Starts all nodes."""
        for name in self.proxies:
            await self.start(name)

    async def stop(self, name: str) -> None:
        """Stops a node in order."""
        self.proxies[name].target = ""
        await self.nodes.pop(name).stop()

    def is_linked(self, one: str, other: str) -> bool:
        """Whether a node has a link to another one."""
        node = self.nodes.get(one)
        return node is not None and value_of(list(node.gauges()), LINK_UP, node=other) == 1

    async def until_linked(self, one: str, other: str, *, linked: bool = True) -> None:
        """Waits until both have a link to the other, or neither has."""
        pairs = [(one, other), (other, one)]
        wanted = "links" if linked else "no links"
        await until(
            lambda: all(self.is_linked(*pair) is linked for pair in pairs), f"{wanted} between {one} and {other}"
        )

    async def until_pubends(self, name: str, count: int) -> None:
        """Waits until a node knows so many pubends: before that, its SHB warns of topics that no pubend takes."""
        async with gapless.connect(self.nodes[name].url) as connection:
            for _ in range(600):
                if len(await connection.pubends()) >= count:
                    return
                await asyncio.sleep(0.05)
        raise AssertionError(f"{name} does not know {count} pubends")

    def alarms(self, name: str) -> dict[str, list[str]]:
        """What a node's operator was told, and is not over: the texts of each code."""
        texts: dict[str, list[str]] = {}
        for alarm in self.nodes[name].alarms():
            if not alarm.over:
                texts.setdefault(alarm.code, []).append(alarm.text)
        return texts


@contextlib.asynccontextmanager
async def network_of(directory: Path, *names: str) -> AsyncIterator[TestNetwork]:
    """A network of these nodes, none of which is started."""
    async with contextlib.AsyncExitStack() as stack:
        proxies = {name: await stack.enter_async_context(FaultProxy()) for name in names}
        network = TestNetwork(directory, proxies)
        try:
            yield network
        finally:
            for node in list(network.nodes.values()):
                await node.stop()
