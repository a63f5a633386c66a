"""One subscriber that takes a thousandth of what it is sent, among a hundred: what the others notice of it.

Steady events, and a hundred durable subscriptions that want a quarter each and take it at once. In every
second phase another one is there that is far behind, wants as much, and takes one event of a thousand. What
counts is the time from the publisher to the application in the phases with it, beside those without.

    python -m bench.slow client URL FIRST STEP TOTAL
    python -m bench.slow slow URL
"""

from __future__ import annotations

import asyncio
import contextlib
import json as jsons
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from math import log
from typing import Any

import gapless
from bench.catchup import lines_of
from bench.processes import Broker, running, running_broker, spawn, table
from gapless.cli.connecting import run as run_loop
from gapless.core.gauges import value_of
from gapless_shb.core.state.gauges import DEMOTED, PROMOTED

SUBSCRIPTIONS = 100
PROCESSES = 4
RATE = 1_000
BATCH = 10
BODY = b"x" * 200
BEHIND = 80_000
"""How many events the slow one is behind at first: more than it gives credit for."""
PHASES = 4
"""Of each kind, in turn."""
SECONDS = 5.0
SLOWNESS = 1_000
WITHOUT, WITH, BEFORE = range(3)
GRAIN = 1.02
"""Times are counted in classes, each so much above the one before."""


# ------------------------------------------------------------------------------------ the subscribers


async def subscriber(url: str, number: int, times: Counter[tuple[int, int]], ready: Callable[[], None]) -> None:
    """Counts how long each event took, by phase."""
    async with (
        gapless.connect(url, client_id=f"bench-{number}", wait=True) as connection,
        connection.session() as session,
        session.subscribe("bench.slow", name=f"s{number}", selector=f"w = {number & 3}") as subscription,
    ):
        ready()
        async for batch in subscription.batches(max_events=4096):
            assert isinstance(batch, gapless.Batch)
            now = time.monotonic_ns()
            for event in batch:
                took = now - int(event.properties["at"])
                times[int(event.properties["phase"]), int(log(max(took, 1), GRAIN))] += 1
            await subscription.acknowledge(batch.token)


async def subscribers(url: str, first: int, step: int, total: int) -> None:
    """The subscribers of one client process, until it is told to say what they counted."""
    numbers = range(first, total, step)
    times: Counter[tuple[int, int]] = Counter()
    waiting = len(numbers)

    def ready() -> None:
        nonlocal waiting
        waiting -= 1
        if not waiting:
            print("ready", flush=True)

    tasks = [asyncio.create_task(subscriber(url, number, times, ready)) for number in numbers]
    await next_line()
    for task in tasks:
        task.cancel()
    print(jsons.dumps([[*key, count] for key, count in times.items()]), flush=True)


async def slow(url: str) -> None:
    """The slow one: comes and goes with each line."""
    async with gapless.connect(url, client_id="bench-slow", wait=True) as connection, connection.session() as session:
        while True:
            async with session.subscribe("bench.slow", name="slow", selector="w = 0") as subscription:
                print("there", flush=True)
                taking = asyncio.create_task(take_slowly(subscription))
                await next_line()
                taking.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await taking
            print("gone", flush=True)
            await next_line()


async def take_slowly(subscription: gapless.Subscription[gapless.Event, Any]) -> None:
    """One event, where the others take a thousand."""
    async for _ in subscription:
        await subscription.acknowledge()
        await asyncio.sleep(SLOWNESS / (RATE / 4))


async def next_line() -> None:
    """Waits for the word."""
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


# ------------------------------------------------------------------------------------------- the run


async def publish(url: str, count: int, rate: float, phase: int) -> None:
    """Small batches at a steady rate, each event with the time it was sent."""
    async with gapless.connect(url) as connection, connection.session() as session:
        publisher = session.publisher("bench.slow")
        began = time.perf_counter()
        flying: set[asyncio.Task[object]] = set()
        for start in range(0, count, BATCH):
            await asyncio.sleep(began + start / rate - time.perf_counter())
            at = time.monotonic_ns()
            batch = [
                gapless.Message(BODY, {"w": index & 3, "at": at, "phase": phase})
                for index in range(start, start + BATCH)
            ]
            flying.add(asyncio.create_task(publisher.send_batch(batch)))
            if len(flying) >= 64:
                _, flying = await asyncio.wait(flying, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait(flying)


def phases(broker: Broker, guest: subprocess.Popen[str]) -> dict[int, int]:
    """Phases in turn, the slow one being there in every second; returns the most memory of each kind."""
    memory = {WITHOUT: 0, WITH: 0}
    for number in range(2 * PHASES):
        phase = WITH if number % 2 else WITHOUT
        turn(guest, "there" if phase == WITH else "gone")
        broker.forget_memory()
        run_loop(publish(broker.url, int(RATE * SECONDS), RATE, phase))
        memory[phase] = max(memory[phase], broker.memory_bytes())
    return memory


def turn(guest: subprocess.Popen[str], answer: str) -> None:
    """The slow one comes, or goes."""
    assert guest.stdin is not None
    assert guest.stdout is not None
    guest.stdin.write("turn\n")
    guest.stdin.flush()
    assert guest.stdout.readline().strip() == answer


def counted(clients: list[subprocess.Popen[str]]) -> dict[int, Counter[int]]:
    """What all subscribers counted, by phase."""
    for process in clients:
        assert process.stdin is not None
        process.stdin.write("done\n")
        process.stdin.flush()
    times: dict[int, Counter[int]] = {phase: Counter() for phase in (WITHOUT, WITH, BEFORE)}
    for line in lines_of(clients):
        for phase, took, count in jsons.loads(line):
            times[phase][took] += count
    return times


def quantile(times: Counter[int], share: float) -> float:
    """Of the times counted, in milliseconds."""
    left = share * times.total()
    for took in sorted(times):
        left -= times[took]
        if left <= 0:
            return float(GRAIN ** (took + 1) / 1e6)
    return 0.0


def run(*, json: bool) -> dict[str, float]:
    """All phases, once: each kind has several."""
    with (
        running_broker() as broker,
        running("bench.slow", broker.url, str(PROCESSES), str(SUBSCRIPTIONS)) as clients,
    ):
        assert set(lines_of(clients)) == {"ready"}
        guest = spawn("bench.slow", "slow", broker.url)
        try:
            assert lines_of([guest]) == ["there"]
            run_loop(publish(broker.url, BEHIND, 1e9, BEFORE))
            memory = phases(broker, guest)
        finally:
            guest.kill()
            guest.wait()
        times = counted(clients)
        gauges = broker.gauges()
    p50, p99 = ({phase: quantile(times[phase], share) for phase in (WITHOUT, WITH)} for share in (0.5, 0.99))
    figures = {
        "p50_ms_without": p50[WITHOUT],
        "p50_ms_with_slow": p50[WITH],
        "p99_ms_without": p99[WITHOUT],
        "p99_ms_with_slow": p99[WITH],
        "ratio_p99_with_to_without": p99[WITH] / p99[WITHOUT],
        "broker_memory_bytes_without": float(memory[WITHOUT]),
        "broker_memory_bytes_with_slow": float(memory[WITH]),
        "ratio_memory_with_to_without": memory[WITH] / memory[WITHOUT],
        "demoted": float(value_of(gauges, DEMOTED)),
        "promoted": float(value_of(gauges, PROMOTED)),
    }
    if not json:
        table(f"one slow subscriber among {SUBSCRIPTIONS}, {RATE:,} events a second", figures)
    return figures


if __name__ == "__main__":
    if sys.argv[1] == "slow":
        run_loop(slow(sys.argv[2]))
    else:
        run_loop(subscribers(sys.argv[2], *map(int, sys.argv[3:])))
