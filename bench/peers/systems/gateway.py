"""gapless with Kafka as its log: one broker on RocksDB and TCP whose pubends are partitions of Kafka topics.

Its Kafka is the one that the race has as a peer. An address is that of gapless and that of Kafka, with a space between.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from bench.peers.system import Acknowledged, Publisher, Server, free_port, missing_package
from bench.peers.systems.kafka import Kafka, running_kafka
from bench.peers.systems.ours import Gapless
from bench.peers.work import Subscriber, Tally
from bench.peers.works import TOPICS
from bench.processes import Broker, running_broker
from gapless_testing.kafka_node import VERSION


async def make_topics(kafka: str, names: Sequence[str], config: Mapping[str, str]) -> None:
    """Makes topics with one partition each."""
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic

    client = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await client.start()
    try:
        await client.create_topics([NewTopic(name, 1, 1, topic_configs=dict(config)) for name in names])
    finally:
        await client.close()


async def found(url: str, topics: Sequence[str]) -> None:
    """Waits until a broker has found these topics, each with one partition."""
    import gapless

    async with gapless.connect(url, wait=True) as connection:
        while True:
            here = {info.pubend.rpartition("@")[0] for info in await connection.pubends()}
            if here >= {f"{topic}.0" for topic in topics}:
                return
            await asyncio.sleep(0.1)


@contextlib.contextmanager
def running_gateway(
    kafka: str, topics: Sequence[str], directory: Path, more: str, *, publish: bool
) -> Iterator[Broker]:
    """A broker for these topics of a Kafka, from when it has found them. `more`: further sections."""
    listed = ", ".join(f'{{ name = "{topic}", publish = {str(publish).lower()} }}' for topic in topics)
    section = f'[[phb.kafka]]\nservers = ["{kafka}"]\ntopics = [{listed}]\n{more}'
    with running_broker(section, under=directory) as broker:
        asyncio.run(found(broker.url, topics))
        yield broker


class OnKafka(Gapless):
    """Records that others write, with the client that Kafka has in the race."""

    title = "gapless on a Kafka topic that others write to"
    acknowledged: Acknowledged = "page cache"
    promise = Kafka.promise
    publishes = False

    def missing(self) -> str:
        """What Kafka needs, and aiokafka."""
        return Kafka().missing() or missing_package("aiokafka")

    def version(self) -> str:
        """Of gapless, of Kafka, and of what connects them."""
        return f"{super().version()}, Kafka {VERSION}, aiokafka {version('aiokafka')}"

    @contextlib.contextmanager
    def running(self, directory: Path) -> Iterator[Server]:
        """Both, with the topics of the race."""
        (directory / "kafka").mkdir()
        with running_kafka(directory / "kafka", (free_port(), free_port()), {}) as kafka:
            asyncio.run(make_topics(kafka.address, TOPICS, {}))
            with running_gateway(kafka.address, TOPICS, directory, "", publish=self.publishes) as broker:
                yield Server(f"{broker.url} {kafka.address}", (broker.pid, *kafka.pids))

    @contextlib.asynccontextmanager
    async def publisher(self, address: str, topic: str) -> AsyncIterator[Publisher]:
        """Kafka's, which knows nothing of gapless."""
        async with Kafka().publisher(address.split()[1], topic) as publisher:
            yield publisher

    def selector(self, subscriber: Subscriber) -> str:
        """Headers of strangers are text."""
        return f"{subscriber.wanted} = '{subscriber.value}'"

    async def receive(
        self, address: str, topic: str, subscriber: Subscriber, tally: Tally, ready: Callable[[], None]
    ) -> None:
        """As from any broker."""
        await super().receive(address.split(maxsplit=1)[0], topic, subscriber, tally, ready)


class ToKafka(OnKafka):
    """Events that are published to Kafka through gapless."""

    title = "gapless, publishing to a Kafka topic"
    promise = "The event is in Kafka as with Kafka's own clients, and gapless has read it back from there."
    publishes = True

    @contextlib.asynccontextmanager
    async def publisher(self, address: str, topic: str) -> AsyncIterator[Publisher]:
        """Gapless's own."""
        async with Gapless.publisher(self, address.split(maxsplit=1)[0], topic) as publisher:
            yield publisher

    def selector(self, subscriber: Subscriber) -> str:
        """Properties come back with their types."""
        return Gapless.selector(self, subscriber)
