"""A world with a topic of Kafka's, for the oracles that judge by it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec

from gapless.core.stream.columns import EMPTY, EventBatch, EventColumns
from gapless.core.stream.events import encode_event
from gapless.core.stream.knowledge import Knowledge
from gapless.core.wire.messages import StartAt
from gapless_log.kafka.records import Compression, NewRecord, encode
from gapless_sim.oracles.kafka_logs import KafkaLogs
from gapless_sim.recording.trace import Trace
from gapless_sim.world.choices import Choices
from gapless_sim.world.kafka_model import Partition
from gapless_sim.world.kafka_network import TOPIC, SimKafka
from gapless_sim.world.options import Options
from gapless_sim.world.producer import KEY_BYTES
from gapless_sim.world.world import World


class Consumer:
    """As much of one as oracles look at."""

    lane = "c"
    attached = True
    wanted = SimpleNamespace(positions=None)
    client = SimpleNamespace(addresses=["node1"])

    def __init__(self, start: StartAt, wants: Any) -> None:
        self.row = SimpleNamespace(number=1, matches=wants, start=start)


class Rig:
    """A world with a topic, and what the oracles think of it."""

    def __init__(self) -> None:
        self.world = World(Options(1, workload="kafka"), Choices(1), Trace())
        self.kafka = self.world.kafka = SimKafka(self.world, "network")
        self.topic = self.kafka.cluster.create(TOPIC, 1, {})
        self.pubend = self.kafka.pubend_of(self.topic, 0)
        self.logs = KafkaLogs(self.kafka)

    @property
    def partition(self) -> Partition:
        return self.topic.partitions[0]

    def write(self, *keys: int, headers: tuple[tuple[str, bytes], ...] = ()) -> None:
        self.partition.append(self.batch(*keys, headers=headers))
        self.kafka.changed()

    def batch(self, *keys: int, headers: tuple[tuple[str, bytes], ...] = ()) -> bytes:
        """Records with these keys; the headers are those of the first."""
        new = [
            NewRecord(1, None, key.to_bytes(KEY_BYTES, "big"), headers if not number else ())
            for number, key in enumerate(keys)
        ]
        return encode(new, Compression.NONE)

    def mark(self, first: int, count: int, after: int, epoch: int = 1) -> tuple[tuple[str, bytes], ...]:
        fields = (1, self.kafka.tag_of(self.pubend), "p", epoch, first, count, 0, after, b"", False, epoch == 1)
        return (("gapless", msgspec.msgpack.encode(fields)),)

    def know(self, lo: int, hi: int, *events: tuple[int, int], lost: int = 0) -> Knowledge:
        bodies = [key.to_bytes(KEY_BYTES, "big") for _, key in events]
        columns = EventColumns.of([encode_event(TOPIC, {}, None, body) for body in bodies], map(len, bodies))
        data = EventBatch.of([tick for tick, _ in events], [columns]) if events else EMPTY
        return Knowledge(self.pubend, lo, hi, data, lost)

    def request(self, node: str, request: object) -> None:
        """A node asks Kafka for something."""
        for call in self.kafka.on_request:
            call(node, request)

    def consumer(self, start: StartAt = StartAt.EARLIEST, wants: Any = lambda _key: True) -> Any:
        return Consumer(start, wants)
