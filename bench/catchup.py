"""All subscribers catch up at once: 100 durable subscriptions of a quarter each (DSN'03, 5.3).

First live: everybody is connected while events are published as fast as they are delivered. Then everybody
is away while as many are published again, at the rate of before. Then all come back at once. What counts are
ratios within one round: the rate of deliveries to that of before, the time until the last has caught up to
the time that was missed, and what the PHB reads of its log to what was missing: once, not once for each.

    python -m bench.catchup client URL FIRST STEP TOTAL WANTED
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from dataclasses import dataclass

import gapless
from bench.fanout import BATCH, messages, take_quarter
from bench.processes import Broker, medians, running, running_broker, table
from gapless.cli.connecting import run as run_loop
from gapless.core.gauges import values_by
from gapless_phb.core.gauges import LOG_BYTES, READ_BYTES

SUBSCRIPTIONS = 100
PROCESSES = 4
QUICK_EVENTS = 51_200
FULL_EVENTS = 409_600
ROUNDS = 3


# ------------------------------------------------------------------------------------ the subscribers


async def subscriber(url: str, number: int, wanted: int, barrier: Barrier) -> None:
    """Consumes its quarter of what is published while it is there, and acknowledges; leaves; comes back for more."""
    for _ in range(2):
        async with (
            gapless.connect(url, client_id=f"bench-{number}", wait=True) as connection,
            connection.session() as session,
            session.subscribe("bench.catchup", name=f"s{number}", selector=f"w = {number & 3}") as subscription,
        ):
            await barrier.ready()
            assert await take_quarter(subscription, number, wanted) == wanted
        await barrier.gone()


class Barrier:
    """Where the subscribers of a process wait for each other, and for the word to come back."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._ready = self._gone = 0
        self._go = asyncio.Event()
        self._cpu = time.process_time()

    async def ready(self) -> None:
        """One is connected; when all are, events may come."""
        self._ready += 1
        if self._ready == self._count:
            self._cpu = time.process_time()
        if self._ready % self._count == 0:
            print("ready", flush=True)

    async def gone(self) -> None:
        """One has what it wanted and has left; the last one says what it cost. They come back together."""
        self._gone += 1
        if self._gone == self._count:
            print(time.process_time() - self._cpu, flush=True)
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
            self._cpu = time.process_time()
            self._gone = 0
            self._go.set()
        await self._go.wait()


async def subscribers(url: str, first: int, step: int, total: int, wanted: int) -> None:
    """The subscribers of one client process."""
    numbers = range(first, total, step)
    barrier = Barrier(len(numbers))
    await asyncio.gather(*(subscriber(url, number, wanted, barrier) for number in numbers))


def client(arguments: list[str]) -> None:
    """A client process."""
    url, *numbers = arguments
    run_loop(subscribers(url, *map(int, numbers)))


# ------------------------------------------------------------------------------------------- one round


async def publish(url: str, count: int, seconds: float) -> float:
    """Batches of 256, eight in flight, spread over so many seconds; returns how long it took."""
    began = time.perf_counter()
    async with gapless.connect(url) as connection, connection.session() as session:
        publisher = session.publisher("bench.catchup")
        flying: set[asyncio.Task[object]] = set()
        for start in range(0, count, BATCH):
            await asyncio.sleep(began + seconds * start / count - time.perf_counter())
            flying.add(asyncio.create_task(publisher.send_batch(messages(start))))
            if len(flying) >= 8:
                _, flying = await asyncio.wait(flying, return_when=asyncio.FIRST_COMPLETED)
        if flying:
            await asyncio.wait(flying)
    return time.perf_counter() - began


def go(clients: list[subprocess.Popen[str]]) -> None:
    """They may come back now, or leave for good."""
    for process in clients:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()


def cpu_of(clients: list[subprocess.Popen[str]]) -> float:
    """Waits until all of them have what they wanted; returns the processor time they used for it."""
    return sum(float(line) for line in lines_of(clients))


def lines_of(clients: list[subprocess.Popen[str]]) -> list[str]:
    """The next line of each."""
    lines = []
    for process in clients:
        assert process.stdout is not None
        lines.append(process.stdout.readline().strip())
    return lines


@dataclass(frozen=True)
class Reading:
    """The PHB's log, and what was read of it."""

    log: int
    read: int


def reading(broker: Broker) -> Reading:
    """Of all its pubends."""
    gauges = broker.gauges()
    log, read = (values_by(gauges, family, "pubend").values() for family in (LOG_BYTES, READ_BYTES))
    return Reading(int(sum(log)), int(sum(read)))


def one_round(events: int) -> dict[str, float]:
    """Live, away, and back."""
    deliveries = SUBSCRIPTIONS * events // 4
    wanted = events // 4
    numbers = (str(PROCESSES), str(SUBSCRIPTIONS), str(wanted))
    with running_broker() as broker, running("bench.catchup", broker.url, *numbers) as clients:
        assert set(lines_of(clients)) == {"ready"}
        cpu, began = broker.cpu_seconds(), time.perf_counter()
        run_loop(publish(broker.url, events, 0.0))
        client_cpu = cpu_of(clients)
        live, live_cpu = time.perf_counter() - began, broker.cpu_seconds() - cpu
        before = reading(broker)
        missed = run_loop(publish(broker.url, events, live))
        away = reading(broker)
        broker.forget_memory()
        memory = broker.memory_bytes()
        cpu, began = broker.cpu_seconds(), time.perf_counter()
        go(clients)
        assert set(lines_of(clients)) == {"ready"}
        reconnect = time.perf_counter() - began
        catchup_client_cpu = cpu_of(clients)
        catchup, catchup_cpu = time.perf_counter() - began, broker.cpu_seconds() - cpu
        memory = broker.memory_bytes() - memory
        after = reading(broker)
        go(clients)
        for process in clients:
            process.wait(timeout=30)
    return {
        "live_deliveries_per_second": deliveries / live,
        "catchup_deliveries_per_second": deliveries / catchup,
        "ratio_catchup_rate_to_live_rate": live / catchup,
        "missed_seconds": missed,
        "reconnect_seconds": reconnect,
        "catchup_seconds": catchup,
        "ratio_catchup_time_to_time_missed": catchup / missed,
        "missed_log_bytes": away.log - before.log,
        "phb_read_bytes": after.read - away.read,
        "ratio_phb_reads_to_missing": (after.read - away.read) / (away.log - before.log),
        "live_broker_cpu_us_per_delivery": 1e6 * live_cpu / deliveries,
        "catchup_broker_cpu_us_per_delivery": 1e6 * catchup_cpu / deliveries,
        "live_client_cpu_us_per_delivery": 1e6 * client_cpu / deliveries,
        "catchup_client_cpu_us_per_delivery": 1e6 * catchup_client_cpu / deliveries,
        "catchup_memory_growth_bytes": memory,
    }


def run(*, json: bool, full: bool = False) -> dict[str, float]:
    """The medians of several rounds; of one round with eight times the events when it is to be a full one."""
    events = FULL_EVENTS if full else QUICK_EVENTS
    figures = medians([one_round(events) for _ in range(1 if full else ROUNDS)])
    if not json:
        table(f"catch-up: {SUBSCRIPTIONS} durable subscriptions × 25 % of {events:,} events, all at once", figures)
    return figures


if __name__ == "__main__":
    client(sys.argv[2:])
