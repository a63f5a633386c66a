"""A network under attack: a node with both roles, an SHB behind two nodes of which one lies, and clients at work."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gapless
from fuzz.attackers import Attacker, BadClient, BadStranger, Liar
from gapless.node.config import make_config
from gapless.node.node import Node
from gapless_testing.ports import free_ports
from integration.broker_process import BrokerProcess, to_toml

ROLES: dict[str, list[str]] = {"phb": ["phb", "shb"], "ib": [], "evil": [], "shb": ["shb"]}
CELLS = {"phb": "origin", "ib": "middle", "evil": "middle", "shb": "east"}
BUNDLES = [["origin", "middle"], ["middle", "east"]]
HONEST = ("phb", "ib", "shb")
SECRET = "a secret of some length"
PATIENCE = 20.0
"""Seconds in which whoever is no victim of a lie is served: it needs some milliseconds."""
BLAMED = ("impossible_tick", "node_refused")
FAILED = ("broker_failed", "storage_failed", "descriptors_exhausted")
GROWTH_MAX = 96 << 20
"""By so many bytes a node may have grown since a quarter of the time was over."""


@dataclass
class Outcome:
    """What came of it."""

    done: Counter[str] = field(default_factory=Counter)
    """What attackers have said."""
    served: Counter[str] = field(default_factory=Counter)
    """How often each client at work was served."""
    slowest: float = 0.0
    """Seconds that the slowest of these waited."""
    memory: dict[str, list[int]] = field(default_factory=dict)
    """Of each node: resident bytes, every few seconds."""
    blamed: Counter[str] = field(default_factory=Counter)
    """The alarms that name the node that lies, by node and code."""
    faults: list[str] = field(default_factory=list)
    """What must not be."""

    def check_memory(self) -> None:
        """Nobody grows without end."""
        for node, sizes in self.memory.items():
            settled = sizes[len(sizes) // 4 :]
            if settled and settled[-1] - settled[0] > GROWTH_MAX:
                self.faults.append(f"{node} grew from {settled[0] >> 20} to {settled[-1] >> 20} MiB")


class Run:
    """One network, attacked for so long."""

    def __init__(self, directory: Path, seconds: float, seed: int, say: Callable[[str], None]) -> None:
        self._directory = directory
        self._seconds = seconds
        self._seed = seed
        self._say = say
        self._addresses = dict(zip(ROLES, (f"127.0.0.1:{port}" for port in free_ports(len(ROLES))), strict=True))
        self._processes: dict[str, BrokerProcess] = {}
        self._pids: dict[str, int] = {}
        self.outcome = Outcome()

    async def run(self) -> Outcome:
        """Starts all, attacks, looks at what is left."""
        async with contextlib.AsyncExitStack() as stack:
            network = self._write()
            for name in HONEST:
                process = BrokerProcess(
                    self._directory / name, program=("-m", "gapless.cli"), network={"file": str(network), "node": name}
                )
                self._processes[name] = await stack.enter_async_context(process)
                self._pids[name] = process.pid
            evil = await self._start_evil(network)
            stack.push_async_callback(evil.stop)
            liar = Liar(f"{self._seed}/liar", evil)
            await self._until_all_know_each_other()
            attackers = self._attackers()
            tasks = [asyncio.create_task(each.run(address, self._seconds)) for each, address in attackers]
            tasks += [asyncio.create_task(self._work(name)) for name in ("phb", "shb")]
            tasks.append(asyncio.create_task(self._work_through_the_liar()))
            await self._watch(liar)
            await asyncio.gather(*tasks)
            liar.lies = 0.0
            for done in (*(attacker.done for attacker, _ in attackers), liar.done):
                self.outcome.done.update(done)
            await self._look_at_alarms()
        self.outcome.check_memory()
        return self.outcome

    def _write(self) -> Path:
        path = self._directory / "network.toml"
        nodes = [
            {"name": node, "roles": roles, "address": self._addresses[node], "cell": CELLS[node]}
            for node, roles in ROLES.items()
        ]
        sections: dict[str, Any] = {"network": {"name": "fuzzed", "secret": SECRET}, "node": nodes}
        path.write_text(f"bundles = {BUNDLES}\n{to_toml(sections)}", "utf-8")
        return path

    async def _start_evil(self, network: Path) -> Node:
        return await Node.start(
            make_config(
                {
                    "network": {"file": str(network), "node": "evil"},
                    "storage": {"plugin": "memory", "path": ""},
                    "listen": [{"address": "127.0.0.1:0"}],
                }
            )
        )

    def _attackers(self) -> list[tuple[Attacker, str]]:
        clients = [(BadClient(f"{self._seed}/{name}"), self._processes[name].url.rpartition("/")[2]) for name in HONEST]
        strangers = [(BadStranger(f"{self._seed}/no {name}"), self._addresses[name]) for name in HONEST]
        return [*clients, *strangers]

    async def _until_all_know_each_other(self) -> None:
        """An event of the PHB reaches a client of the SHB."""
        async with (
            gapless.connect(self._processes["phb"].url) as writer,
            gapless.connect(self._processes["shb"].url) as reader,
            writer.session() as writing,
            reader.session() as reading,
            reading.subscribe("t", start="earliest") as subscription,
        ):
            await asyncio.wait_for(writing.publisher("t").send(b"first"), PATIENCE)
            await asyncio.wait_for(subscription.__anext__(), PATIENCE)

    async def _work(self, name: str) -> None:
        """A client at work at one node: what it asks goes no way that the liar stands in."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._seconds
        async with gapless.connect(self._processes[name].url, client_id=f"work-{name}") as connection:
            while loop.time() < end:
                began = loop.time()
                try:
                    await asyncio.wait_for(self._be_served(name, connection), PATIENCE)
                except (asyncio.TimeoutError, gapless.GaplessError) as error:
                    self.outcome.faults.append(f"a client at {name} was not served: {error!r}")
                self.outcome.served[name] += 1
                self.outcome.slowest = max(self.outcome.slowest, loop.time() - began)
                await asyncio.sleep(0.1)

    async def _work_through_the_liar(self) -> None:
        """A client of the SHB publishes and reads what it has published: half of that goes through the liar.

        What becomes of it nobody can promise; but it makes frames that the liar can change.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + self._seconds
        while loop.time() < end:
            with contextlib.suppress(asyncio.TimeoutError, gapless.GaplessError):
                await asyncio.wait_for(self._publish_and_read(), 10)

    async def _publish_and_read(self) -> None:
        async with (
            gapless.connect(self._processes["shb"].url, client_id="through") as connection,
            connection.session() as session,
            session.subscribe("through.#", name="kept", in_use="takeover", on_gap="deliver") as subscription,
        ):
            publisher = session.publisher("through.it", name="through")
            await publisher.recover()
            for number in range(100):
                await publisher.send(b"x" * 200, {"n": number})
                await subscription.__anext__()
                await subscription.acknowledge()
                self.outcome.served["through the liar"] += 1

    async def _be_served(self, name: str, connection: gapless.Connection) -> None:
        if name == "shb":  # whatever else it asks may go through the liar
            await connection.status()
            return
        async with connection.session() as session, session.subscribe("t", start="latest") as subscription:
            receipt = await session.publisher("t").send(b"x")
            async for event in subscription:
                if event.tick == receipt.tick:
                    return

    async def _watch(self, liar: Liar) -> None:
        loop = asyncio.get_running_loop()
        end, told = loop.time() + self._seconds, loop.time() + 30
        while loop.time() < end:
            liar.watch()
            for name, pid in self._pids.items():
                self.outcome.memory.setdefault(name, []).append(resident(pid))
                if not self._processes[name].runs:
                    self.outcome.faults.append(f"the process of {name} is gone")
                    return
            if loop.time() > told:
                told += 30
                sizes = ", ".join(f"{name} {sizes[-1] >> 20} MiB" for name, sizes in self.outcome.memory.items())
                served = dict(self.outcome.served)
                self._say(f"{end - loop.time():.0f} s to go; {sizes}; served {served}; lies {dict(liar.done)}")
            await asyncio.sleep(0.5)

    async def _look_at_alarms(self) -> None:
        for name, process in self._processes.items():
            try:
                async with gapless.connect(process.url, client_id="look") as connection:
                    status = await asyncio.wait_for(connection.status(), PATIENCE)
            except (asyncio.TimeoutError, gapless.GaplessError) as error:
                self.outcome.faults.append(f"{name} says nothing any more: {error!r}")
                continue
            for alarm in status.alarms:
                if alarm.code in BLAMED and "evil" in alarm.text:
                    self.outcome.blamed[f"{name}: {alarm.code}"] += alarm.count
                if alarm.code in FAILED:
                    self.outcome.faults.append(f"{name}: {alarm.code}, {alarm.count} times: {alarm.text}")
            if "Traceback" in process.log:
                self.outcome.faults.append(f"{name}: {process.log[process.log.index('Traceback') :][:3000]}")


def resident(pid: int) -> int:
    """The bytes of memory that a process has; 0 where the system does not say so."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS")), 0)
