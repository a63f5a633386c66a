"""Apache Kafka: one broker (KRaft) from the jars of Maven Central, one partition, one group per subscriber.

A topic has one partition, because each subscriber gets its events in the order of publishing. Kafka
does not filter: every consumer reads everything, and drops what it does not want by a header, undecoded.
Consumers are assigned the partition, which spares them the group protocol, and commit once a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from bench.peers.system import (
    WINDOW,
    Acknowledged,
    RaceError,
    Server,
    answers,
    free_port,
    missing_jars,
    missing_package,
    started,
)
from bench.peers.work import ORIGIN, Event, Rhythm, Subscriber, Tally
from gapless_testing.kafka_node import JARS, VERSION, properties

CLUSTER = "Z2FwbGVzcy1yYWNlLTAwMQ"
FLAGS = "-Xms1g -Xmx1g -server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35"
"""As Kafka's own scripts start it."""

Header = tuple[str, bytes]


class _Broker:
    """What both clients share."""

    filters: Literal["server", "client"] = "client"
    portions: Mapping[str, float] = {"selective": 0.04}
    under_way = WINDOW
    acknowledged: Acknowledged = "page cache"
    promise = (
        "The event is in the broker's page cache, which Kafka never syncs by itself: replication makes it durable, "
        "and here is one broker."
    )
    client: str

    def missing(self) -> str:
        """The client comes from PyPI, the broker from Maven Central."""
        return missing_package(self.client) or missing_jars(JARS)

    def version(self) -> str:
        """Of Kafka and of the client."""
        return f"{VERSION}, {self.client} {version(self.client)}"

    def running(self, directory: Path) -> contextlib.AbstractContextManager[Server]:
        """A broker that makes a topic when it is first asked for."""
        return running_kafka(directory, (free_port(), free_port()), {})


@contextlib.contextmanager
def running_kafka(directory: Path, ports: tuple[int, int], config: Mapping[str, object]) -> Iterator[Server]:
    """Formats the storage, and starts a broker as its own script does.

    `ports`: where clients and where controllers connect. `config` adds to its settings, or replaces.
    """
    settings = directory / "server.properties"
    settings.write_text(properties(1, {1: ports}, directory, config), "utf-8")
    java = ["java", *FLAGS.split(), "-cp", JARS.class_path]
    format_storage = [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(settings)]
    done = subprocess.run(format_storage, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RaceError(f"Kafka could not format its storage: {done.stderr.strip()[-300:]}")
    with started([*java, "kafka.Kafka", str(settings)], directory, lambda: answers(ports[0])) as process:
        yield Server(f"127.0.0.1:{ports[0]}", (process.pid,))


def headers(event: Event) -> list[tuple[str, bytes]]:
    """The properties of an event."""
    return [("quarter", b"%d" % event.quarter), ("percent", b"%d" % event.percent), ("origin", ORIGIN.encode())]


def header_wanted(subscriber: Subscriber) -> Header:
    """What the header of a wanted event says."""
    return subscriber.wanted, b"%d" % subscriber.value


# --------------------------------------------------------------------------- confluent-kafka: threads in C


class _Publisher:
    def __init__(self, producer: Any, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._failure: object = None

    async def publish(self, events: Sequence[Event]) -> None:
        """Batched by the client; `flush` waits for the acknowledgement of all."""
        for event in events:
            while True:
                try:
                    self._producer.produce(self._topic, event.body, headers=headers(event), on_delivery=self._failed)
                    break
                except BufferError:
                    self._producer.poll(0.001)
        if self._producer.flush(60) or self._failure:
            raise RaceError(f"Kafka did not acknowledge: {self._failure}")

    def _failed(self, error: object, message: object) -> None:
        self._failure = error


class Kafka(_Broker):
    """Kafka with the client of Confluent, librdkafka in C."""

    title = "Apache Kafka, confluent-kafka (C)"
    client = "confluent-kafka"

    @contextlib.asynccontextmanager
    async def publisher(self, address: str, topic: str) -> AsyncIterator[_Publisher]:
        """Idempotent, all acknowledgements; only failures are reported one by one."""
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": address,
                "acks": "all",
                "enable.idempotence": True,
                "delivery.report.only.error": True,
                "queue.buffering.max.messages": WINDOW,
            }
        )
        while producer.list_topics(topic, timeout=30).topics[topic].error is not None:  # the first asking makes it
            producer.poll(0.1)
        yield _Publisher(producer, topic)

    async def receive(
        self, address: str, topic: str, subscriber: Subscriber, tally: Tally, ready: Callable[[], None]
    ) -> None:
        """In a thread of its own, because the client blocks."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as thread:
            await loop.run_in_executor(
                thread, _consume, address, topic, subscriber, tally, lambda: loop.call_soon_threadsafe(ready)
            )


def _consume(address: str, topic: str, subscriber: Subscriber, tally: Tally, ready: Callable[[], object]) -> None:
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": f"{topic}-{subscriber.name}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        _connect(consumer, TopicPartition(topic, 0))
        ready()
        wanted, rhythm = header_wanted(subscriber), Rhythm()
        while not tally.done():
            first = consumer.poll(1.0)
            # `consume` would wait for as many as it may give: it is asked for no more than there is already.
            messages = [first, *consumer.consume(999, timeout=0)] if first else []
            for message in messages:
                if message.error():
                    raise KafkaException(message.error())
            tally.take([message.value() for message in messages if wanted in message.headers()])
            if messages and (rhythm.due() or tally.done()):
                consumer.commit(asynchronous=True)
    finally:
        consumer.close()


def _connect(consumer: Any, partition: Any) -> None:
    """Asks for the position, which the coordinator of a new group may not be ready to tell, and begins there.

    Told where to begin, the client asks for events at once; else it would ask for the position again.
    """
    from confluent_kafka import OFFSET_BEGINNING, KafkaException

    deadline = time.monotonic() + 30
    while True:
        try:
            position = consumer.committed([partition], timeout=30)[0].offset
        except KafkaException:  # "not coordinator", which the client does not call retriable
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            partition.offset = position if position >= 0 else OFFSET_BEGINNING
            consumer.assign([partition])
            return


# ------------------------------------------------------------------------------------ aiokafka: asyncio


class _AioPublisher:
    def __init__(self, producer: Any, topic: str) -> None:
        self._producer = producer
        self._topic = topic

    async def publish(self, events: Sequence[Event]) -> None:
        """Batched by the client."""
        for start in range(0, len(events), WINDOW):
            await asyncio.gather(
                *[
                    await self._producer.send(self._topic, event.body, partition=0, headers=headers(event))
                    for event in events[start : start + WINDOW]
                ]
            )


class AioKafka(_Broker):
    """Kafka with aiokafka, asyncio in Python."""

    title = "Apache Kafka, aiokafka"
    client = "aiokafka"

    @contextlib.asynccontextmanager
    async def publisher(self, address: str, topic: str) -> AsyncIterator[_AioPublisher]:
        """Idempotent, all acknowledgements, batches as large as the window."""
        from aiokafka import AIOKafkaProducer

        async with AIOKafkaProducer(
            bootstrap_servers=address, acks="all", enable_idempotence=True, max_batch_size=1 << 19
        ) as producer:
            await producer.partitions_for(topic)  # makes it
            yield _AioPublisher(producer, topic)

    async def receive(
        self, address: str, topic: str, subscriber: Subscriber, tally: Tally, ready: Callable[[], None]
    ) -> None:
        """A consumer that is given what the client has, in batches."""
        from aiokafka import AIOKafkaConsumer, TopicPartition

        partition = TopicPartition(topic, 0)
        async with AIOKafkaConsumer(
            bootstrap_servers=address,
            group_id=f"{topic}-{subscriber.name}",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        ) as consumer:
            consumer.assign([partition])
            await consumer.committed(partition)
            ready()
            wanted, rhythm = header_wanted(subscriber), Rhythm()
            while not tally.done():
                messages = (await consumer.getmany(timeout_ms=1000)).get(partition, [])
                tally.take([message.value for message in messages if wanted in message.headers])
                if messages and (rhythm.due() or tally.done()):
                    await consumer.commit()
