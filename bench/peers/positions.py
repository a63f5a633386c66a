"""The position at the server, durable there before the next event: `python -m bench positions`.

Each system does it in the way that is best for it: where a client can carry several subscribers over one connection
(gapless, NATS), they share one; else each has its own. All events are there before a round begins. What a server sends
ahead is taken, so that only the commits set the pace. One process of this program holds all subscribers, the same for
every system.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

from bench.peers.system import RaceError, System
from bench.peers.systems import SYSTEMS
from bench.peers.work import event
from bench.processes import medians, table
from bench.rounds import OURS, in_turn
from gapless.cli.connecting import run as run_loop

SUBSCRIBERS = (25, 200)
EVENTS = {25: 400, 200: 100}
"""How many events each of so many subscribers consumes."""
AHEAD = 100
"""How many events a subscriber may hold that it has not come to yet, where that is asked for."""
ROUNDS = 3
ATTACH_SECONDS = 120
TOPIC = "positions"


Consume: TypeAlias = Callable[[int], Any]
"""Consumes so many events, each committed before the next."""


class Contender(ABC):
    """One way to consume: the position is committed at the server, and nothing is taken before it is durable there."""

    system: str
    """Whose server and publisher it uses."""

    @abstractmethod
    def consumers(self, address: str, names: Sequence[str]) -> contextlib.AbstractAsyncContextManager[list[Consume]]:
        """Durable subscribers with these names."""


class Alone(Contender):
    """Each subscriber has a connection of its own."""

    @contextlib.asynccontextmanager
    async def consumers(self, address: str, names: Sequence[str]) -> AsyncIterator[list[Consume]]:
        """One after the other."""
        async with contextlib.AsyncExitStack() as stack:
            yield [await stack.enter_async_context(self.consumer(address, name)) for name in names]

    @abstractmethod
    def consumer(self, address: str, name: str) -> contextlib.AbstractAsyncContextManager[Consume]:
        """One of them."""


class Gapless(Contender):
    """`AckMode.AUTO`, event by event: sessions of one connection."""

    system = OURS

    @contextlib.asynccontextmanager
    async def consumers(self, address: str, names: Sequence[str]) -> AsyncIterator[list[Consume]]:
        """Leaving the loop commits the last event, too."""
        import gapless

        async with gapless.connect(address, client_id=TOPIC) as connection:

            async def consumer(name: str) -> Consume:
                session = connection.session(ack_mode=gapless.AckMode.AUTO)
                subscription = await session.subscribe(TOPIC, name=name, start="earliest")

                async def consume(count: int) -> None:
                    async with session:
                        async for _ in subscription:
                            count -= 1
                            if not count:
                                break

                return consume

            yield [await consumer(name) for name in names]


class Redis(Alone):
    """A consumer group for each subscriber, `XREADGROUP` ahead, `XACK` each."""

    system = "redis"

    @contextlib.asynccontextmanager
    async def consumer(self, address: str, name: str) -> AsyncIterator[Consume]:
        """One command under way: the next event waits for the answer."""
        from redis.asyncio import Redis as Client

        async with Client.from_url(address, protocol=2, socket_timeout=60, single_connection_client=True) as client:
            await client.xgroup_create(TOPIC, name, id="0")

            async def consume(count: int) -> None:
                while count > 0:
                    answer = await client.xreadgroup(name, name, {TOPIC: ">"}, count=AHEAD, block=1000)
                    for identity, _ in answer[0][1][:count]:
                        await client.xack(TOPIC, name, identity)
                        count -= 1

            yield consume


class Nats(Contender):
    """A durable push consumer for each subscriber, and `ack_sync`: of one connection, which suits it better."""

    system = "nats"

    @contextlib.asynccontextmanager
    async def consumers(self, address: str, names: Sequence[str]) -> AsyncIterator[list[Consume]]:
        """The server pushes up to AHEAD events, of which each is acknowledged, and the answer awaited."""
        import nats
        from nats.js.api import AckPolicy, ConsumerConfig

        async with await nats.connect(address, connect_timeout=60) as connection:
            jetstream = connection.jetstream(timeout=60)

            async def consumer(name: str) -> Consume:
                subscription = await jetstream.subscribe(
                    f"{TOPIC}.>",
                    durable=name,
                    stream=TOPIC,
                    manual_ack=True,
                    config=ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, max_ack_pending=AHEAD, ack_wait=600),
                )

                async def consume(count: int) -> None:
                    for _ in range(count):
                        message = await subscription.next_msg(timeout=60)
                        await message.ack_sync(timeout=60)

                return consume

            yield [await consumer(name) for name in names]


class Kafka(Alone):
    """confluent-kafka: a group for each subscriber, assigned its partition, `commit` for each event."""

    system = "kafka"

    @contextlib.asynccontextmanager
    async def consumer(self, address: str, name: str) -> AsyncIterator[Consume]:
        """The client blocks, so each has a thread."""
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        options = {"bootstrap.servers": address, "group.id": name, "enable.auto.commit": False}
        client = Consumer(options)
        loop = asyncio.get_running_loop()

        def consume(count: int) -> None:
            while count:
                message = client.poll(1.0)
                if message is None:
                    continue
                if message.error():
                    raise KafkaException(message.error())
                client.commit(message=message, asynchronous=False)
                count -= 1

        def begin() -> None:
            client.assign([TopicPartition(TOPIC, 0, 0)])
            deadline = time.monotonic() + ATTACH_SECONDS
            while True:  # a coordinator that is not ready yet is no error that the client repeats by itself
                try:
                    client.committed([TopicPartition(TOPIC, 0)], timeout=30)
                except KafkaException:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.1)
                else:
                    return

        with ThreadPoolExecutor(1) as thread:
            await loop.run_in_executor(thread, begin)
            try:
                yield lambda count: loop.run_in_executor(thread, consume, count)
            finally:
                await loop.run_in_executor(thread, client.close)


class AioKafka(Alone):
    """aiokafka: the same on the loop."""

    system = "kafka-aio"

    @contextlib.asynccontextmanager
    async def consumer(self, address: str, name: str) -> AsyncIterator[Consume]:
        """Events are taken as the client has them, and each is committed."""
        from aiokafka import AIOKafkaConsumer, TopicPartition

        partition = TopicPartition(TOPIC, 0)
        async with AIOKafkaConsumer(bootstrap_servers=address, group_id=name, enable_auto_commit=False) as client:
            client.assign([partition])
            await client.committed(partition)
            await client.seek_to_beginning(partition)

            async def consume(count: int) -> None:
                for _ in range(count):
                    message = await client.getone()
                    await client.commit({partition: message.offset + 1})

            yield consume


CONTENDERS: tuple[Contender, ...] = (Gapless(), Redis(), Nats(), Kafka(), AioKafka())


async def measure(contender: Contender, system: System, address: str) -> dict[str, float]:
    """Events in a second, over all subscribers, for each number of them."""
    async with system.publisher(address, TOPIC) as publisher:
        await publisher.publish([event(number) for number in range(max(EVENTS.values()))])
    figures = {}
    for subscribers in SUBSCRIBERS:
        names = [f"{contender.system}-{subscribers}-{number}" for number in range(subscribers)]
        async with contender.consumers(address, names) as consumers:
            began = time.perf_counter()
            await asyncio.gather(*[consume(EVENTS[subscribers]) for consume in consumers])
            taken = time.perf_counter() - began
        figures[f"{contender.system}_{subscribers}_events_per_second"] = subscribers * EVENTS[subscribers] / taken
    return figures


def run(*, json: bool) -> dict[str, Any]:
    """The medians of several rounds, each of which begins with another system, and ours beside the best."""
    contenders = {each.system: each for each in CONTENDERS}
    missing = {name: why for name in contenders if (why := SYSTEMS[name].missing())}
    names = [name for name in contenders if name not in missing]
    rounds = []
    for number in range(ROUNDS):
        figures: dict[str, float] = {}
        for name in in_turn(names, number):
            print(f"round {number + 1} of {ROUNDS}: {name}", file=sys.stderr)
            try:
                with tempfile.TemporaryDirectory() as directory, SYSTEMS[name].running(Path(directory)) as server:
                    figures |= run_loop(measure(contenders[name], SYSTEMS[name], server.address))
            except RaceError as error:
                sys.exit(f"{name}: {error}")
        for subscribers in SUBSCRIBERS:
            rates = {name: figures[f"{name}_{subscribers}_events_per_second"] for name in names}
            others = [rate for name, rate in rates.items() if name != OURS]
            if others:
                figures[f"ratio_ours_to_best_{subscribers}"] = rates[OURS] / max(others)
        rounds.append(figures)
    medians_of_all = medians(rounds)
    if not json:
        table("positions: the position at the server, durable before the next event", medians_of_all)
    for name, why in missing.items():
        print(f"without {name}: {why}", file=sys.stderr)
    return {**medians_of_all, "missing": missing}
