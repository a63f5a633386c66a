"""Shared subscriptions: consumers that hold and settle events, beside a plain subscription that acknowledges tokens.

Everything is in the log before a round begins, so that nothing but the consumers sets the pace. Each consumer is a
process of its own and works in batches of 64. The plain one acknowledges the token of each, which nothing answers.
Those of a shared one settle each durably; up to eight batches may be on their way to that. The waiting ones settle each
before they ask for the next: so they go as fast as the disk. Where 5 % are retried, every twentieth event is given back
when it comes first.

    python -m bench.shared client URL NAME MODE
"""

from __future__ import annotations

import asyncio
import selectors
import sys
import time
from typing import Any

import gapless
from bench.processes import Broker, medians, running_broker, spawn, table
from bench.rounds import in_turn
from gapless.cli.connecting import run as run_loop

TOPIC = "bench.shared"
BODY = b"x" * 200
EVENTS = 102_400
BATCH = 64
RETRIED = 20
"""One event in so many is given back, where any is."""
ROUNDS = 3
AHEAD = 8
"""So many settlements of a consumer may be without an answer."""
PLAIN, SHARED, RETRYING, WAITING, WAITING_RETRYING = "plain", "shared", "retrying", "waiting", "waiting_retrying"
KINDS = {
    "plain": (PLAIN, 1),
    "shared_1": (SHARED, 1),
    "shared_4": (SHARED, 4),
    "shared_4_retried": (RETRYING, 4),
    "shared_4_waiting": (WAITING, 4),
    "shared_4_waiting_retried": (WAITING_RETRYING, 4),
}
"""What the consumers do, and how many there are."""
BARS = {
    "ratio_shared_4_to_plain": ("shared_4", "plain", 0.35),
    "ratio_shared_4_to_shared_1": ("shared_4", "shared_1", 0.9),
    "ratio_shared_4_retried_to_shared_4": ("shared_4_retried", "shared_4", 0.9),
}
"""How much of the one's rate the other one's has to be, at least."""


# ------------------------------------------------------------------------------------- the consumers


class Progress:
    """What one consumer has settled; it is told now and then, with the time at which it was so."""

    def __init__(self) -> None:
        self._count = self._told = 0
        self._at = 0.0
        self._telling: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Tells it from now on."""
        self._telling = asyncio.create_task(self._tell())

    def add(self, count: int) -> None:
        """So many more are settled."""
        self._count += count
        self._at = time.monotonic()

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            if self._count > self._told:
                self._told = self._count
                print(self._count, self._at, time.process_time(), flush=True)


async def consume_plain(subscription: gapless.Subscription[Any, Any], progress: Progress) -> None:
    """Acknowledges the token of each batch."""
    async for batch in subscription.batches(max_events=BATCH):
        assert all(len(event.body) == len(BODY) for event in batch)
        await subscription.acknowledge(batch.token)
        progress.add(len(batch))


async def settle(jobs: gapless.SharedSubscription[Any, Any], batch: Any, progress: Progress, *, retries: bool) -> None:
    """Settles a batch durably."""
    again = [event for event in batch if event.properties["number"] % RETRIED == 0 and not event.redelivered]
    if not again or not retries:
        await jobs.acknowledge(batch)
        progress.add(len(batch))
        return
    done = [event for event in batch if event.properties["number"] % RETRIED or event.redelivered]
    await asyncio.gather(jobs.acknowledge(done), jobs.retry(again))
    progress.add(len(done))


async def consume_shared(jobs: gapless.SharedSubscription[Any, Any], progress: Progress, mode: str) -> None:
    """Settles each batch durably."""
    ahead = 1 if mode in {WAITING, WAITING_RETRYING} else AHEAD
    flying: set[asyncio.Task[None]] = set()
    async for batch in jobs.batches(max_events=BATCH):
        assert all(len(event.body) == len(BODY) for event in batch)
        flying.add(asyncio.create_task(settle(jobs, batch, progress, retries=mode in {RETRYING, WAITING_RETRYING})))
        if len(flying) >= ahead:
            done, flying = await asyncio.wait(flying, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()


async def consumer(url: str, name: str, mode: str) -> None:
    """One consumer, until it is killed. It begins when its standard input says so."""
    progress = Progress()
    async with gapless.connect(url, client_id=TOPIC) as connection, connection.session() as session:
        if mode == PLAIN:
            async with session.subscribe(TOPIC, name=name, start="earliest") as subscription:
                await _told_to_begin(progress)
                await consume_plain(subscription, progress)
        else:
            async with session.subscribe(TOPIC, name=name, start="earliest", shared=True) as jobs:
                await _told_to_begin(progress)
                await consume_shared(jobs, progress, mode)


async def _told_to_begin(progress: Progress) -> None:
    print(time.process_time(), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    progress.begin()


# ------------------------------------------------------------------------------------------- a round


async def fill(url: str) -> None:
    """Publishes what all of them consume."""
    async with gapless.connect(url) as connection, connection.session() as session:
        publisher = session.publisher(TOPIC)
        async for _ in publisher.send_all(gapless.Message(BODY, {"number": number}) for number in range(EVENTS)):
            pass


async def unsubscribe(url: str, name: str) -> None:
    """Removes what was consumed."""
    async with gapless.connect(url, client_id=TOPIC) as connection:
        await connection.unsubscribe(name)


def measure(broker: Broker, kind: str, number: int) -> dict[str, float]:
    """One kind, once."""
    mode, count = KINDS[kind]
    name = f"{kind}-{number}"
    clients = [spawn("bench.shared", "client", broker.url, name, mode) for _ in range(count)]
    try:
        cpu_before: list[float] = []
        for client in clients:
            assert client.stdout is not None
            cpu_before.append(float(client.stdout.readline()))
        broker_cpu, began = broker.cpu_seconds(), time.monotonic()
        for client in clients:
            assert client.stdin is not None
            client.stdin.write("go\n")
            client.stdin.flush()
        told = _until_all(clients)
        wall = max(at for _, at, _ in told) - began
        broker_cpu = broker.cpu_seconds() - broker_cpu
    finally:
        for client in clients:
            client.kill()
            client.wait()
    run_loop(unsubscribe(broker.url, name))
    client_cpu = sum(cpu - before for (_, _, cpu), before in zip(told, cpu_before, strict=True))
    return {
        f"{kind}_events_per_second": EVENTS / wall,
        f"{kind}_broker_cpu_us_per_event": 1e6 * broker_cpu / EVENTS,
        f"{kind}_client_cpu_us_per_event": 1e6 * client_cpu / EVENTS,
    }


def _until_all(clients: list[Any]) -> list[tuple[float, float, float]]:
    """Returns what each has told last, when all events are settled: how many, when, its processor time."""
    told: list[tuple[float, float, float]] = [(0.0, 0.0, 0.0)] * len(clients)
    with selectors.DefaultSelector() as selector:
        for which, client in enumerate(clients):
            selector.register(client.stdout, selectors.EVENT_READ, which)
        while sum(count for count, _, _ in told) < EVENTS:
            ready = selector.select(timeout=60)
            assert ready, f"nothing was settled for a minute: {told}"
            for key, _ in ready:
                line = clients[key.data].stdout.readline()
                assert line, "a consumer has ended by itself"
                count, at, cpu = map(float, line.split())
                told[key.data] = count, at, cpu
    return told


def measured(broker: Broker, number: int) -> dict[str, float]:
    """All kinds, once."""
    figures: dict[str, float] = {}
    for kind in in_turn(list(KINDS), number):
        figures |= measure(broker, kind, number)
    for ratio, (one, other, _) in BARS.items():
        figures[ratio] = figures[f"{one}_events_per_second"] / figures[f"{other}_events_per_second"]
    return dict(sorted(figures.items(), key=lambda pair: pair[0].startswith("ratio")))


def run(*, json: bool) -> dict[str, Any]:
    """The medians of several rounds, and of the ratios within a round."""
    with running_broker() as broker:
        run_loop(fill(broker.url))
        figures: dict[str, Any] = medians([measured(broker, number) for number in range(ROUNDS)])
    if not json:
        table(f"shared: {EVENTS:,} events of 200 bytes, settled durably by {BATCH}, beside tokens", figures)
    bars = {ratio: {"least": least, "holds": figures[ratio] >= least} for ratio, (_, _, least) in BARS.items()}
    return figures | {"bars": bars}


if __name__ == "__main__":
    run_loop(consumer(*sys.argv[2:]))
