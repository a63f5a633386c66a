"""RabbitMQ Streams: one stream, read by everyone from an offset that the server keeps.

Set up as the client's documentation advises for speed: `send_batch`, and messages in the binary codec,
which the server does not look into; so an event is its properties, packed, and its body. Streams filter
in the server from RabbitMQ 3.13 on, by chunks, and Debian 12 has an older one: every subscriber reads
everything and drops what it does not want by the bytes in front. `send_sub_entry` would save the server
some work, but waits half a second for company, and offsets inside such an entry are not those that
this client keeps.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from struct import Struct
from typing import Any, Literal

from bench.peers.system import WINDOW, Acknowledged, RaceError, Server, free_port
from bench.peers.systems import rabbitmq_node
from bench.peers.work import ORIGIN, Event, Rhythm, Subscriber, Tally

BATCH = 512
GUEST = {"username": "guest", "password": "guest"}
PROPERTIES = Struct(">BB3s")
PLACE = {"quarter": 0, "percent": 1}
"""Where the value of a property stands in a message."""


class _Publisher:
    def __init__(self, producer: Any, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._unconfirmed = 0
        self._room = asyncio.Event()
        self._failure = 0
        self._confirmed = self._on_confirmed  # the client knows a callback by its identity

    async def publish(self, events: Sequence[Event]) -> None:
        """In batches, as many under way as the window allows; one event waits for its own confirmation."""
        if len(events) == 1:
            await self._producer.send_wait(self._topic, _message(events[0]))
            return
        for start in range(0, len(events), BATCH):
            batch = [_message(event) for event in events[start : start + BATCH]]
            await self._until(WINDOW - len(batch))
            self._unconfirmed += len(batch)
            await self._producer.send_batch(self._topic, batch, on_publish_confirm=self._confirmed)
        await self._until(0)

    async def _until(self, unconfirmed: int) -> None:
        while self._unconfirmed > unconfirmed:
            self._room.clear()
            await self._room.wait()
        if self._failure:
            raise RaceError(f"RabbitMQ did not confirm: code {self._failure}")

    def _on_confirmed(self, status: Any) -> None:
        self._unconfirmed -= 1
        self._failure = self._failure or status.response_code
        self._room.set()


def _message(event: Event) -> bytes:
    return PROPERTIES.pack(event.quarter, event.percent, ORIGIN.encode()) + event.body


class RabbitMqStreams:
    """RabbitMQ Streams with rstream, through the stream protocol."""

    title = "RabbitMQ Streams, rstream"
    filters: Literal["server", "client"] = "client"
    portions: Mapping[str, float] = {"live": 0.25, "catchup": 0.25, "selective": 0.04}
    under_way = WINDOW
    acknowledged: Acknowledged = "page cache"
    promise = (
        "The event is in the server's page cache, which streams never sync by themselves: replication makes it "
        "durable, and here is one node."
    )

    def missing(self) -> str:
        """The client comes from PyPI, the server from the system."""
        return rabbitmq_node.missing("rstream")

    def version(self) -> str:
        """Of RabbitMQ and of rstream."""
        server = rabbitmq_node.server_version()
        return f"{server}, rstream {version('rstream')}{_too_old(server)}"

    @contextlib.contextmanager
    def running(self, directory: Path) -> Iterator[Server]:
        """A node of its own with the plugin for streams, and nothing that listens for AMQP."""
        port = free_port()
        settings = {
            "listeners.tcp": "none",
            "stream.listeners.tcp.1": f"127.0.0.1:{port}",
            "stream.advertised_host": "127.0.0.1",
            "stream.advertised_port": port,
        }
        with rabbitmq_node.running(directory, port, settings, plugins="rabbitmq_stream") as pid:
            yield Server(f"127.0.0.1:{port}", (pid,))

    @contextlib.asynccontextmanager
    async def publisher(self, address: str, topic: str) -> AsyncIterator[_Publisher]:
        """A producer of its own; makes the stream."""
        from rstream import Producer

        host, port = address.split(":")
        async with Producer(host, int(port), **GUEST) as producer:
            await producer.create_stream(topic)
            yield _Publisher(producer, topic)

    async def receive(
        self, address: str, topic: str, subscriber: Subscriber, tally: Tally, ready: Callable[[], None]
    ) -> None:
        """Goes on behind its offset, which it stores once a second and in the end."""
        from rstream import Consumer, ConsumerOffsetSpecification, OffsetType
        from rstream.exceptions import OffsetNotFound

        finished = asyncio.Event()
        place, value, rhythm = PLACE[subscriber.wanted], subscriber.value, Rhythm()

        async def take(message: bytes, context: Any) -> None:
            if message[place] == value and not tally.done():
                tally.take([bytes(message[PROPERTIES.size :])])
                if rhythm.due() or tally.done():
                    await consumer.store_offset(topic, subscriber.name, context.offset)
                if tally.done():
                    finished.set()

        host, port = address.split(":")
        consumer = Consumer(host, int(port), **GUEST)
        try:
            try:
                start = 1 + await consumer.query_offset(topic, subscriber.name)
            except OffsetNotFound:
                start = 0
            if tally.done():
                ready()
                return
            await consumer.subscribe(
                topic, take, offset_specification=ConsumerOffsetSpecification(OffsetType.OFFSET, start)
            )
            ready()
            await finished.wait()
        finally:
            await consumer.close()


def _too_old(server: str) -> str:
    """What a server before 3.13 cannot do, as a person who reads the figures should know it."""
    old = tuple(map(int, server.split(".")[:2])) < (3, 13)
    return " (streams filter in the server from 3.13 on)" if old else ""
