"""Durable subscriptions that keep flights and token in one SQLite transaction, and how late each flight was."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any, Final

import gapless
from gapless.core.ports import Roaming
from gapless_flights.data import made_up_flights, properties_of, topic_of
from gapless_flights.proof import SubscriptionProof, prove
from gapless_flights.selections import SELECTIONS, DemoSubscription
from gapless_flights.subscriber import Ledger, consumed_flights
from gapless_shb.core.state.places import home_of

PORTION = 0.01
"""Seconds between two looks of a publisher at the clock."""
IDLE_MAX: Final = 60.0
"""Seconds without any progress at the end, after which it is given up."""


@dataclass
class Publishing:
    """A publisher of flights at one node, at a steady rate, until it is told to stop."""

    url: str
    name: str
    flights: Sequence[str]
    rate: float
    sent_at: dict[str, float]
    """When each flight was handed to a publisher, by all of them."""
    published: int = 0
    stopped: bool = False

    async def run(self) -> None:
        """Publishes; every receipt is waited for."""
        connecting = gapless.connect(self.url, client_id=self.name, wait=True)
        async with connecting as connection, connection.session() as session:
            publisher = session.publisher(name=self.name)
            async for _ in publisher.send_all(self._messages()):
                self.published += 1

    async def _messages(self) -> AsyncIterator[gapless.Message]:
        began = monotonic()
        for number, line in enumerate(self.flights):
            if (left := began + number / self.rate - monotonic()) > 0:
                await asyncio.sleep(max(PORTION, left))
            if self.stopped:
                return
            self.sent_at[line] = monotonic()
            yield gapless.Message(line.encode(), properties_of(line), topic_of(line))


class QuickLedger(Ledger):
    """Here nodes die, and not the machine: nothing waits for the disk."""

    def __init__(self, path: Path, subscription: str) -> None:
        super().__init__(path, subscription)
        self._db.execute("PRAGMA synchronous = OFF")


class Consumer:
    """One durable subscription at one node."""

    def __init__(self, node: str, client_id: str, selection: DemoSubscription, directory: Path) -> None:
        self.node = node
        self._client_id = client_id
        self.selection = selection
        self.name = f"{node}-{selection.name}"
        self.late: list[tuple[float, float]] = []
        """For each flight, when it was published, and how many seconds later it was consumed."""
        self.count = 0
        self._path = directory / f"{self.name}.sqlite"

    async def run(self, url: str, sent_at: dict[str, float], ready: asyncio.Event) -> None:
        """Consumes until it is cancelled. Raises GapError when it is told of a gap."""
        with closing(QuickLedger(self._path, self.name)) as ledger:
            async with (
                gapless.connect(url, client_id=self._client_id, wait=True) as connection,
                connection.session() as session,
                session.subscribe(
                    self.selection.topic, name=self.name, selector=self.selection.selector, start="earliest"
                ) as subscription,
            ):
                ready.set()
                await self._consume(subscription, ledger, sent_at)

    async def _consume(
        self, subscription: gapless.Subscription[Any, Any], ledger: Ledger, sent_at: dict[str, float]
    ) -> None:
        async for batch in subscription.batches(max_events=2048):
            assert isinstance(batch, gapless.Batch)
            ledger.commit(batch, batch.token)
            now = monotonic()
            for event in batch:
                at = sent_at[event.body.decode()]
                self.late.append((at, now - at))
            self.count += len(batch)
            await subscription.acknowledge(batch.token)

    def proofs(self, published: Sequence[Sequence[str]]) -> Iterator[SubscriptionProof]:
        """Its database held against what it should have: of each publisher all, in its order, once."""
        consumed = list(consumed_flights(self._path))
        foreign = set(consumed).difference(*published)
        for flights in published:
            of_this = set(flights) | foreign
            expected = self.selection.expected(flights)
            yield prove(self.name, self.selection.selector, expected, [one for one in consumed if one in of_this])


def clients_at_home(shb: str, shbs: Sequence[str]) -> Iterator[int]:
    """The numbers of clients `bench-NUMBER` whose durable subscriptions are at home at this one of all SHBs.

    Anywhere else a client is a guest, which costs both SHBs; of a single SHB nobody is.
    """
    roaming = Roaming(tuple(shbs), b"")
    return (number for number in count() if home_of(f"bench-{number}", roaming) == shb)


def consumers(client_ids: Mapping[str, str], each: int, directory: Path) -> list[Consumer]:
    """So many subscriptions at each node, each node with others first. `client_ids`: whose they are, by node."""
    return [
        Consumer(node, client_id, SELECTIONS[(each * place + number) % len(SELECTIONS)], directory)
        for place, (node, client_id) in enumerate(client_ids.items())
        for number in range(each)
    ]


@contextlib.asynccontextmanager
async def consuming(
    consumers: Sequence[Consumer], urls: Mapping[str, str], sent_at: dict[str, float]
) -> AsyncIterator[list[asyncio.Task[None]]]:
    """All of them at work; as many tasks, which end at the end of the block."""
    ready = [asyncio.Event() for _ in consumers]
    tasks = [
        asyncio.create_task(consumer.run(urls[consumer.node], sent_at, event))
        for consumer, event in zip(consumers, ready, strict=True)
    ]
    try:
        all_ready = asyncio.ensure_future(asyncio.wait([asyncio.ensure_future(event.wait()) for event in ready]))
        await asyncio.wait([all_ready, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


class Trial:
    """Flights are published and consumed while something happens to the network; then every database is judged."""

    def __init__(self, consumers: Sequence[Consumer], rate: float) -> None:
        """`rate`: flights a second, of all publishers together."""
        self.consumers = consumers
        self.published: list[Sequence[str]] = []
        """What each publisher has published, at the end."""
        self.sent_at: dict[str, float] = {}
        """When each flight was handed to a publisher."""
        self._rate = rate

    async def run(
        self, urls: Mapping[str, str], publishers: Sequence[str], script: Callable[[], Coroutine[Any, Any, None]]
    ) -> list[SubscriptionProof]:
        """One publisher at each of these nodes, until the script is at its end and all is consumed.

        Returns what each database has of each publisher. Raises what a consumer or a publisher raises.
        """
        flights, count = made_up_flights(int(self._rate * 600), 1), len(publishers)
        publishing = [
            Publishing(urls[node], f"publisher-{node}", flights[place::count], self._rate / count, self.sent_at)
            for place, node in enumerate(publishers)
        ]
        async with consuming(self.consumers, urls, self.sent_at) as tasks:
            tasks += [asyncio.create_task(one.run()) for one in publishing]
            await _first_failure(asyncio.create_task(script()), tasks)
            for one in publishing:
                one.stopped = True
            done, _ = await asyncio.wait(tasks[-count:], timeout=IDLE_MAX)
            assert len(done) == count, "a publisher does not come to its end"
            self.published = [one.flights[: one.published] for one in publishing]
            await self._until_consumed()
        return [proof for consumer in self.consumers for proof in consumer.proofs(self.published)]

    async def _until_consumed(self) -> None:
        wanted = {one: sum(len(one.selection.expected(part)) for part in self.published) for one in self.consumers}
        moved_at, before = monotonic(), -1
        while monotonic() < moved_at + IDLE_MAX and any(one.count < count for one, count in wanted.items()):
            await asyncio.sleep(0.1)
            now = sum(one.count for one in self.consumers)
            if now > before:
                moved_at, before = monotonic(), now


async def _first_failure(script: asyncio.Task[None], tasks: Sequence[asyncio.Task[None]]) -> None:
    """Waits for the script; raises what any of the others raises."""
    await asyncio.wait([script, *tasks], return_when=asyncio.FIRST_COMPLETED)
    if not script.done():
        script.cancel()
    for task in tasks:
        if task.done():
            task.result()
    script.result()


def quantile(values: Sequence[float], share: float) -> float:
    """Of the values, nothing when there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
