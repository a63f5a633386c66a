"""Fan-out: live delivery to 100 durable subscriptions that each want a quarter, beside the floor.

Four client processes, every subscription on a connection of its own, every event decoded and checked.
The same work with no protocol at all (`bench.floor`) runs in the same round, so that the ratio means
something on a noisy machine.

    python -m bench.fanout client URL FIRST STEP TOTAL WANTED
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gapless
from bench.floor import HEAD, PUBLISH
from bench.processes import Broker, cpu_seconds, medians, running_broker, spawn, table
from gapless.cli.connecting import run as run_loop
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.events import encode_event

SUBSCRIPTIONS = 100
PROCESSES = 4
EVENTS = 51_200
BATCH = 256
ROUNDS = 3
BODY = b"x" * 200


# ------------------------------------------------------------------------------------ the subscribers


async def subscriber(url: str, number: int, wanted: int, ready: Callable[[], None]) -> None:
    """Consumes its quarter in batches, and acknowledges each."""
    async with (
        gapless.connect(url, client_id=f"bench-{number}") as connection,
        connection.session() as session,
        session.subscribe("bench.fanout", name=f"s{number}", selector=f"w = {number & 3}") as subscription,
    ):
        ready()
        await take_quarter(subscription, number, wanted)


async def take_quarter(subscription: gapless.Subscription[gapless.Event, Any], number: int, wanted: int) -> int:
    """Takes so many events, each of which must be the subscriber's, and acknowledges each batch; returns how many."""
    got = 0
    async for batch in subscription.batches(max_events=4096):
        assert isinstance(batch, gapless.Batch)
        assert all(event.properties["w"] == number & 3 for event in batch)
        got += len(batch)
        await subscription.acknowledge(batch.token)
        if got >= wanted:
            break
    return got


async def subscribers(url: str, first: int, step: int, total: int, wanted: int) -> None:
    """The subscribers of one client process; says how much processor time they used since all were ready."""
    numbers = range(first, total, step)
    waiting = len(numbers)
    began = 0.0

    def ready() -> None:
        nonlocal waiting, began
        waiting -= 1
        if not waiting:
            began = time.process_time()
            print("ready", flush=True)

    await asyncio.gather(*(subscriber(url, number, wanted, ready) for number in numbers))
    print(time.process_time() - began, flush=True)


def client(arguments: list[str]) -> None:
    """A client process."""
    url, *numbers = arguments
    run_loop(subscribers(url, *map(int, numbers)))


# ------------------------------------------------------------------------------------------- one round


def messages(start: int) -> list[gapless.Message]:
    """A batch of events, of which each subscriber wants a quarter."""
    return [
        gapless.Message(BODY, {"w": index & 3, "x": index * 0.5, "origin": "JFK"})
        for index in range(start, start + BATCH)
    ]


async def publish(url: str, count: int) -> None:
    """Batches of 256, eight in flight."""
    async with gapless.connect(url) as connection, connection.session() as session:
        publisher = session.publisher("bench.fanout")
        flying: set[asyncio.Task[object]] = set()
        for start in range(0, count, BATCH):
            flying.add(asyncio.create_task(publisher.send_batch(messages(start))))
            if len(flying) >= 8:
                _, flying = await asyncio.wait(flying, return_when=asyncio.FIRST_COMPLETED)
        if flying:
            await asyncio.wait(flying)


def figures_of(broker_cpu: float, clients: list[subprocess.Popen[str]], began: float) -> dict[str, float]:
    """Waits for the clients and turns what they say into figures."""
    deliveries = SUBSCRIPTIONS * EVENTS // 4
    client_cpu = 0.0
    for process in clients:
        assert process.stdout is not None
        client_cpu += float(process.stdout.readline())
        process.wait(timeout=30)
    wall = time.perf_counter() - began
    return {
        "deliveries_per_second": deliveries / wall,
        "broker_cpu_us_per_delivery": 1e6 * broker_cpu / deliveries,
        "client_cpu_us_per_delivery": 1e6 * client_cpu / deliveries,
    }


def wait_ready(clients: list[subprocess.Popen[str]]) -> None:
    """Until every client process says so."""
    for process in clients:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"


def gapless_round(broker: Broker) -> dict[str, float]:
    """gapless: the processor time of the broker includes logging and syncing what is published."""
    clients = [
        spawn("bench.fanout", "client", broker.url, str(k), str(PROCESSES), str(SUBSCRIPTIONS), str(EVENTS // 4))
        for k in range(PROCESSES)
    ]
    wait_ready(clients)
    cpu, began = broker.cpu_seconds(), time.perf_counter()
    run_loop(publish(broker.url, EVENTS))
    figures = figures_of(0.0, clients, began)
    figures["broker_cpu_us_per_delivery"] = 1e6 * (broker.cpu_seconds() - cpu) / (SUBSCRIPTIONS * EVENTS // 4)
    return figures


async def floor_publish(port: int) -> None:
    """The same batches as raw frames."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    flying = 0
    for start in range(0, EVENTS, BATCH):
        events = [
            encode_event("bench.fanout", {"w": index & 3, "x": index * 0.5, "origin": "JFK"}, None, BODY)
            for index in range(start, start + BATCH)
        ]
        columns = EventColumns.of(events, [len(BODY)] * BATCH)
        writer.write(HEAD.pack(columns.size, PUBLISH, BATCH) + columns.lengths + columns.blob)
        flying += 1
        if flying >= 8:
            await reader.readexactly(HEAD.size)
            flying -= 1
    await reader.readexactly(flying * HEAD.size)
    writer.close()


def floor_round() -> dict[str, float]:
    """The floor: see `bench.floor`."""
    with tempfile.TemporaryDirectory(prefix="gapless-floor-") as directory:
        port_file = Path(directory, "port")
        broker = spawn("bench.floor", "broker", str(port_file))
        try:
            while not port_file.exists() or not port_file.read_text():
                time.sleep(0.05)
            port = int(port_file.read_text())
            clients = [
                spawn("bench.floor", "client", str(port), str(k), str(PROCESSES), str(SUBSCRIPTIONS), str(EVENTS // 4))
                for k in range(PROCESSES)
            ]
            wait_ready(clients)
            for process in clients:
                assert process.stdin is not None
                process.stdin.write("go\n")
                process.stdin.flush()
            time.sleep(2)
            cpu, began = cpu_seconds(broker.pid), time.perf_counter()
            run_loop(floor_publish(port))
            figures = figures_of(0.0, clients, began)
            used = cpu_seconds(broker.pid) - cpu
            figures["broker_cpu_us_per_delivery"] = 1e6 * used / (SUBSCRIPTIONS * EVENTS // 4)
            return figures
        finally:
            broker.kill()
            broker.wait()


def run(*, json: bool) -> dict[str, float]:
    """Rounds of gapless and of the floor in turn; medians of both, and of their ratio."""
    rounds = []
    for _ in range(ROUNDS):
        with running_broker() as broker:
            ours = gapless_round(broker)
        floor = floor_round()
        ratios = {f"ratio_{key}": ours[key] / floor[key] for key in ours}
        rounds.append(ours | {f"floor_{key}": value for key, value in floor.items()} | ratios)
    figures = medians(rounds)
    if not json:
        table(f"fan-out: {SUBSCRIPTIONS} durable subscriptions × 25 %, batches of {BATCH}", figures)
    return figures


if __name__ == "__main__":
    client(sys.argv[2:])
