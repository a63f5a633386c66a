"""Connections to the model of Kafka: slow, in order, and broken."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from gapless_log.kafka.messages import UNKNOWN, Fetch, FetchFrom, Produce
from gapless_log.kafka.messages import Topic as TopicName
from gapless_log.kafka.records import Compression, NewRecord, encode
from gapless_sim.recording.trace import Trace
from gapless_sim.world.choices import Choices
from gapless_sim.world.kafka_network import LATE_MOST, PRODUCE_FATES, TOPIC, SimKafka
from gapless_sim.world.options import SECOND, Options
from gapless_sim.world.virtual_loop import VirtualLoop
from gapless_sim.world.world import World


class Rig:
    """A world with nothing but a Kafka in it, and a process that asks it."""

    def __init__(self, seed: int = 1) -> None:
        self.world = World(Options(seed, workload="kafka"), Choices(seed), Trace())
        self.kafka = SimKafka(self.world, "network")
        self.topic = self.kafka.cluster.create(TOPIC, 1, {})
        for broker in self.kafka.cluster.brokers:
            broker.learn()
        self.loop = VirtualLoop(lambda: self.world.now, self._wake_at)

    def _wake_at(self, when: int) -> None:
        self.world.at(when, "process", "run", self.loop.run)

    def run(self, work: Coroutine[Any, Any, Any], seconds: float = 10) -> Any:
        task = self.loop.create_task(work)
        self.world.run_until(self.world.now + int(seconds * SECOND))
        return task.result()

    async def connect(self) -> Any:
        return await self.kafka.connect("node1", self.loop, "kafka-1:9092")

    def fetch(self, wait_ms: int) -> Fetch:
        start = FetchFrom(self.topic.id, 0, 0, UNKNOWN, UNKNOWN, 1 << 20)
        return Fetch((start,), is_committed=True, wait_ms=wait_ms, bytes_min=1, bytes_max=1 << 20)

    def produce(self) -> Produce:
        batch = encode([NewRecord(1, None, b"x", ())], Compression.NONE)
        return Produce(TopicName(TOPIC, self.topic.id), 0, batch, 1000)


def test_what_a_process_that_is_gone_has_sent_may_arrive_all_the_same() -> None:
    rig = Rig()

    async def work() -> None:
        connection = await rig.connect()
        asking = rig.loop.create_task(connection.ask(rig.produce()))
        await asyncio.sleep(0)
        connection.vanish()
        assert not asking.done()

    rig.run(work())

    assert rig.topic.partitions[0].end == 1


def test_some_produces_get_no_answer_and_some_come_much_later() -> None:
    rig = Rig(7)

    async def work() -> int:
        lost = 0
        for _ in range(400):
            try:
                await (await rig.connect()).ask(rig.produce())
            except ConnectionError:
                lost += 1
        return lost

    lost = rig.run(work(), 60)
    rig.world.run_until(rig.world.now + LATE_MOST)

    assert lost
    assert all(rig.world.hits[f"kafka.a produce {fate}"] for fate in PRODUCE_FATES)
    assert 400 - lost < rig.topic.partitions[0].end
