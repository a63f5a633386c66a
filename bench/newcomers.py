"""Hundreds of new subscriptions from the earliest over a long log, and what one that is live notices of them.

A log is filled with small events of a thousand kinds. One subscription is live: how long its events take is measured
before, and while `--count` new ones come, each of which wants one kind. Counted are the time until all have what they
are owed, the live latency, and the broker's memory.

    python -m bench newcomers [--json] [--events 1500000] [--count 300]
    python -m bench.newcomers live URL
    python -m bench.newcomers new URL COUNT EACH
"""

from __future__ import annotations

import asyncio
import json as jsons
import os
import sys
import time
from argparse import ArgumentParser

import gapless
from bench.catchup import lines_of
from bench.processes import Broker, quantile, running_broker, spawn, table
from bench.slow import next_line
from gapless.cli.connecting import run as run_loop

KINDS = 1_000
BODY = b"x" * 60
BATCH = 1_000
FLYING = 8
RATE = 100
"""Live events a second."""
SECONDS = 8.0
"""How long the live latency is measured before the others come."""


async def fill(url: str, count: int) -> None:
    """Publishes so many small events, each of the next kind. A subscription that is not read keeps them."""
    async with gapless.connect(url) as connection, connection.session() as session:
        await connection.attach("keeper", "bench.newcomers", start="earliest")
        publisher = session.publisher("bench.newcomers")
        flying: set[asyncio.Task[object]] = set()
        for start in range(0, count, BATCH):
            batch = [gapless.Message(BODY, {"c": number % KINDS}) for number in range(start, start + BATCH)]
            flying.add(asyncio.create_task(publisher.send_batch(batch)))
            if len(flying) >= FLYING:
                _, flying = await asyncio.wait(flying, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait(flying)


async def live(url: str) -> None:
    """Publishes and receives at a steady rate, until it is told to say, for each event, when it came and its time."""
    times: list[tuple[int, int]] = []
    async with gapless.connect(url, client_id="live") as connection, connection.session() as session:
        publisher = session.publisher("bench.newcomers")
        async with session.subscribe(
            "bench.newcomers", name="live", selector="live = 1", start="latest"
        ) as subscription:

            async def publish() -> None:
                due = time.monotonic()
                while True:
                    sending = asyncio.ensure_future(publisher.send(b"", {"live": 1, "at": time.monotonic_ns()}))
                    due = max(due + 1 / RATE, time.monotonic())
                    await asyncio.sleep(due - time.monotonic())
                    if sending.done():
                        await sending

            async def receive() -> None:
                async for event in subscription:
                    now = time.monotonic_ns()
                    times.append((now, now - int(event.properties["at"])))

            tasks = [asyncio.create_task(publish()), asyncio.create_task(receive())]
            print("ready", flush=True)
            await next_line()
            for task in tasks:
                assert not task.done(), "it was live to the end"
                task.cancel()
    print(jsons.dumps(times), flush=True)


async def new(url: str, count: int, each: int) -> None:
    """So many subscriptions in one session, until each has as many events as there are of its kind."""
    async with gapless.connect(url, client_id=f"new-{os.getpid()}") as connection, connection.session() as session:

        async def one(kind: int) -> None:
            left = each
            async with session.subscribe(
                "bench.newcomers", name=f"n{kind}", selector=f"c = {kind}", start="earliest"
            ) as subscription:
                async for event in subscription:
                    assert event.properties["c"] == kind
                    left -= 1
                    if not left:
                        return

        await asyncio.gather(*map(one, range(count)))
    print("done", flush=True)


def measure(broker: Broker, events: int, count: int) -> dict[str, float]:
    """Fills the log, then measures before and while the new ones are there."""
    run_loop(fill(broker.url, events))
    os.sync()  # what was written for the filling is not to disturb what is measured
    watch = spawn("bench.newcomers", "live", broker.url)
    try:
        assert lines_of([watch]) == ["ready"]
        time.sleep(SECONDS)
        broker.forget_memory()
        began = time.monotonic_ns()
        others = spawn("bench.newcomers", "new", broker.url, str(count), str(events // KINDS))
        assert lines_of([others]) == ["done"]
        ended = time.monotonic_ns()
        others.wait()
        assert watch.stdin is not None
        watch.stdin.write("done\n")
        watch.stdin.flush()
        pairs = jsons.loads(lines_of([watch])[0])
    finally:
        watch.kill()
        watch.wait()
    before = [took / 1e6 for at, took in pairs if at < began]
    meanwhile = [took / 1e6 for at, took in pairs if began <= at <= ended]
    return {
        "seconds_until_all_are_caught_up": (ended - began) / 1e9,
        "live_p50_ms_before": quantile(before, 0.5),
        "live_p99_ms_before": quantile(before, 0.99),
        "live_p50_ms_meanwhile": quantile(meanwhile, 0.5),
        "live_p99_ms_meanwhile": quantile(meanwhile, 0.99),
        "broker_memory_bytes": float(broker.memory_bytes()),
    }


def add_options(parser: ArgumentParser) -> None:
    """Adds how long the log is, and how many come."""
    parser.add_argument("--events", type=int, default=1_500_000, help="in the log; a multiple of a thousand")
    parser.add_argument("--count", type=int, default=300, help="new subscriptions, a thousand at most")


def run(*, json: bool, events: int, count: int) -> dict[str, float]:
    """One round."""
    with running_broker() as broker:
        figures = measure(broker, max(events - events % BATCH, BATCH), min(count, KINDS))
    if not json:
        table(f"{count} new subscriptions over {events:,} events", figures)
    return figures


if __name__ == "__main__":
    if sys.argv[1] == "live":
        run_loop(live(sys.argv[2]))
    else:
        run_loop(new(sys.argv[2], *map(int, sys.argv[3:])))
