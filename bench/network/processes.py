"""Processes of one machine: the same load on one broker, on two, and on four with an IB between them.

    one    PHB and SHB in one node, router `local`
    two    two such nodes, which are neighbours
    four   four such nodes around an IB, as `gapless network FILE --processes 4` lays them out

Publishing: four publishers, spread evenly over the nodes, each with eight batches of 256 under way; nobody subscribes.
In `two` they publish once where their pubends are (*direct*), and once all through the first node (*through*). Fan-out:
the same publishers at a steady rate, and subscribers, spread evenly over the nodes and each at its home, that want a
quarter of everything.

    python -m bench.network.processes URL WANTED NUMBER …       a process of subscribers

The rates of a round share the machine with the clients and with whatever else runs there. So what counts is processor
time: the *busiest* node bounds what a layout can do, and its processor time per event, beside that of the one broker,
tells how much more that is with a core for each.
"""

from __future__ import annotations

import asyncio
import sys
import time
from argparse import ArgumentParser
from collections.abc import Mapping
from contextlib import AsyncExitStack
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import gapless
from bench.catchup import lines_of
from bench.fanout import BATCH, messages, subscriber
from bench.network.consumers import clients_at_home
from bench.network.nodes import Layout, Network, running_network
from bench.processes import medians, spawn, table
from bench.rounds import in_turn
from gapless.cli.connecting import run as run_loop

TOPIC: Final = "bench.fanout"
NAMES: Final = ("p0", "p1", "p3", "p4")
"""Of the publishers: of two nodes each gets two of them, of four each one."""
UNDER_WAY: Final = 8
WARM_EVENTS: Final = 16 * len(NAMES) * BATCH
"""So many before anything is measured: by then each publisher is where its pubend is."""
SUBSCRIBERS: Final = 40
SETTLE_S: Final = 8.0
"""Until every node knows what the others want; before that it passes everything on."""
RATE: Final = 3_000
"""Events a second."""


def around_an_ib(nodes: int) -> Layout:
    """So many nodes with both roles."""
    names = [f"both-{number}" for number in range(nodes)]
    cells = {"middle": ["ib"], **{name: [name] for name in names}}
    return Layout(cells, [("middle", name) for name in names])


LAYOUTS: Final[Mapping[str, Layout]] = {
    "one": Layout({"both": ["both"]}, [], router="local"),
    "two": Layout({"both-0": ["both-0"], "both-1": ["both-1"]}, [("both-0", "both-1")]),
    "four": around_an_ib(4),
}


class Publishers:
    """All publishers, on a connection each."""

    def __init__(self, publishers: list[gapless.Publisher]) -> None:
        self._publishers = publishers

    @classmethod
    async def opened(cls, stack: AsyncExitStack, urls: list[str]) -> Publishers:
        """Connected to the first of these addresses, and to others as they need them."""
        address = "gapless://" + ",".join(url.partition("://")[2] for url in urls)
        publishers = []
        for name in NAMES:
            connection = await stack.enter_async_context(gapless.connect(address))
            session = await stack.enter_async_context(connection.session())
            publishers.append(session.publisher(TOPIC, name=name))
        found = cls(publishers)
        await found.publish(WARM_EVENTS)
        return found

    async def publish(self, events: int) -> None:
        """Each its share, as fast as it goes."""
        await asyncio.gather(*(_share(publisher, events // len(NAMES)) for publisher in self._publishers))

    async def publish_steadily(self, events: int) -> None:
        """In turn."""
        began = time.perf_counter()
        for number, start in enumerate(range(0, events, BATCH)):
            await asyncio.sleep(began + start / RATE - time.perf_counter())
            await self._publishers[number % len(NAMES)].send_batch(messages(start))


async def _share(publisher: gapless.Publisher, events: int) -> None:
    flying: set[asyncio.Task[object]] = set()
    for start in range(0, events, BATCH):
        flying.add(asyncio.create_task(publisher.send_batch(messages(start))))
        if len(flying) >= UNDER_WAY:
            _, flying = await asyncio.wait(flying, return_when=asyncio.FIRST_COMPLETED)
    if flying:
        await asyncio.wait(flying)


async def publishing(network: Network, urls: list[str], events: int) -> dict[str, float]:
    """Events a second, and processor time per event: of all nodes, and of the busiest."""
    async with AsyncExitStack() as stack:
        publishers = await Publishers.opened(stack, urls)
        before, began = cpu_of(network), time.perf_counter()
        await publishers.publish(events)
        took = time.perf_counter() - began
        used = since(before, network)
    return {
        "events_per_second": events / took,
        "cpu_us_per_event": 1e6 * sum(used.values()) / events,
        "busiest_cpu_us_per_event": 1e6 * max(used.values()) / events,
    }


async def fan_out(network: Network, urls: list[str], events: int) -> dict[str, float]:
    """Processor time per delivery: of all nodes, of the busiest that has roles, and of the IB per event."""
    loop = asyncio.get_running_loop()
    share = SUBSCRIBERS // len(urls)
    clients = []
    names = [name for name in network.nodes if name.startswith("both")]
    for name, url in zip(names, urls, strict=True):
        numbers = map(str, islice(clients_at_home(name, names), share))
        clients.append(spawn("bench.network.processes", url, str((WARM_EVENTS + events) // 4), *numbers))
    try:
        async with AsyncExitStack() as stack:
            assert set(await loop.run_in_executor(None, lines_of, clients)) == {"ready"}
            await asyncio.sleep(SETTLE_S)
            publishers = await Publishers.opened(stack, urls)
            await asyncio.sleep(1.0)
            before = cpu_of(network)
            await publishers.publish_steadily(events)
            await loop.run_in_executor(None, lines_of, clients)
            used = since(before, network)
    finally:
        for client in clients:
            client.kill()
            client.wait()
    deliveries = SUBSCRIBERS * events // 4
    middle = used.pop("ib", 0.0)
    return {
        "cpu_us_per_delivery": 1e6 * (sum(used.values()) + middle) / deliveries,
        "busiest_cpu_us_per_delivery": 1e6 * max(used.values()) / deliveries,
        "ib_cpu_us_per_event": 1e6 * middle / events,
    }


async def subscribers(url: str, wanted: int, numbers: list[int]) -> None:
    """The subscribers of one client process."""
    waiting = set(numbers)

    async def consume(number: int) -> None:
        def ready() -> None:
            waiting.discard(number)
            if not waiting:
                print("ready", flush=True)

        await subscriber(url, number, wanted, ready)

    await asyncio.gather(*map(consume, numbers))
    print("done", flush=True)


def cpu_of(network: Network) -> dict[str, float]:
    """The processor time of each node so far."""
    return {name: node.cpu_seconds() for name, node in network.nodes.items()}


def since(before: Mapping[str, float], network: Network) -> dict[str, float]:
    """What each has used since."""
    return {name: used - before[name] for name, used in cpu_of(network).items()}


async def one_round(number: int, events: int) -> dict[str, float]:
    """Every layout once, each round beginning with another one."""
    figures: dict[str, float] = {}
    for name in in_turn(list(LAYOUTS), number):
        with TemporaryDirectory(prefix="gapless-network-") as directory:
            async with running_network(LAYOUTS[name], Path(directory), with_proxies=False) as network:
                await asyncio.sleep(SETTLE_S)
                urls = [node.url for each, node in network.nodes.items() if each.startswith("both")]
                ways = {"publish": urls, "through": urls[:1]} if name == "two" else {"publish": urls}
                for way, addresses in ways.items():
                    found = await publishing(network, addresses, events)
                    figures |= {f"{name}_{way}_{key}": value for key, value in found.items()}
                found = await fan_out(network, urls, events // 8)
                figures |= {f"{name}_fanout_{key}": value for key, value in found.items() if value}
    publish, deliver = "publish_busiest_cpu_us_per_event", "fanout_busiest_cpu_us_per_delivery"
    return figures | {
        "ratio_rate_two_to_one": figures["two_publish_events_per_second"] / figures["one_publish_events_per_second"],
        "ratio_cpu_through_to_direct": figures["two_through_cpu_us_per_event"]
        / figures["two_publish_cpu_us_per_event"],
        **{
            f"ratio_{what}_with_a_core_each_{name}_to_one": figures[f"one_{key}"] / figures[f"{name}_{key}"]
            for what, key in (("publish", publish), ("fanout", deliver))
            for name in ("two", "four")
        },
    }


def add_options(parser: ArgumentParser) -> None:
    """How much."""
    parser.add_argument("--events", type=int, default=204_800, metavar="N", help="published in each layout and round")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")


def run(*, json: bool, events: int, rounds: int) -> dict[str, float]:
    """The medians of several rounds, and of the ratios within a round."""
    figures = medians([run_loop(one_round(number, events)) for number in range(rounds)])
    if not json:
        table("one broker, and processes of one machine", figures)
    return figures


if __name__ == "__main__":
    run_loop(subscribers(sys.argv[1], int(sys.argv[2]), [int(number) for number in sys.argv[3:]]))
