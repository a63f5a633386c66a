"""Shared subscriptions: consumers that hold and settle events, beside a plain subscription that acknowledges tokens.

Everything is in the log before a round begins, so that nothing but the consumers sets the pace. Each consumer is a
process of its own and works in batches of 64. The plain one acknowledges the token of each, which nothing answers.
Those of a shared one settle each durably; up to eight batches may be on their way to that. The waiting ones settle each
before they ask for the next: so they go as fast as the disk. Where 5 % are retried, every twentieth event is given back
when it comes first.

With `--peers`, what others have for that is measured in the same rounds: consumer groups of Redis Streams and pull
consumers of NATS (`bench.peers.sharing`), four processes each, by 64, with as many settlements on their way. Each round
begins with another kind, and while one is measured the servers of the others have nothing to do.

    python -m bench.shared client URL NAME MODE
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import selectors
import sys
import tempfile
import time
from collections.abc import AsyncIterable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gapless
from bench.peers.measuring import Meter
from bench.peers.sharing import RIVALS, Jobs, Rival
from bench.peers.system import RaceError
from bench.processes import medians, running_broker, spawn, table
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
ALL_KINDS = KINDS | {name: (name, 4) for name in RIVALS}
"""Other systems' consumers too; what these do is their own."""
ALL_BARS = BARS | {
    "ratio_shared_4_to_redis_groups": ("shared_4", "redis_groups", 1.5),
    "ratio_shared_4_to_redis_groups_one_ahead": ("shared_4", "redis_groups_one_ahead", 1.5),
    "ratio_shared_4_to_nats_pull": ("shared_4", "nats_pull", 3.0),
    "ratio_shared_4_to_nats_pull_each_answered": ("shared_4", "nats_pull_each_answered", 3.0),
}


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
    retries = mode in {RETRYING, WAITING_RETRYING}

    async def settle_batch(batch: Any) -> None:
        await settle(jobs, batch, progress, retries=retries)

    ahead = 1 if mode in {WAITING, WAITING_RETRYING} else AHEAD
    await settle_all(jobs.batches(max_events=BATCH), lambda batch: [event.body for event in batch], settle_batch, ahead)


async def consume_as_rival(jobs: Jobs, progress: Progress) -> None:
    """The same with the consumer of another system."""

    async def settle_batch(batch: Any) -> None:
        await jobs.settle(batch)
        progress.add(len(batch))

    await settle_all(jobs.batches(BATCH), jobs.bodies, settle_batch, AHEAD)


async def settle_all(
    batches: AsyncIterable[Any],
    bodies: Callable[[Any], Sequence[bytes]],
    settle_batch: Callable[[Any], Coroutine[Any, Any, None]],
    ahead: int,
) -> None:
    """Settles each batch, with up to so many of them on their way to that."""
    flying: set[asyncio.Task[None]] = set()
    async for batch in batches:
        assert all(len(body) == len(BODY) for body in bodies(batch))
        flying.add(asyncio.create_task(settle_batch(batch)))
        if len(flying) >= ahead:
            done, flying = await asyncio.wait(flying, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()


async def consumer(url: str, name: str, mode: str) -> None:
    """One consumer, until it is killed. It begins when its standard input says so."""
    progress = Progress()
    if mode in RIVALS:
        async with RIVALS[mode].consumer(url, TOPIC, name, f"{name}-{os.getpid()}") as rival:
            await _told_to_begin(progress)
            await consume_as_rival(rival, progress)
        return
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


# ------------------------------------------------------------------------------------------- servers


@dataclass(frozen=True)
class Place:
    """A server that has all events in its log."""

    address: str
    cpu_seconds: Callable[[], float]
    """Processor time that it has used so far."""
    forget: Callable[[str], Coroutine[Any, Any, None]]
    """Removes what was consumed, by its name."""


@contextlib.contextmanager
def ours() -> Iterator[Place]:
    """A broker."""
    with running_broker() as broker:
        run_loop(fill(broker.url))
        yield Place(broker.url, broker.cpu_seconds, lambda name: unsubscribe(broker.url, name))


@contextlib.contextmanager
def a_rival(rival: Rival) -> Iterator[Place]:
    """Another system's server."""

    def fill(address: str) -> None:
        run_loop(rival.fill(address, TOPIC, BODY, EVENTS))

    with (
        tempfile.TemporaryDirectory(prefix="gapless-bench-") as directory,
        rival.filled(Path(directory), fill) as server,
    ):
        meter = Meter(server.pids)
        yield Place(
            server.address, lambda: meter.read().cpu_seconds, lambda name: rival.forget(server.address, TOPIC, name)
        )


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


# ------------------------------------------------------------------------------------------- a round


def measure(place: Place, kind: str, number: int) -> dict[str, float]:
    """One kind, once."""
    mode, count = ALL_KINDS[kind]
    name = f"{kind}-{number}"
    clients = [spawn("bench.shared", "client", place.address, name, mode) for _ in range(count)]
    try:
        cpu_before: list[float] = []
        for client in clients:
            assert client.stdout is not None
            cpu_before.append(float(client.stdout.readline()))
        broker_cpu, began = place.cpu_seconds(), time.monotonic()
        for client in clients:
            assert client.stdin is not None
            client.stdin.write("go\n")
            client.stdin.flush()
        told = _until_all(clients)
        wall = max(at for _, at, _ in told) - began
        broker_cpu = place.cpu_seconds() - broker_cpu
    finally:
        for client in clients:
            client.kill()
            client.wait()
    run_loop(place.forget(name))
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


def measured(places: dict[str, Place], number: int) -> dict[str, float]:
    """All kinds that have a place, once."""
    figures: dict[str, float] = {}
    for kind in in_turn(list(places), number):
        print(f"round {number + 1} of {ROUNDS}: {kind}", file=sys.stderr)
        figures |= measure(places[kind], kind, number)
    for ratio, (one, other, _) in ALL_BARS.items():
        if {one, other} <= places.keys():
            figures[ratio] = figures[f"{one}_events_per_second"] / figures[f"{other}_events_per_second"]
    return dict(sorted(figures.items(), key=lambda pair: pair[0].startswith("ratio")))


def run(*, json: bool, peers: bool = False) -> dict[str, Any]:
    """The medians of several rounds, and of the ratios within a round; beside other systems' consumers if so asked."""
    rivals = RIVALS if peers else {}
    missing = {name: why for name, rival in rivals.items() if (why := rival.racer.missing())}
    there = {name: rival for name, rival in rivals.items() if name not in missing}
    try:
        with contextlib.ExitStack() as stack:
            places = dict.fromkeys(KINDS, stack.enter_context(ours()))
            servers = {rival.system: rival for rival in there.values()}
            filled = {system: stack.enter_context(a_rival(rival)) for system, rival in servers.items()}
            places |= {name: filled[rival.system] for name, rival in there.items()}
            figures: dict[str, Any] = medians([measured(places, number) for number in range(ROUNDS)])
    except RaceError as error:
        sys.exit(str(error))
    if not json:
        table(f"shared: {EVENTS:,} events of 200 bytes, settled durably by {BATCH}, beside tokens", figures)
        for name, rival in there.items():
            print(f"{name}: {rival.racer.title}, {rival.racer.version()}. {rival.promise}")
    for name, why in missing.items():
        print(f"without {name}: {why}", file=sys.stderr)
    bars = {
        ratio: {"least": least, "holds": figures[ratio] >= least}
        for ratio, (_, _, least) in ALL_BARS.items()
        if ratio in figures
    }
    if peers:
        figures |= {
            "versions": {name: rival.racer.version() for name, rival in there.items()},
            "promises": {name: rival.promise for name, rival in there.items()},
            "missing": missing,
        }
    return figures | {"bars": bars}


if __name__ == "__main__":
    run_loop(consumer(*sys.argv[2:]))
