"""What the measurements stand on: a Kafka with a topic that is filled batch by batch, and a gateway to it."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.peers.system import Server
from bench.peers.systems.gateway import make_topics
from bench.peers.systems.kafka import running_kafka
from bench.peers.work import event
from bench.processes import Broker
from gapless.core.gauges import Family, values_by
from gapless_log.kafka.lineage import offset_of
from gapless_log.kafka.messages import Code, Topic
from gapless_log.kafka.records import Compression, NewRecord, encode
from gapless_log.kafka.requests import Access, Connection, connect
from gapless_phb.core.gauges import STABLE

BATCH_BYTES_MAX = 2 << 20
"""What a topic takes at once: its largest batches have a megabyte."""
RECORD_BYTES = 243
"""About what a record takes in a batch: 200 bytes and three headers."""
_HEAD = struct.Struct(">qi")


@contextmanager
def a_kafka(
    topics: Sequence[str], ports: tuple[int, int], config: Mapping[str, object]
) -> Iterator[tuple[Server, Path]]:
    """A fresh one with these topics, and where it keeps their logs."""
    with (
        TemporaryDirectory(prefix="gapless-kafka-") as directory,
        running_kafka(Path(directory), ports, config) as kafka,
    ):
        asyncio.run(make_topics(kafka.address, topics, {"max.message.bytes": str(BATCH_BYTES_MAX)}))
        yield kafka, Path(directory)


def encoded(first: int, count: int, wanted: Sequence[int] = ()) -> bytes:
    """A batch of the race's events, from a number on; `wanted` are places of records with a header of their own."""
    now = time.time_ns() // 1_000_000
    new = []
    for place, each in enumerate(map(event, range(first, first + count))):
        headers: list[tuple[str, bytes | None]] = [
            ("quarter", b"%d" % each.quarter),
            ("percent", b"%d" % each.percent),
            ("origin", b"yes" if place in wanted else b"JFK"),
        ]
        new.append(NewRecord(now, None, each.body, headers))
    return encode(new, Compression.NONE)


class Filler:
    """Appends to the only partition of a topic, over a connection to its leader, as any producer."""

    def __init__(self, connection: Connection, topic: Topic) -> None:
        self.connection = connection
        self.topic = topic
        self.count = 0
        """How many records it has appended."""

    @classmethod
    async def of(cls, kafka: str, name: str) -> Filler:
        """For a topic that is there."""
        connection = await connect(kafka, Access())
        while True:
            (state,) = (await connection.metadata([name])).topics
            if state.code is Code.NONE and state.partitions[0].leader >= 0:
                return cls(connection, Topic(name, state.id))
            await asyncio.sleep(0.1)

    async def fill(self, batches: int, per_batch: int, wanted: Sequence[int] = ()) -> None:
        """Appends so many batches, one after the other."""
        for _ in range(batches):
            produced = await self.connection.produce(
                self.topic, 0, encoded(self.count, per_batch, wanted), timeout_ms=20_000
            )
            assert produced.code is Code.NONE, produced
            self.count += per_batch


def gauge(broker: Broker, family: Family, topic: str) -> int:
    """The value of a gauge for the partition of a topic; 0 if it has none yet."""
    values = values_by(broker.gauges(), family, "pubend")
    return int(next((value for pubend, value in values.items() if pubend.startswith(f"{topic}.0@")), 0))


def await_taken(broker: Broker, topic: str, count: int) -> None:
    """Waits until a gateway has taken in so many records."""
    while offset_of(gauge(broker, STABLE, topic)) < count:
        time.sleep(0.02)


def log_of(directory: Path, topic: str) -> tuple[int, int]:
    """How many bytes and how many batches a topic's log has."""
    size = batches = 0
    for segment in (directory / "data" / f"{topic}-0").glob("*.log"):
        data, at = segment.read_bytes(), 0
        while at + _HEAD.size <= len(data):
            _, length = _HEAD.unpack_from(data, at)
            if length <= 0:
                break
            at += _HEAD.size + length
            batches += 1
        size += at
    return size, batches
