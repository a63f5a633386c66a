"""What it costs to leave the position to the broker: `AckMode.AUTO` beside `DUPS_OK` and tokens.

Everything is in the log before a round begins, so that nothing but the consumers sets the pace. Each subscriber has a
session of its own and wants all events of its topic: as many as it consumes, so that none is sent in vain. All that are
of one kind begin together.

They share one connection, as those of one application do; `AUTO` is measured once more with a connection for each.

All commits of a turn share one sync. How much that gains depends on how long a sync takes: so `AUTO` is measured once
more with a broker whose syncs take three milliseconds longer, as on a disk that is reached over a network.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass

import gapless
from bench.processes import Broker, medians, running_broker, table
from gapless.cli.connecting import run as run_loop

TOPIC = "bench.committing"
BODY = b"x" * 200
BATCH = 256
ROUNDS = 3
SLOWER_SYNC = 0.003
"""Seconds."""


@dataclass(frozen=True)
class Kind:
    """Some subscribers that consume alike."""

    name: str
    ack_mode: gapless.AckMode
    subscribers: int
    events: int
    """How many each of them consumes."""
    batches: bool = False
    alone: bool = False
    """Whether each has a connection of its own."""


AUTO = (
    Kind("auto_25", gapless.AckMode.AUTO, 25, 400),
    Kind("auto_200", gapless.AckMode.AUTO, 200, 400),
    Kind("auto_alone_25", gapless.AckMode.AUTO, 25, 400, alone=True),
    Kind("auto_alone_200", gapless.AckMode.AUTO, 200, 400, alone=True),
)
BATCHES = (
    Kind("auto_batches_25", gapless.AckMode.AUTO, 25, 20_480, batches=True),
    Kind("token_batches_25", gapless.AckMode.TOKEN, 25, 20_480, batches=True),
    Kind("dups_ok_25", gapless.AckMode.DUPS_OK, 25, 20_480),
)
RATIOS = (
    ("auto_200", "auto_25"),
    ("auto_alone_200", "auto_alone_25"),
    ("auto_200", "auto_alone_200"),
    ("auto_batches_25", "token_batches_25"),
)


async def fill(url: str, kinds: Sequence[Kind]) -> None:
    """Publishes what all of them consume."""
    async with gapless.connect(url) as connection, connection.session() as session:
        for count in {kind.events for kind in kinds}:
            publisher = session.publisher(f"{TOPIC}.{count}")
            async for _ in publisher.send_all(gapless.Message(BODY, {"number": number}) for number in range(count)):
                pass


async def consume(
    connection: gapless.Connection, name: str, kind: Kind, attached: asyncio.Semaphore, begin: asyncio.Event
) -> None:
    """One subscriber, from the first event on."""
    async with (
        connection.session(ack_mode=kind.ack_mode) as session,
        session.subscribe(f"{TOPIC}.{kind.events}", name=name, start="earliest") as subscription,
    ):
        attached.release()
        await begin.wait()
        left = kind.events
        if not kind.batches:
            async for _ in subscription:
                left -= 1
                if not left:
                    return
        async for batch in subscription.batches(max_events=BATCH):
            assert isinstance(batch, gapless.Batch)
            if kind.ack_mode is gapless.AckMode.TOKEN:
                await subscription.acknowledge(batch.token)
            left -= len(batch)
            if left <= 0:
                return


async def measure(broker: Broker, kinds: Sequence[Kind], number: int) -> dict[str, float]:
    """One round of some kinds, by turns."""
    figures: dict[str, float] = {}
    for kind in kinds if number % 2 else reversed(kinds):
        attached, begin = asyncio.Semaphore(0), asyncio.Event()
        names = [f"{kind.name}-{number}-{which}" for which in range(kind.subscribers)]
        async with contextlib.AsyncExitStack() as stack:
            connections = [
                await stack.enter_async_context(gapless.connect(broker.url, client_id=TOPIC))
                for _ in (names if kind.alone else names[:1])
            ]
            consumers = [
                asyncio.create_task(consume(connection, name, kind, attached, begin))
                for name, connection in zip(names, itertools.cycle(connections))
            ]
            for _ in consumers:
                await attached.acquire()
            broker_cpu, client_cpu, began = broker.cpu_seconds(), time.process_time(), time.perf_counter()
            begin.set()
            await asyncio.gather(*consumers)
            count, wall = kind.subscribers * kind.events, time.perf_counter() - began
            figures[f"{kind.name}_events_per_second"] = count / wall
            figures[f"{kind.name}_broker_cpu_us_per_event"] = 1e6 * (broker.cpu_seconds() - broker_cpu) / count
            figures[f"{kind.name}_client_cpu_us_per_event"] = 1e6 * (time.process_time() - client_cpu) / count
            for name in names:
                await connections[0].unsubscribe(name)
    rate = {kind.name: figures[f"{kind.name}_events_per_second"] for kind in kinds}
    for one, other in RATIOS:
        if one in rate and other in rate:
            figures[f"ratio_{one}_to_{other}"] = rate[one] / rate[other]
    return figures


def measured(kinds: Sequence[Kind], slower_sync: float) -> dict[str, float]:
    """The medians of several rounds with a broker of its own, and of the ratios within a round."""
    with running_broker(slower_sync=slower_sync) as broker:
        run_loop(fill(broker.url, kinds))
        return medians([run_loop(measure(broker, kinds, number)) for number in range(ROUNDS)])


def run(*, json: bool) -> dict[str, float]:
    """All kinds on this disk, and `AUTO` on a slower one."""
    figures = measured(AUTO, 0.0) | measured(BATCHES, 0.0)
    figures |= {f"slower_sync_{name}": figure for name, figure in measured(AUTO, SLOWER_SYNC).items()}
    if not json:
        table("committing: 200-byte events, the position at the broker and elsewhere", figures)
    return figures
