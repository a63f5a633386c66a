"""ActiveMQ Classic from the jars of Maven Central: durable topic subscribers with selectors, through STOMP.

The one peer that does what gapless does: JMS selectors in the server, durable subscriptions with a cursor.
Publishing as its documentation advises for speed, in transactions, each of which is synced once;
acknowledging is cumulative (`client`), some hundred messages at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from bench.peers.system import Acknowledged, Server, answers, free_port, missing_jars, missing_package, started
from bench.peers.work import ORIGIN, Event, Subscriber, Tally
from gapless_testing.jars import Jars

ACTIVEMQ = "6.1.6"
JARS = Jars(f"activemq-{ACTIVEMQ}", Path(__file__).with_name("activemq_pom.xml"))
TRANSACTION = 512
PREFETCH = 1000
ACKNOWLEDGE_EVERY = 250
PATIENCE = 60


class _Listener:
    """Told by the thread of a connection what arrives on it."""

    def __init__(self, take: Callable[[Any], None]) -> None:
        self._take = take
        self.receipt = threading.Event()
        self.gone = threading.Event()

    def on_message(self, frame: Any) -> None:
        """A message for the subscriber."""
        self._take(frame)

    def on_receipt(self, frame: Any) -> None:
        """Whatever was asked for last is done."""
        self.receipt.set()

    def on_disconnected(self) -> None:
        """The connection has ended."""
        self.gone.set()

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Nothing else matters."""
        if not name.startswith("on_"):
            raise AttributeError(name)
        return lambda *_: None

    async def done(self) -> None:
        """Waits for the receipt of what was asked for."""
        if not await asyncio.to_thread(self.receipt.wait, PATIENCE):
            raise TimeoutError("ActiveMQ sent no receipt")
        self.receipt.clear()


@contextlib.asynccontextmanager
async def _connected(address: str, name: str, take: Callable[[Any], None]) -> AsyncIterator[tuple[Any, _Listener]]:
    import stomp

    host, port = address.split(":")
    connection = stomp.Connection12([(host, int(port))], auto_decode=False)
    listener = _Listener(take)
    connection.set_listener("", listener)
    await asyncio.to_thread(connection.connect, wait=True, headers={"client-id": name} if name else {})
    try:
        yield connection, listener
    finally:
        connection.disconnect()
        await asyncio.to_thread(listener.gone.wait, PATIENCE)


class _Publisher:
    def __init__(self, connection: Any, listener: _Listener, topic: str) -> None:
        self._connection = connection
        self._listener = listener
        self._destination = f"/topic/{topic}"
        self._transactions = 0

    async def publish(self, events: Sequence[Event]) -> None:
        """Transactions one after another; one event needs none."""
        if len(events) == 1:
            self._send(events[0], {"receipt": "sent"})
            await self._listener.done()
            return
        for start in range(0, len(events), TRANSACTION):
            self._transactions += 1
            name = f"t{self._transactions}"
            self._connection.begin(name)
            for event in events[start : start + TRANSACTION]:
                self._send(event, {"transaction": name})
            self._connection.commit(name, headers={"receipt": name})
            await self._listener.done()

    def _send(self, event: Event, headers: dict[str, str]) -> None:
        properties = {"quarter": event.quarter, "percent": event.percent, "origin": ORIGIN, "persistent": "true"}
        self._connection.send(self._destination, event.body, headers={**properties, **headers})


class ActiveMq:
    """ActiveMQ Classic with stomp.py."""

    title = "ActiveMQ Classic, STOMP, stomp.py"
    filters: Literal["server", "client"] = "server"
    portions: Mapping[str, float] = {"publish": 0.1, "live": 0.05, "catchup": 0.05, "selective": 0.04}
    under_way = TRANSACTION
    acknowledged: Acknowledged = "on the disk"
    promise = "The event is on the disk: KahaDB's journal is synced before the receipt."

    def missing(self) -> str:
        """The client comes from PyPI, the broker from Maven Central."""
        return missing_package("stomp.py") or missing_jars(JARS)

    def version(self) -> str:
        """Of ActiveMQ and of stomp.py."""
        return f"{ACTIVEMQ}, stomp.py {version('stomp.py')}"

    @contextlib.contextmanager
    def running(self, directory: Path) -> Iterator[Server]:
        """A broker on KahaDB, whose journal is synced at every commit by default."""
        port = free_port()
        options = f"persistent=true&useJmx=false&brokerName=race&dataDirectory={directory}"
        command = ["java", "-Xms1g", "-Xmx1g", "-cp", JARS.class_path]
        command += ["org.apache.activemq.console.command.ShellCommand", "start"]
        command += [f"broker:(stomp://127.0.0.1:{port})?{options}"]
        with started(command, directory, lambda: answers(port)) as process:
            yield Server(f"127.0.0.1:{port}", (process.pid,))

    @contextlib.asynccontextmanager
    async def publisher(self, address: str, topic: str) -> AsyncIterator[_Publisher]:
        """One connection; the first event makes the topic."""
        async with _connected(address, "", lambda _: None) as (connection, listener):
            yield _Publisher(connection, listener, topic)

    async def receive(
        self, address: str, topic: str, subscriber: Subscriber, tally: Tally, ready: Callable[[], None]
    ) -> None:
        """A durable subscriber; properties are strings, because STOMP has no others."""
        loop = asyncio.get_running_loop()
        finished = asyncio.Event()
        taken = 0

        def take(frame: Any) -> None:
            nonlocal taken
            tally.take([frame.body])
            taken += 1
            if taken % ACKNOWLEDGE_EVERY == 0 or tally.done():
                connection.ack(frame.headers["ack"])
            if tally.done():
                loop.call_soon_threadsafe(finished.set)

        async with _connected(address, f"{topic}-{subscriber.name}", take) as (connection, listener):
            connection.subscribe(
                f"/topic/{topic}",
                id="1",
                ack="client",
                headers={
                    "activemq.subscriptionName": subscriber.name,
                    "activemq.prefetchSize": PREFETCH,
                    "selector": f"{subscriber.wanted} = '{subscriber.value}'",
                    "receipt": "subscribed",
                },
            )
            await listener.done()
            ready()
            if not tally.done():
                await finished.wait()
