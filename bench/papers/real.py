"""Networks of real node processes beside each other: all are up, with their subscribers, and work in turns or at once.

The subscribers are those of `bench.fanout`, and want a quarter of the events each. In its turn a network is published
to at a steady rate by four publishers, and what counts is the processor time that its nodes take for it. So what else
the machine does hits all of them alike.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import gapless
from bench.fanout import BODY, subscriber
from bench.network.costs import TOPIC, ends
from bench.network.nodes import Layout, Network, running_network
from bench.papers.experiment import Sizes
from bench.rounds import in_turn

PUBENDS: Final = 4
RATE: Final = 800
"""Events a second, as in the paper."""
PAUSE: Final = 0.05
"""Each publisher sends what is due so often."""
OPTIONS: Final = {"phb": {"pubends": [{"name": "p", "count": PUBENDS}]}}
SETTLING: Final = 6.0
"""Seconds until all nodes know what the subscriptions want, by a census."""
PATIENCE: Final = 60.0
AFTERWARDS: Final = 1.0
"""Seconds behind a turn in which what it has caused is still counted."""


@dataclass(frozen=True)
class Load:
    """What each network has to do."""

    subscribers: int
    """At each SHB."""
    seconds: float
    """How long a turn is."""
    turns: int

    @classmethod
    def of(cls, sizes: Sizes, subscribers: int) -> Load:
        """So many subscribers at each SHB."""
        return cls(sizes.count(subscribers, 4), sizes.pick(5, 0.5), sizes.count(6, 2))

    @property
    def events(self) -> int:
        """Published in a turn; a multiple of four in each portion."""
        return round(self.seconds / PAUSE) * round(RATE * PAUSE)

    @property
    def wanted(self) -> int:
        """By each subscriber, of all turns."""
        return self.turns * self.events // 4


@dataclass(frozen=True)
class Turn:
    """What came of one."""

    cpu: Mapping[str, float]
    """Seconds of processor time, by node."""
    events: int
    deliveries: int

    def of(self, role: str) -> float:
        """Seconds of all nodes with such a name."""
        return sum(used for node, used in self.cpu.items() if node.startswith(role))

    @property
    def all(self) -> float:
        """Seconds of all nodes."""
        return sum(self.cpu.values())


class Working:
    """A network with its subscribers and publishers."""

    def __init__(self, network: Network, load: Load, publishers: Sequence[gapless.Publisher]) -> None:
        self.network = network
        self._load = load
        self._publishers = publishers

    async def turn(self) -> Turn:
        """Publishes for a while."""
        load, nodes = self._load, self.network.nodes
        before = {name: node.cpu_seconds() for name, node in nodes.items()}
        began = time.perf_counter()
        portion = round(RATE * PAUSE) // len(self._publishers)
        for number in range(round(load.seconds / PAUSE)):
            await asyncio.sleep(began + number * PAUSE - time.perf_counter())
            await asyncio.gather(
                *(
                    publisher.send_batch([gapless.Message(BODY, {"w": value}) for value in _values(place, portion)])
                    for place, publisher in enumerate(self._publishers)
                )
            )
        await asyncio.sleep(AFTERWARDS)
        cpu = {name: node.cpu_seconds() - before[name] for name, node in nodes.items()}
        return Turn(cpu, load.events, len(ends(self.network)[1]) * load.subscribers * load.events // 4)


def _values(place: int, portion: int) -> list[int]:
    """The property `w` of the events of a portion: of all publishers together, as many of each."""
    return [(place * portion + number) % 4 for number in range(portion)]


@asynccontextmanager
async def _working(layout: Layout, load: Load) -> AsyncIterator[Working]:
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="gapless-papers-")))
        network = await stack.enter_async_context(running_network(layout, directory, with_proxies=False))
        source, _ = ends(network)
        connection = await stack.enter_async_context(gapless.connect(network.nodes[source].url, client_id="papers"))
        session = await stack.enter_async_context(connection.session())
        yield Working(network, load, [session.publisher(TOPIC, name=f"papers-{number}") for number in range(PUBENDS)])


@asynccontextmanager
async def side_by_side(layouts: Mapping[str, Layout], load: Load) -> AsyncIterator[dict[str, Working]]:
    """All networks up, and all subscribers there; in the end each must have got all that it wants."""
    async with AsyncExitStack() as stack:
        works = {name: await stack.enter_async_context(_working(layout, load)) for name, layout in layouts.items()}
        waiting: list[asyncio.Event] = []
        tasks = []
        for work in works.values():
            for place, sink in enumerate(ends(work.network)[1]):
                for number in range(load.subscribers * place, load.subscribers * (place + 1)):
                    waiting.append(asyncio.Event())
                    url = work.network.nodes[sink].url
                    tasks.append(asyncio.create_task(subscriber(url, number, load.wanted, waiting[-1].set)))
                    stack.callback(tasks[-1].cancel)
        for event in waiting:
            await event.wait()
        await asyncio.sleep(SETTLING)
        yield works
        _, left = await asyncio.wait(tasks, timeout=PATIENCE)
        if left:
            raise TimeoutError(f"{len(left)} subscribers have not got all events")


async def turns(works: Mapping[str, Working], count: int) -> dict[str, list[Turn]]:
    """So many of each, and each round begins with another one."""
    found: dict[str, list[Turn]] = {name: [] for name in works}
    for number in range(count):
        for name in in_turn(list(works), number):
            found[name].append(await works[name].turn())
    return found


async def at_once(works: Mapping[str, Working], count: int) -> dict[str, list[Turn]]:
    """So many of each, all networks at the same time."""
    found: dict[str, list[Turn]] = {name: [] for name in works}
    for _ in range(count):
        done = await asyncio.gather(*(work.turn() for work in works.values()))
        for name, turn in zip(works, done, strict=True):
            found[name].append(turn)
    return found
