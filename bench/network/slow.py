"""An SHB whose link carries a third of the stream for a minute, beside two whose links are as before.

    PHB – IB – {slow, two others}: each wants everything

What counts: how much of that link carries events that are new there, how much waits for it, whether its SHB catches up
afterwards, and what the others notice: ratios of the slow minute to the time before it.
"""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Final

import gapless
from bench.network.consumers import clients_at_home, quantile
from bench.network.nodes import Layout, Network, running_network
from bench.processes import table
from gapless.cli.connecting import run as run_loop
from gapless.core.gauges import value_of
from gapless.core.network.greeting import LinkSizes
from gapless.core.network.peers import LINK_WAITING
from gapless.core.stream.events import encode_event

SHBS: Final = ("shb-1", "shb-2", "shb-3")
SLOW: Final = SHBS[0]
LAYOUT: Final = Layout(
    {"phb": ["phb"], "middle": ["ib"], **{shb: [shb] for shb in SHBS}},
    [("phb", "middle"), *(("middle", shb) for shb in SHBS)],
)
TOPIC: Final = "bench.slow"
BODY: Final = b"x" * 1000
BATCH: Final = 20
SHARE: Final = 3
"""The slow link carries one of so many bytes."""
PATIENCE: Final = 60.0


class Reader:
    """One durable subscription to everything: when each event was sent, when it came, and how many came when."""

    def __init__(self, shb: str) -> None:
        self._name = f"all-{shb}"
        self._client_id = f"bench-{next(clients_at_home(shb, SHBS))}"
        self.came: list[tuple[float, float]] = []
        """When each was sent, and when it came."""

    async def run(self, url: str, ready: asyncio.Event) -> None:
        """Until it is cancelled; every event must be the next one."""
        connecting = gapless.connect(url, client_id=self._client_id, wait=True)
        async with (
            connecting as connection,
            connection.session() as session,
            session.subscribe(TOPIC, name=self._name) as subscription,
        ):
            ready.set()
            async for batch in subscription.batches(max_events=4096):
                assert isinstance(batch, gapless.Batch)
                now = monotonic()
                for event in batch:
                    assert event.properties["n"] == len(self.came), "an event is missing"
                    self.came.append((float(event.properties["at"]), now))
                await subscription.acknowledge(batch.token)

    def in_phase(self, start: float, end: float) -> list[tuple[float, float]]:
        """What was sent in some time."""
        return [pair for pair in self.came if start <= pair[0] < end]


class Slow:
    """One run."""

    def __init__(self, seconds: float, rate: float) -> None:
        self._seconds = seconds
        self._rate = rate
        self._readers = {shb: Reader(shb) for shb in SHBS}
        self._waiting = 0
        """The most that waited on the slow link."""
        self._stopped = False
        self._sent = 0

    async def run(self, directory: Path) -> dict[str, float]:
        """All of it."""
        async with running_network(LAYOUT, directory, with_proxies=True) as network:
            ready = {shb: asyncio.Event() for shb in SHBS}
            tasks = [
                asyncio.create_task(reader.run(network.nodes[shb].url, ready[shb]))
                for shb, reader in self._readers.items()
            ]
            try:
                for event in ready.values():
                    await event.wait()
                tasks.append(asyncio.create_task(self._publish(network.nodes["phb"].url)))
                script = asyncio.create_task(self._script(network))
                await asyncio.wait([script, *tasks], return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    if task.done():
                        task.result()
                return await script
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)

    async def _script(self, network: Network) -> dict[str, float]:
        link = network.link("ib", SLOW)
        await asyncio.sleep(5.0)
        before = monotonic()
        passed = link.passed(SLOW)
        await asyncio.sleep(self._seconds / 2)
        slow = monotonic()
        needed = (link.passed(SLOW) - passed) / (slow - before)
        carried = needed / SHARE
        link.slow(SLOW, carried)
        passed, had = link.passed(SLOW), len(self._readers[SLOW].came)
        await self._watch(network, slow + self._seconds)
        fast = monotonic()
        passed, got = link.passed(SLOW) - passed, len(self._readers[SLOW].came) - had
        behind = self._sent - len(self._readers[SLOW].came)
        link.heal()
        await self._until_caught_up()
        caught_up = monotonic()
        await asyncio.sleep(self._seconds / 4)
        size = len(encode_event(TOPIC, {"n": 1 << 20, "at": 1.5}, None, BODY))
        figures = {
            "link_bytes_per_second": carried,
            "ratio_useful_to_link": got * size / (carried * (fast - slow)),
            "ratio_passed_to_link": passed / (carried * (fast - slow)),
            "most_waiting_bytes": float(self._waiting),
            "events_behind": float(behind),
            "catchup_seconds": caught_up - fast,
        }
        for name, end in (("before", slow), ("slow", fast)):
            start = before if name == "before" else slow
            others = [self._readers[shb].in_phase(start, end) for shb in SHBS if shb != SLOW]
            late = [came - sent for pairs in others for sent, came in pairs]
            figures[f"others_events_per_second_{name}"] = len(late) / len(others) / (end - start)
            figures[f"others_p50_ms_{name}"] = 1e3 * quantile(late, 0.5)
            figures[f"others_p99_ms_{name}"] = 1e3 * quantile(late, 0.99)
        for key in ("others_events_per_second", "others_p50_ms", "others_p99_ms"):
            figures[f"ratio_{key}"] = figures[f"{key}_slow"] / figures[f"{key}_before"]
        return figures

    async def _watch(self, network: Network, until: float) -> None:
        async with gapless.connect(network.nodes["ib"].url, client_id="bench-status") as connection:
            while monotonic() < until:
                gauges = list((await connection.status()).gauges)
                pending = int(value_of(gauges, LINK_WAITING, node=SLOW))
                self._waiting = max(self._waiting, pending + LinkSizes().underway if pending else 0)
                await asyncio.sleep(0.5)

    async def _until_caught_up(self) -> None:
        end = monotonic() + PATIENCE
        while len(self._readers[SLOW].came) < self._sent - int(self._rate):
            assert monotonic() < end, "it does not catch up"
            await asyncio.sleep(0.1)

    async def _publish(self, url: str) -> None:
        async with gapless.connect(url) as connection, connection.session() as session:
            async for _ in session.publisher(TOPIC, name="loader").send_all(self._messages()):
                pass

    async def _messages(self) -> AsyncIterator[gapless.Message]:
        began = monotonic()
        while True:
            await asyncio.sleep(began + self._sent / self._rate - monotonic())
            for _ in range(BATCH):
                yield gapless.Message(BODY, {"n": self._sent, "at": monotonic()})
                self._sent += 1


def add_options(parser: ArgumentParser) -> None:
    """How long, and how much."""
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="for which the link is slow")
    parser.add_argument("--rate", type=float, default=800.0, metavar="R", help="events of 1,000 bytes a second")


def run(*, json: bool, seconds: float, rate: float) -> dict[str, float]:
    """Carries it out."""
    with TemporaryDirectory(prefix="gapless-network-") as directory:
        figures = run_loop(Slow(seconds, rate).run(Path(directory)))
    if not json:
        table(f"one of three SHBs behind a link that carries a third, for {seconds:g} s", figures)
    return figures
