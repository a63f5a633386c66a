"""Publish: processor time per event, broker and client, every receipt durable.

One publisher, RocksDB, loopback TCP. Pipelined (`send_all`), in explicit batches of 256 and 16
(`send_batch`, several in flight), and one event at a time (`send`, one in flight: latency). Each round
has two brokers: one whose fence is synced before each receipt, as it is by default, and one whose
fence follows (`storage.fence = "behind"`).
"""

from __future__ import annotations

import asyncio
import time

import gapless
from bench.processes import Broker, medians, running_broker, table
from gapless.cli.connecting import run as run_loop

BODY = b"x" * 200
ROUNDS = 3


def message(index: int) -> gapless.Message:
    """An event of about 250 bytes with three properties."""
    return gapless.Message(BODY, {"w": index & 3, "x": index * 0.5, "origin": "JFK"})


async def pipelined(publisher: gapless.Publisher, count: int) -> None:
    """All events through `send_all`."""
    async for _ in publisher.send_all(message(index) for index in range(count)):
        pass


async def batches(publisher: gapless.Publisher, count: int, size: int) -> None:
    """Batches of one size, eight in flight."""
    flying: set[asyncio.Task[object]] = set()
    for start in range(0, count, size):
        batch = [message(index) for index in range(start, start + size)]
        flying.add(asyncio.create_task(publisher.send_batch(batch)))
        if len(flying) >= 8:
            _, flying = await asyncio.wait(flying, return_when=asyncio.FIRST_COMPLETED)
    if flying:
        await asyncio.wait(flying)


async def one_by_one(publisher: gapless.Publisher, count: int) -> None:
    """Each event when the one before is durable."""
    for index in range(count):
        await publisher.send(BODY, properties={"w": index & 3})


async def measure(broker: Broker) -> dict[str, float]:
    """One round of everything."""
    figures: dict[str, float] = {}
    async with gapless.connect(broker.url) as connection, connection.session() as session:
        publisher = session.publisher("bench.publish")
        for name, work, count in (
            ("pipelined", pipelined(publisher, 100_000), 100_000),
            ("batches_of_256", batches(publisher, 100_096, 256), 100_096),
            ("batches_of_16", batches(publisher, 40_000, 16), 40_000),
            ("one_by_one", one_by_one(publisher, 1_000), 1_000),
        ):
            broker_cpu, client_cpu, began = broker.cpu_seconds(), time.process_time(), time.perf_counter()
            written = broker.written_bytes()
            await work
            wall = time.perf_counter() - began
            figures[f"{name}_broker_cpu_us_per_event"] = 1e6 * (broker.cpu_seconds() - broker_cpu) / count
            figures[f"{name}_client_cpu_us_per_event"] = 1e6 * (time.process_time() - client_cpu) / count
            figures[f"{name}_events_per_second"] = count / wall
            figures[f"{name}_bytes_written_per_event"] = (broker.written_bytes() - written) / count
    return figures


def run(*, json: bool) -> dict[str, float]:
    """The medians of several rounds on one broker of each kind, and of the ratios within a round."""
    rounds = []
    with running_broker() as before, running_broker(storage='fence = "behind"') as behind:
        for _ in range(ROUNDS):
            one, other = run_loop(measure(before)), run_loop(measure(behind))
            ratios = {f"ratio_behind_{key}": other[key] / one[key] for key in one if key.endswith("per_second")}
            rounds.append(one | {f"behind_{key}": value for key, value in other.items()} | ratios)
    figures = medians(rounds)
    if not json:
        table("publish: 250-byte events, durable before each receipt", figures)
    return figures
