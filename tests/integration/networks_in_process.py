"""Networks of real nodes in this process, over real TCP: each node is dialed through a proxy that a test commands."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from typing_extensions import Self

from gapless import plugins
from gapless.core.gauges import value_of
from gapless.core.network.peers import LINK_UP
from gapless.node.config import make_config
from gapless.node.node import Node
from gapless_sim import hostile
from integration.broker_process import to_toml, until

SECRET = "a secret of some length"
ROLES = {"phb": ["phb"], "phb2": ["phb"], "ib": [], "shb": ["shb"], "shb2": ["shb"]}

plugins.add("routing", "hostile", hostile)  # honest without rates, and a full mesh


def free_addresses(count: int) -> list[str]:
    """Addresses of loopback that nobody listens at."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{sock.getsockname()[1]}" for sock in sockets]
    for sock in sockets:
        sock.close()
    return addresses


class NodeProxy:
    """Stands where a node is dialed, and passes on what comes until it is told not to."""

    def __init__(self) -> None:
        self.target = ""
        """`HOST:PORT`; nobody gets through without."""
        self.swallows_in = self.swallows_out = False
        """Whether what is said to the node, or by it, is read and lost."""
        self.reads_in = asyncio.Event()
        """Clear: what is said to the node is not even read."""
        self.reads_in.set()
        self.connections = 0
        self._server: asyncio.Server
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._on_connection, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """Every connection breaks."""
        for writer in self._writers:
            writer.transport.abort()

    async def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        ends = [writer]
        try:
            host, _, port = self.target.rpartition(":")
            if self.target:
                back, outward = await asyncio.open_connection(host, int(port))
                ends.append(outward)
                self._writers |= set(ends)
                inward = asyncio.ensure_future(self._pass_on(reader, outward, "in"))
                backward = asyncio.ensure_future(self._pass_on(back, writer, "out"))
                try:
                    await asyncio.wait([inward, backward], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in (inward, backward):
                        way.cancel()
                    await asyncio.wait([inward, backward])
        except OSError:
            pass
        finally:
            for end in ends:
                self._writers.discard(end)
                end.close()
            self._tasks.discard(task)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str) -> None:
        with contextlib.suppress(OSError):
            while True:
                if way == "in":
                    await self.reads_in.wait()
                data = await reader.read(1 << 16)
                if not data:
                    return
                if not (self.swallows_in if way == "in" else self.swallows_out):
                    writer.write(data)
                    await writer.drain()


class TestNetwork:
    """Nodes of one network file, each behind a proxy, with the router `hostile` at no rates."""

    __test__ = False

    def __init__(self, directory: Path, proxies: Mapping[str, NodeProxy]) -> None:
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
        proxies = {name: await stack.enter_async_context(NodeProxy()) for name in names}
        network = TestNetwork(directory, proxies)
        try:
            yield network
        finally:
            for node in list(network.nodes.values()):
                await node.stop()
