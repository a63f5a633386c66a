"""What a network costs beside one node, side by side in one run.

    one       PHB and SHB in one node, router `local`
    three     PHB – IB – SHB
    four      PHB – IB – 4 SHBs, with as many subscribers at each as `three` has in all

Latency is that of one event at a time, from `send` to the application, with volumes in memory: what a disk takes would
hide a hop. Processor time is that of nodes alone, on RocksDB, per event published and per delivery, with 100
subscribers (400 in `four`) that want a quarter each, at a rate that leaves nobody behind.
"""

from __future__ import annotations

import asyncio
import time
from argparse import ArgumentParser
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

import gapless
from bench.catchup import lines_of
from bench.fanout import BATCH, messages
from bench.network.consumers import clients_at_home
from bench.network.nodes import Layout, Network, running_network
from bench.processes import medians, spawn, table
from bench.rounds import in_turn
from gapless.cli.connecting import run as run_loop

TOPIC: Final = "bench.fanout"
BODY: Final = b"x" * 250
"""Of a single event: as many bytes as in the papers."""
SUBSCRIBERS: Final = 100
PINGS: Final = 300
RATE: Final = 1_500
"""Events a second."""
MEMORY: Final = {"storage": {"plugin": "memory", "path": ""}}


def behind_an_ib(shbs: int) -> Layout:
    """So many SHBs."""
    names = [f"shb-{number}" for number in range(shbs)]
    cells = {"phb": ["phb"], "middle": ["ib"], **{name: [name] for name in names}}
    return Layout(cells, [("phb", "middle"), *(("middle", name) for name in names)])


LAYOUTS: Final[Mapping[str, Layout]] = {
    "one": Layout({"both": ["both"]}, [], router="local"),
    "three": behind_an_ib(1),
    "four": behind_an_ib(4),
}
WITHOUT_A_DISK: Final[Mapping[str, Layout]] = {
    "one": replace(LAYOUTS["one"], options=MEMORY),
    "three": replace(LAYOUTS["three"], options=MEMORY),
}


async def latencies() -> dict[str, float]:
    """The median of one event at a time, in milliseconds, by layout: all are up, and take turns."""
    took: dict[str, list[float]] = {name: [] for name in WITHOUT_A_DISK}
    async with AsyncExitStack() as stack:
        pings = {}
        for name, layout in WITHOUT_A_DISK.items():
            directory = Path(stack.enter_context(TemporaryDirectory(prefix="gapless-network-")))
            network = await stack.enter_async_context(running_network(layout, directory, with_proxies=False))
            pings[name] = await stack.enter_async_context(pinging(network))
        for _ in range(PINGS):
            for name, ping in pings.items():
                took[name].append(await ping())
    return {name: median(times[PINGS // 10 :]) for name, times in took.items()}


@asynccontextmanager
async def pinging(network: Network) -> AsyncIterator[Callable[[], Awaitable[float]]]:
    """Sends an event from one end of a network to the other, as often as it is asked to."""
    source, sinks = ends(network)
    async with (
        gapless.connect(network.nodes[sinks[0]].url, client_id="ping") as there,
        there.session() as session,
        session.subscribe("bench.ping", name="ping") as subscription,
        gapless.connect(network.nodes[source].url) as here,
        here.session() as publishing,
    ):
        publisher = publishing.publisher("bench.ping")
        events = subscription.__aiter__()

        async def ping() -> float:
            began = time.perf_counter()
            sending = asyncio.ensure_future(publisher.send(BODY))
            await events.__anext__()
            took = 1e3 * (time.perf_counter() - began)
            await sending
            return took

        yield ping


def ends(network: Network) -> tuple[str, list[str]]:
    """Where events are published, and where they are consumed."""
    if "both" in network.nodes:
        return "both", ["both"]
    return "phb", [name for name in network.nodes if name.startswith("shb")]


async def fan_out(network: Network, events: int) -> dict[str, float]:
    """Publishes to all subscribers, and returns the processor time of each node."""
    source, sinks = ends(network)
    loop = asyncio.get_running_loop()
    wanted = str(events // 4)
    clients = []
    for sink in sinks:
        numbers = map(str, islice(clients_at_home(sink, sinks), SUBSCRIBERS))
        clients.append(spawn("bench.network.processes", network.nodes[sink].url, wanted, *numbers))
    try:
        assert set(await loop.run_in_executor(None, lines_of, clients)) == {"ready"}
        await asyncio.sleep(6.0)  # what the subscriptions want has to come to the PHB, and its census to the IB
        before = {name: node.cpu_seconds() for name, node in network.nodes.items()}
        await publish(network.nodes[source].url, events)
        await loop.run_in_executor(None, lines_of, clients)
        return {name: node.cpu_seconds() - before[name] for name, node in network.nodes.items()}
    finally:
        for client in clients:
            client.kill()
            client.wait()


async def publish(url: str, count: int) -> None:
    """Batches of 256, at a steady rate."""
    async with gapless.connect(url) as connection, connection.session() as session:
        publisher = session.publisher(TOPIC)
        began = time.perf_counter()
        for start in range(0, count, BATCH):
            await asyncio.sleep(began + start / RATE - time.perf_counter())
            await publisher.send_batch(messages(start))


async def one_round(number: int, events: int) -> dict[str, float]:
    """Every layout once, each round beginning with another one."""
    alone = await latencies()
    figures = {f"{name}_without_a_disk_median_ms": took for name, took in alone.items()}
    for name in in_turn(list(LAYOUTS), number):
        with TemporaryDirectory(prefix="gapless-network-") as directory:
            async with running_network(LAYOUTS[name], Path(directory), with_proxies=False) as network:
                cpu = await fan_out(network, events)
                shbs = len(ends(network)[1])
                deliveries = shbs * SUBSCRIBERS * events // 4
                figures[f"{name}_cpu_us_per_delivery"] = 1e6 * sum(cpu.values()) / deliveries
                if name in ("three", "four"):
                    figures[f"{name}_phb_cpu_us_per_event"] = 1e6 * cpu["phb"] / events
                    shb_cpu = sum(used for node, used in cpu.items() if node.startswith("shb"))
                    figures[f"{name}_deliveries_per_shb_cpu_second"] = deliveries / shb_cpu
    cpu_of = {name: figures[f"{name}_cpu_us_per_delivery"] for name in ("one", "three", "four")}
    hop = (alone["three"] - alone["one"]) / 2
    return figures | {
        "hop_median_ms": hop,
        "ratio_hop_to_one_node": hop / alone["one"],
        "ratio_cpu_per_delivery_three_to_one": cpu_of["three"] / cpu_of["one"],
        "ratio_phb_cpu_per_event_four_to_three": figures["four_phb_cpu_us_per_event"]
        / figures["three_phb_cpu_us_per_event"],
        "ratio_capacity_per_cpu_four_to_three": figures["four_deliveries_per_shb_cpu_second"]
        / figures["three_deliveries_per_shb_cpu_second"],
        "ratio_all_cpu_per_delivery_three_to_four": cpu_of["three"] / cpu_of["four"],
    }


def add_options(parser: ArgumentParser) -> None:
    """How much."""
    parser.add_argument("--events", type=int, default=25_600, metavar="N", help="published in each layout and round")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")


def run(*, json: bool, events: int, rounds: int) -> dict[str, float]:
    """The medians of several rounds."""
    figures = medians([run_loop(one_round(number, events)) for number in range(rounds)])
    if not json:
        table("what a network costs beside one node", figures)
    return figures
