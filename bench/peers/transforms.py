"""Consume, transform, publish, with the position in the write that logs the output.

Beside it the loop of gapless without the token, which may do things twice after a crash, and transactions of Kafka.
Each makes one output of each event. All events are there before it begins.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any

from bench.peers.system import RaceError, Server
from bench.peers.systems import SYSTEMS
from bench.peers.work import event
from bench.processes import medians
from bench.rounds import OURS, in_turn
from gapless.cli.connecting import run as run_loop

INPUT = "inputs"
OUTPUT = "outputs"
EVENTS = {100: 20_000, 1_000: 100_000}
"""How many events are consumed in batches of a size."""
PROPERTIES = {"transformed": True}
UNDER_WAY = 16
"""How many batches the loop without a token sends before it waits for the first receipt."""
KAFKA = "kafka"


async def fill(name: str, address: str) -> None:
    """Publishes what is consumed."""
    async with SYSTEMS[name].publisher(address, INPUT) as publisher:
        await publisher.publish([event(number) for number in range(max(EVENTS.values()))])


async def with_token(address: str, size: int) -> float:
    """`session.transform`. Returns how many events it did in a second."""
    import gapless

    async with gapless.connect(address) as connection, connection.session() as session:
        began, left = time.perf_counter(), EVENTS[size]
        async with session.transform(
            INPUT, to=f"{OUTPUT}.{size}", name=f"with-{size}", start="earliest", max_events=size
        ) as work:
            async for batch in work:
                await batch.publish([gapless.Message(body, PROPERTIES) for body in batch.bodies])
                left -= len(batch)
                if left <= 0:
                    break
    return (EVENTS[size] - left) / (time.perf_counter() - began)


async def without_token(address: str, size: int) -> float:
    """The loop that acknowledges its input when the receipt of the output is there."""
    import gapless

    async with gapless.connect(address) as connection, connection.session() as session:
        publisher = session.publisher(f"{OUTPUT}.{size}", name=f"without-{size}")
        flying: deque[tuple[asyncio.Task[Any], gapless.CheckpointToken]] = deque()
        began, left = time.perf_counter(), EVENTS[size]
        async with session.subscribe(INPUT, name=f"without-{size}", start="earliest") as subscription:

            async def settle(most: int) -> None:
                while len(flying) > most:
                    receipts, token = flying.popleft()
                    await receipts
                    await subscription.acknowledge(token)

            async for batch in subscription.batches(max_events=size):
                assert isinstance(batch, gapless.Batch)
                messages = [gapless.Message(body, PROPERTIES) for body in batch.bodies]
                flying.append((asyncio.create_task(publisher.send_batch(messages)), batch.token))
                await settle(UNDER_WAY)
                left -= len(batch)
                if left <= 0:
                    break
            await settle(0)
    return (EVENTS[size] - left) / (time.perf_counter() - began)


async def kafka(address: str, size: int) -> float:
    """A transaction for each batch, of the outputs and the offset of the input."""
    return await asyncio.get_running_loop().run_in_executor(None, _transactions, address, size)


def _transactions(address: str, size: int) -> float:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

    group = f"transactions-{size}"
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": address,
            "transactional.id": group,
            "enable.idempotence": True,
            "linger.ms": 0,
            # A transaction that begins at once meets the end of the former one, and asks again: three times the rate.
            "retry.backoff.ms": 1,
            "retry.backoff.max.ms": 5,
        }
    )
    headers, left = [("transformed", b"1")], EVENTS[size]
    try:
        consumer.assign([TopicPartition(INPUT, 0, OFFSET_BEGINNING)])
        producer.init_transactions(60)
        began = time.perf_counter()
        while left > 0:
            messages = consumer.consume(min(size, left), timeout=1.0)
            if not messages:
                continue
            producer.begin_transaction()
            for message in messages:
                if message.error():
                    raise RaceError(f"Kafka: {message.error()}")
                producer.produce(f"{OUTPUT}-{size}", message.value(), headers=headers)
            position = consumer.position([TopicPartition(INPUT, 0)])
            producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), 60)
            producer.commit_transaction(60)
            left -= len(messages)
        return EVENTS[size] / (time.perf_counter() - began)
    finally:
        consumer.close()


async def measure(name: str, server: Server) -> dict[str, float]:
    """Events in a second, by the size of batches."""
    await fill(name, server.address)
    ways = {"with_token": with_token, "without_token": without_token} if name == OURS else {"kafka": kafka}
    return {
        f"{way}_{size}_events_per_second": await work(server.address, size)
        for size in EVENTS
        for way, work in ways.items()
    }


def compare(rounds: int) -> dict[str, float]:
    """The medians of several rounds, and of the ratios within a round."""
    missing = SYSTEMS[KAFKA].missing()
    names = [OURS] if missing else [OURS, KAFKA]
    found = []
    for number in range(rounds):
        figures: dict[str, float] = {}
        for name in in_turn(names, number):
            print(f"round {number + 1} of {rounds}: {name}", file=sys.stderr)
            with tempfile.TemporaryDirectory() as directory, SYSTEMS[name].running(Path(directory)) as server:
                figures |= run_loop(measure(name, server))
        for size in EVENTS:
            ours = figures[f"with_token_{size}_events_per_second"]
            figures[f"ratio_to_without_token_{size}"] = ours / figures[f"without_token_{size}_events_per_second"]
            if not missing:
                figures[f"ratio_to_kafka_{size}"] = ours / figures[f"kafka_{size}_events_per_second"]
        found.append(figures)
    if missing:
        print(f"without Kafka: {missing}", file=sys.stderr)
    return medians(found)
