"""A network of node processes, each started as `gapless network` starts it, and the links between them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import combinations, pairwise, product
from pathlib import Path
from typing import Any

from typing_extensions import Self

import gapless
from bench.processes import cpu_seconds
from gapless.core.gauges import Gauge, value_of
from gapless.core.network.peers import LINK_UP
from gapless_flights.worker import Worker
from gapless_testing.fault_proxy import Direction, FaultProxy
from gapless_testing.ports import free_ports

SECRET = "a secret of some length"
PATIENCE = 60.0


@dataclass(frozen=True)
class Layout:
    """Which nodes there are, and which cells are neighbours."""

    cells: Mapping[str, Sequence[str]]
    """The nodes of each cell. The first letters of a node say what it is: `phb`, `shb`, `ib`; `both` has both roles."""
    bundles: Sequence[tuple[str, str]]
    options: Mapping[str, Any] = field(default_factory=dict)
    """Sections of every node's configuration."""
    router: str = "knowledge"
    program: str = "gapless.cli"
    """The module that is run as a node."""
    alone: bool = False
    """Whether a node stands by itself: then a cell has one node, and bundles are written as links."""
    routing: Mapping[str, Any] = field(default_factory=dict)
    """Options of the router."""

    @property
    def nodes(self) -> dict[str, str]:
        """The cell of each node."""
        return {node: cell for cell, members in self.cells.items() for node in members}

    @property
    def links(self) -> list[tuple[str, str]]:
        """Between the nodes of a cell, and of neighbouring ones."""
        pairs = [pair for members in self.cells.values() for pair in combinations(members, 2)]
        for one, other in self.bundles:
            pairs += product(self.cells[one], self.cells[other])
        return pairs


def chain(ibs: int, options: Mapping[str, Any]) -> Layout:
    """A PHB, so many IBs one after the other, and an SHB."""
    names = ["phb", *(f"ib-{number}" for number in range(ibs)), "shb"]
    return Layout({name: [name] for name in names}, list(pairwise(names)), options)


def tree_of_nodes(links: Sequence[tuple[str, str]], delta: int, options: Mapping[str, Any]) -> Layout:
    """Nodes under the router `delta`."""
    names = dict.fromkeys(name for link in links for name in link)
    cells = {name: [name] for name in names}
    return Layout(cells, links, options, "delta", alone=True, routing={"delta": delta})


def roles_of(node: str) -> list[str]:
    """What a node is, by its name."""
    if node.startswith("both"):
        return ["phb", "shb"]
    return [role for role in ("phb", "shb") if node.startswith(role)]


class NodeProcess:
    """One node: killed, it is started again on the same volume and the same ports; stopped, when it is told to."""

    def __init__(self, name: str, directory: Path, configuration: Callable[[str], str], program: str) -> None:
        """`configuration`: for the address of its clients. `program`: the module that is run."""
        self.name = name
        self.url = ""
        self._address = f"127.0.0.1:{free_ports(1)[0]}"
        self.pid = 0
        self.directory = directory
        self._configuration = configuration
        self._program = program
        self._up = asyncio.Event()
        directory.mkdir(parents=True)
        self._worker: Worker
        self._task: asyncio.Task[None]

    def start(self) -> None:
        """Starts it, for the first time or after `stop`."""
        log = self.directory / "broker.log"
        self._worker = Worker(self.name, self._command, self._on_report, log, may_fail_to_start=True)
        self._task = self._worker.start()

    async def up(self) -> None:
        """Waits until it serves. Raises WorkerFailedError when it ended by itself."""
        waiting = asyncio.ensure_future(self._up.wait())
        await asyncio.wait([waiting, self._task], timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            waiting.cancel()
            self._task.cancel() if not self._task.done() else self._task.result()
            raise TimeoutError(f"{self.name} is not up")

    async def kill(self) -> None:
        """SIGKILL; it is started again at once."""
        self._up.clear()
        await self._worker.kill()

    async def abandon(self) -> None:
        """Ends it at once, for good."""
        await self._worker.abandon()

    async def stop(self) -> None:
        """Ends it in order."""
        self._up.clear()
        await self._worker.stop()

    async def gauges(self) -> list[Gauge]:
        """The figures that it gives of itself."""
        async with gapless.connect(self.url, client_id="bench-status", wait=True) as connection:
            return list((await connection.status()).gauges)

    def cpu_seconds(self) -> float:
        """Processor time of its present process."""
        return cpu_seconds(self.pid)

    def read_bytes(self) -> int:
        """Bytes that its present process has asked the system for in reads of files and sockets."""
        lines = Path(f"/proc/{self.pid}/io").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes:"))

    def _command(self) -> list[str]:
        config = self.directory / "gapless.toml"
        config.write_text(self._configuration(self._address), "utf-8")
        options = ["--config", str(config), "--json", "--until-stdin-closes", *([] if self.url else ["--create"])]
        return [sys.executable, "-m", self._program, "broker", *options]

    def _on_report(self, report: dict[str, Any]) -> None:
        self.url, self.pid = report["url"], report["pid"]
        self._up.set()


class Link:
    """The link between two nodes, in the hands of a benchmark: whoever of them dials, what is said passes here."""

    def __init__(self, one: str, other: str, ports: Mapping[str, int]) -> None:
        """`ports`: where each of the two takes the links of other nodes."""
        self.name = f"{one}-{other}"
        self.ends = one, other
        self._proxies = {node: FaultProxy(f"127.0.0.1:{ports[node]}") for node in self.ends}
        """By the node that is dialed there: it can only be the other one that dials."""

    async def __aenter__(self) -> Self:
        for proxy in self._proxies.values():
            await proxy.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        for proxy in self._proxies.values():
            await proxy.__aexit__()

    def address(self, node: str) -> str:
        """Where the other end dials a node."""
        return self._proxies[node].address

    def passed(self, node: str) -> int:
        """Bytes that have passed so far, to a node."""
        return sum(direction.passed for direction in self._toward(node))

    def slow(self, node: str, rate: float) -> None:
        """What goes to a node passes at so many bytes a second."""
        for direction in self._toward(node):
            direction.rate = rate

    def cut(self) -> None:
        """What there is breaks; the next dial gets through."""
        for proxy in self._proxies.values():
            proxy.cut()

    def kill(self) -> None:
        """It breaks, and nobody gets through until it is healed."""
        for proxy in self._proxies.values():
            proxy.refuses = True
            proxy.cut()

    def stall(self) -> None:
        """Nothing passes, but nothing breaks."""
        for proxy in self._proxies.values():
            proxy.stall()

    def heal(self) -> None:
        """Everything passes again, at any rate, in both directions."""
        for proxy in self._proxies.values():
            proxy.heal()

    def _toward(self, node: str) -> Iterator[Direction]:
        for dialed, proxy in self._proxies.items():
            yield proxy.inward if dialed == node else proxy.outward


class Network:
    """All of it."""

    def __init__(
        self,
        layout: Layout,
        nodes: Mapping[str, NodeProcess],
        ports: Mapping[str, int],
        links: Mapping[str, Link],
    ) -> None:
        self.layout = layout
        self.nodes = nodes
        """Those that the layout has, or had before it was another one."""
        self.links = links
        """By name, `ONE-OTHER`; none where the nodes dial each other themselves."""
        self._ports = ports

    def lay_out(self, layout: Layout) -> None:
        """Gives every node the network file of a layout, which has no other nodes: it reads it at its next start."""
        self.layout = layout
        for name in layout.nodes:
            file = self.nodes[name].directory / "network.toml"
            file.write_text(_network_file(layout, name, self._ports, self.links), "utf-8")

    async def lose(self, name: str) -> None:
        """A node ends at once, and does not come back."""
        await self.nodes[name].abandon()
        self.nodes = {other: node for other, node in self.nodes.items() if other != name}

    def link(self, one: str, other: str) -> Link:
        """The link between two nodes, in whatever order."""
        return self.links.get(f"{one}-{other}") or self.links[f"{other}-{one}"]

    async def until_up(self, nodes: Iterable[str] | None = None, *, dead: Iterable[str] = ()) -> None:
        """Waits until these nodes, or all, serve, and have all their links but those that are dead."""
        names = list(self.layout.nodes if nodes is None else nodes)
        for name in names:
            await self.nodes[name].up()
        for name in names:
            peers = {end for pair in self.layout.links if name in pair and "-".join(pair) not in dead for end in pair}
            await self._until_linked(name, peers - {name})

    async def _until_linked(self, name: str, peers: Iterable[str]) -> None:
        async with gapless.connect(self.nodes[name].url, wait=True) as connection:
            for _ in range(int(PATIENCE * 20)):
                gauges = list((await connection.status()).gauges)
                if all(value_of(gauges, LINK_UP, node=peer) == 1 for peer in peers):
                    return
                await asyncio.sleep(0.05)
        raise TimeoutError(f"{name} has not all its links")


@asynccontextmanager
async def running_network(
    layout: Layout, directory: Path, *, with_proxies: bool, dead: Sequence[str] = ()
) -> AsyncIterator[Network]:
    """The network, up. `dead`: links over which nothing ever gets through."""
    ports = dict(zip(layout.nodes, free_ports(len(layout.nodes)), strict=True))
    async with AsyncExitStack() as stack:
        links: dict[str, Link] = {}
        for one, other in layout.links if with_proxies else ():
            link = await stack.enter_async_context(Link(one, other, ports))
            links[link.name] = link
            if link.name in dead:
                link.kill()
        nodes = {}
        for name in layout.nodes:
            home = directory / name
            nodes[name] = NodeProcess(name, home, _configuration(layout, name, home, ports, links), layout.program)
        network = Network(layout, nodes, ports, links)
        network.lay_out(layout)
        for node in nodes.values():
            node.start()
            stack.push_async_callback(node.abandon)
        await network.until_up(dead=dead)
        yield network


def _configuration(
    layout: Layout, name: str, home: Path, ports: Mapping[str, int], links: Mapping[str, Link]
) -> Callable[[str], str]:
    """What `gapless network` writes for a node, and the options of the benchmark."""

    def write(address: str) -> str:
        sections: dict[str, Any] = {"network": {"file": str(home / "network.toml"), "node": name}}
        if links:
            sections["network"]["listen"] = f"127.0.0.1:{ports[name]}"
        if roles_of(name):
            sections["storage"] = {"path": str(home / "volume")}
        for section, values in layout.options.items():
            if section in {"phb", "shb"} and section not in roles_of(name):
                continue
            sections[section] = {**sections.get(section, {}), **values}
        lines = []
        for section, values in sections.items():
            lines += [f"[{section}]", *(f"{key} = {_toml(value)}" for key, value in values.items())]
        return "\n".join([*lines, "[[listen]]", f"address = {json.dumps(address)}", ""])

    return write


def _network_file(layout: Layout, reader: str, ports: Mapping[str, int], links: Mapping[str, Link]) -> str:
    """The network, as one of its nodes sees it: its neighbours are behind the proxies of its links to them."""
    addresses = {node: f"127.0.0.1:{port}" for node, port in ports.items()}
    for link in links.values():
        if reader in link.ends:
            peer = link.ends[reader == link.ends[0]]
            addresses[peer] = link.address(peer)
    pairs = f"links = {json.dumps(layout.links)}" if layout.alone else f"bundles = {json.dumps(layout.bundles)}"
    lines = [pairs, "[network]", 'name = "bench"', f"secret = {json.dumps(SECRET)}"]
    lines.append(f"router = {json.dumps(layout.router)}")
    lines += ["[routing]", *(f"{key} = {_toml(value)}" for key, value in layout.routing.items())]
    for node, cell in layout.nodes.items():
        said = {"name": node, "roles": roles_of(node), "address": addresses[node]}
        said |= {} if layout.alone else {"cell": cell}
        lines += ["[[node]]", *(f"{key} = {json.dumps(value)}" for key, value in said.items())]
    return "\n".join([*lines, ""])


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(part)}" for key, part in value.items()) + "}"
    return json.dumps(value)
