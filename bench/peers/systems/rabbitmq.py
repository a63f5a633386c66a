"""RabbitMQ: a quorum queue per subscriber, bound to a topic exchange by what the subscriber wants.

A queue holds a copy of each event that is routed to it, and the properties are words of the routing key,
because that is what the server can filter by.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from bench.peers.system import WINDOW, Acknowledged, Server, free_port
from bench.peers.systems import rabbitmq_node
from bench.peers.work import ORIGIN, Event, Subscriber, Tally

PREFETCH = 1000
ACKNOWLEDGE_EVERY = 250
QUORUM = {"x-queue-type": "quorum"}


class _Publisher:
    def __init__(self, exchange: Any) -> None:
        self._exchange = exchange

    async def publish(self, events: Sequence[Event]) -> None:
        """As many confirmations under way as the window allows."""
        for start in range(0, len(events), WINDOW):
            await asyncio.gather(*[self._publish(event) for event in events[start : start + WINDOW]])

    async def _publish(self, event: Event) -> None:
        from aio_pika import DeliveryMode, Message

        message = Message(event.body, delivery_mode=DeliveryMode.PERSISTENT)
        await self._exchange.publish(message, f"{event.quarter}.{event.percent}.{ORIGIN}")


class RabbitMq:
    """RabbitMQ with aio-pika."""

    title = "RabbitMQ, quorum queues, aio-pika"
    filters: Literal["server", "client"] = "server"
    portions: Mapping[str, float] = dict.fromkeys(("publish", "live", "catchup", "selective"), 0.1)
    under_way = WINDOW
    acknowledged: Acknowledged = "on the disk"
    promise = "The event is on the disk, once for each queue it was routed to: the log of the queues is synced."

    def missing(self) -> str:
        """The client comes from PyPI, the server from the system."""
        return rabbitmq_node.missing("aio-pika")

    def version(self) -> str:
        """Of RabbitMQ and of aio-pika."""
        return f"{rabbitmq_node.server_version()}, aio-pika {version('aio-pika')}"

    @contextlib.contextmanager
    def running(self, directory: Path) -> Iterator[Server]:
        """A node of its own."""
        port = free_port()
        with rabbitmq_node.running(directory, port, {"listeners.tcp.1": f"127.0.0.1:{port}"}) as pid:
            yield Server(f"amqp://guest:guest@127.0.0.1:{port}/", (pid,))

    @contextlib.asynccontextmanager
    async def publisher(self, address: str, topic: str) -> AsyncIterator[_Publisher]:
        """A channel with confirmations; makes the exchange."""
        import aio_pika

        async with await aio_pika.connect(address) as connection, await connection.channel() as channel:
            exchange = await channel.declare_exchange(topic, "topic", durable=True)
            yield _Publisher(exchange)

    async def receive(
        self, address: str, topic: str, subscriber: Subscriber, tally: Tally, ready: Callable[[], None]
    ) -> None:
        """A durable queue of its own, acknowledged some hundred messages at a time."""
        import aio_pika

        finished = asyncio.Event()
        taken = 0

        async def take(message: Any) -> None:
            nonlocal taken
            tally.take([message.body])
            taken += 1
            if taken % ACKNOWLEDGE_EVERY == 0 or tally.done():
                await message.ack(multiple=True)
            if tally.done():
                finished.set()

        async with await aio_pika.connect(address) as connection, await connection.channel() as channel:
            await channel.set_qos(prefetch_count=PREFETCH)
            queue = await channel.declare_queue(f"{topic}-{subscriber.name}", durable=True, arguments=QUORUM)
            words = {"quarter": f"{subscriber.value}.*.*", "percent": f"*.{subscriber.value}.*"}
            await queue.bind(topic, words[subscriber.wanted])
            if tally.done():
                ready()
                return
            await queue.consume(take)
            ready()
            await finished.wait()
