"""Real nodes in a tree, brokers that are killed and stopped in it, and applications that count what comes to them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final

from typing_extensions import Self

import gapless
from gapless import jms
from gapless.cli.doctor import Examination, examine_broker
from gapless.cli.doctor_services import service_rows
from gapless.core.ports import Roaming
from gapless_shb.core.state.places import home_of
from integration.broker_process import BrokerProcess, bounded, to_toml, until
from integration.networks_in_process import SECRET, free_addresses

PATIENCE: Final = 45.0
"""Seconds for what takes a few, on a machine that has time for it."""
PAUSE: Final = 0.01
"""Seconds between two events."""
SELECTOR: Final = "odd = TRUE"

Arrivals = list[tuple[int, float]]
"""Which event came when."""


class Tree:
    """Nodes that are linked as a tree, each a process with a volume of its own."""

    def __init__(
        self, directory: Path, roles: Mapping[str, Sequence[str]], links: Iterable[tuple[str, str]], router: str
    ) -> None:
        self.directory = directory
        self.file = directory / "network.toml"
        self.router = router
        self.roles: dict[str, Sequence[str]] = {}
        self.addresses: dict[str, str] = {}
        self.links = [list(link) for link in links]
        self.nodes: dict[str, BrokerProcess] = {}
        for (name, theirs), address in zip(roles.items(), free_addresses(len(roles)), strict=True):
            self._put(name, theirs, address)
        self._write()

    def add(self, name: str, roles: Sequence[str], at: str) -> None:
        """A leaf is in the file from now on; it hangs on another node, and does not run yet."""
        [address] = free_addresses(1)
        self.links.append([name, at])
        self._put(name, roles, address)
        self._write()

    async def retire(self, name: str) -> None:
        """A leaf ends, is given up for good, and is in the file no more."""
        async with gapless.connect(self.nodes["phb"].url) as connection:
            assert await self.nodes[name].stop() == 0
            await bounded(connection.retire(name), PATIENCE)
        self.links = [link for link in self.links if name not in link]
        del self.nodes[name], self.roles[name], self.addresses[name]
        self._write()

    def _put(self, name: str, roles: Sequence[str], address: str) -> None:
        self.roles[name], self.addresses[name] = roles, address
        self.nodes[name] = BrokerProcess(self.directory / name, network={"file": "../network.toml", "node": name})
        self.nodes[name].patience = PATIENCE  # several interpreters start at once

    def _write(self) -> None:
        nodes = [{"name": name, "roles": roles, "address": self.addresses[name]} for name, roles in self.roles.items()]
        sections: dict[str, Any] = {"network": {"name": "flights", "secret": SECRET, "router": self.router}}
        if self.router == "delta":
            sections["routing"] = {"delta": 2}
        self.file.write_text(f"links = {json.dumps(self.links)}\n{to_toml(sections | {'node': nodes})}", "utf-8")

    def client_at(self, home: str) -> str:
        """The name of a client whose subscriptions are at home at a node."""
        shbs = tuple(sorted(name for name, roles in self.roles.items() if "shb" in roles))
        return next(name for name in map("desk-{}".format, range(1000)) if home_of(name, Roaming(shbs, b"")) == home)

    def stop(self, *names: str) -> None:
        """They stand still."""
        for name in names:
            os.kill(self.nodes[name].pid, signal.SIGSTOP)

    def go_on(self, *names: str) -> None:
        """They go on where they stood still."""
        for name in names:
            os.kill(self.nodes[name].pid, signal.SIGCONT)

    async def kill(self, *names: str) -> None:
        """SIGKILL."""
        await asyncio.gather(*(self.nodes[name].kill() for name in names))

    async def start(self, *names: str, empty: bool) -> None:
        """They come back. `empty`: with another disk."""
        for name in names:
            if empty:
                self.nodes[name].lose_volume()
        await asyncio.gather(*(self.nodes[name].start() for name in names))

    async def findings(self, name: str) -> list[str]:
        """What `gapless doctor` finds at one node."""
        examination = Examination()
        await bounded(examine_broker(examination, self.nodes[name].url, 5.0, None, expected=True), PATIENCE)
        return examination.findings

    async def until_found(self, name: str, words: str) -> None:
        """Waits until `gapless doctor` says this of a node."""
        for _ in range(int(PATIENCE * 20)):
            if any(words in finding for finding in await self.findings(name)):
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{name}: never {words!r} in {await self.findings(name)}")

    async def until_whole(self) -> None:
        """Waits until each node that runs is served by its neighbour, with everything."""
        if self.router != "delta":
            return
        rows: list[dict[str, Any]] = []
        for _ in range(int(PATIENCE * 10)):
            rows = []
            running = {name: node for name, node in self.nodes.items() if node.runs}
            for name, node in running.items():
                async with gapless.connect(node.url) as connection:
                    rows += service_rows({name: (await bounded(connection.status(), PATIENCE)).gauges})
            served = {row["node"] for row in rows if row["pubends"] and not row["past"] and not row["cut"]}
            if len(served) == len(rows) and all(name in served for name in running if "shb" in self.roles[name]):
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"not all are served by their neighbours: {rows}")


@contextlib.asynccontextmanager
async def tree(
    directory: Path, roles: Mapping[str, Sequence[str]], links: Iterable[tuple[str, str]], router: str
) -> AsyncIterator[Tree]:
    """A tree whose nodes all run; at the end they are killed."""
    made = Tree(directory, roles, links, router)
    try:
        await asyncio.gather(*(node.start() for node in made.nodes.values()))
        yield made
    finally:
        await made.kill(*made.nodes)


class Publishing:
    """An application that publishes a number every 10 ms, in a task."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._is_over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.sent: list[float] = []
        """When each was sent."""

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._publish())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        if not self._is_over.is_set():
            self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def until_sent(self, since: float) -> int:
        """Waits until one was sent after a moment; returns the first of these."""
        await until(lambda: bool(self.sent) and self.sent[-1] > since, "an event", PATIENCE)
        return next(number for number, at in enumerate(self.sent) if at > since)

    async def end(self) -> int:
        """No more; returns how many there are, all of them with a receipt."""
        self._is_over.set()
        assert self._task is not None
        await bounded(self._task, PATIENCE)
        return len(self.sent)

    async def _publish(self) -> None:
        async with gapless.connect(self._url) as connection, connection.session() as session:
            publisher = session.publisher("t", name="loader")
            waiting: list[asyncio.Task[gapless.Receipt]] = []
            while not self._is_over.is_set():
                number = len(self.sent)
                self.sent.append(time.monotonic())
                message = publisher.send(b"%d" % number, properties={"odd": number % 2 == 1})
                waiting.append(asyncio.ensure_future(message))
                await asyncio.sleep(PAUSE)
            await asyncio.gather(*waiting)


class Consumer:
    """An application that notes what comes to it, and when."""

    def __init__(self, node: BrokerProcess, client: str, name: str, selector: str) -> None:
        self.url = node.url
        self.at = node.directory.name
        """At which node it is."""
        self.client = client
        self.name = name
        self.selector = selector
        self.came: Arrivals = []

    def running(self) -> AbstractAsyncContextManager[None]:
        """It consumes from its subscription's creation to the end of the block."""
        raise NotImplementedError

    def wanted(self, count: int) -> list[int]:
        """Of so many events those that are for it."""
        return [number for number in range(count) if not self.selector or number % 2 == 1]

    def note(self, body: bytes) -> None:
        """An event has come."""
        self.came.append((int(body), time.monotonic()))

    async def until(self, number: int) -> None:
        """Waits until this event has come, or one behind it."""
        await until(lambda: bool(self.came) and self.came[-1][0] >= number, f"{number} at {self.name}", PATIENCE)


class AsyncConsumer(Consumer):
    """One that is a task."""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """It consumes from its subscription's creation to the end of the block."""
        async with gapless.connect(self.url, client_id=self.client) as connection, connection.session() as session:
            async with session.subscribe("t", name=self.name, selector=self.selector) as subscription:
                task = asyncio.create_task(self._consume(subscription))
                try:
                    yield
                finally:
                    task.cancel()
                    ended = await asyncio.gather(task, return_exceptions=True)
                    assert isinstance(ended[0], asyncio.CancelledError), ended

    async def _consume(self, subscription: gapless.Subscription[gapless.Event, Any]) -> None:
        async for event in subscription:
            self.note(event.body)
            await subscription.acknowledge()


class ThreadConsumer(Consumer):
    """One that is a thread."""

    def __init__(self, node: BrokerProcess, client: str, name: str, selector: str) -> None:
        super().__init__(node, client, name, selector)
        self._is_there = threading.Event()
        self._is_over = threading.Event()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """It consumes from its subscription's creation to the end of the block."""
        thread = asyncio.create_task(asyncio.to_thread(self.consume))
        try:
            await asyncio.to_thread(self._is_there.wait, PATIENCE)
            yield
        finally:
            self._is_over.set()
            await bounded(thread, PATIENCE)

    def consume(self) -> None:
        """What the thread does."""
        raise NotImplementedError


class BlockingConsumer(ThreadConsumer):
    """One of the blocking API."""

    def consume(self) -> None:
        with gapless.sync.connect(self.url, client_id=self.client) as connection:
            session = connection.session()
            with session.subscribe("t", name=self.name, selector=self.selector) as subscription:
                self._is_there.set()
                while not self._is_over.is_set():
                    event = subscription.receive(timeout=0.2)
                    if event is not None:
                        self.note(event.body)
                        subscription.acknowledge()


class JmsConsumer(ThreadConsumer):
    """One of the JMS-style API, whose session acknowledges by itself."""

    def consume(self) -> None:
        factory = jms.ConnectionFactory(self.url, client_id=self.client)
        with factory.create_context(jms.AUTO_ACKNOWLEDGE) as context:
            consumer = context.create_durable_consumer(context.create_topic("t"), self.name, self.selector)
            self._is_there.set()
            while not self._is_over.is_set():
                message = consumer.receive(200)
                if message is not None:
                    body = message.get_body(bytes)
                    assert body is not None
                    self.note(body)


def stalled(sent: Sequence[float], came: Arrivals, since: float) -> float:
    """How long after a moment the first event came that was sent later."""
    first = next(number for number, at in enumerate(sent) if at > since)
    return next(at for number, at in came if number >= first) - since
