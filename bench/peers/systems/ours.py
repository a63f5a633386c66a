"""gapless itself: one broker with both roles on RocksDB and TCP, as `gapless broker` starts it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from bench.peers.system import WINDOW, Acknowledged, Publisher, Server
from bench.peers.work import ORIGIN, Event, Rhythm, Subscriber, Tally
from bench.processes import running_broker

if TYPE_CHECKING:
    import gapless

BATCH = 256


class _Publisher:
    def __init__(self, publisher: gapless.Publisher) -> None:
        self._publisher = publisher

    async def publish(self, events: Sequence[Event]) -> None:
        """In atomic batches, several in flight."""
        import gapless

        flying: deque[asyncio.Task[object]] = deque()  # receipts come in this order
        for start in range(0, len(events), BATCH):
            messages = [
                gapless.Message(body, {"quarter": quarter, "percent": percent, "origin": ORIGIN})
                for body, quarter, percent in events[start : start + BATCH]
            ]
            flying.append(asyncio.create_task(self._publisher.send_batch(messages)))
            if len(flying) >= WINDOW // BATCH:
                await flying.popleft()
        await asyncio.gather(*flying)


class Gapless:
    """gapless with its own Python client; each subscriber has a connection of its own."""

    title = "gapless"
    filters: Literal["server", "client"] = "server"
    portions: Mapping[str, float] = {}
    under_way = WINDOW
    acknowledged: Acknowledged = "on the disk"
    promise = "The event is on the disk: logged and synced (fdatasync) before the receipt, the fence behind it."

    def missing(self) -> str:
        """It is here."""
        return ""

    def version(self) -> str:
        """One distribution is both server and client."""
        return version("gapless")

    @contextlib.contextmanager
    def running(self, directory: Path) -> Iterator[Server]:
        """The broker as every benchmark starts it."""
        with running_broker(under=directory, storage='fence = "behind"') as broker:
            yield Server(broker.url, (broker.pid,))

    @contextlib.asynccontextmanager
    async def publisher(self, address: str, topic: str) -> AsyncIterator[Publisher]:
        """A publisher on a connection of its own."""
        import gapless

        async with gapless.connect(address) as connection, connection.session() as session:
            yield _Publisher(session.publisher(topic))

    def selector(self, subscriber: Subscriber) -> str:
        """What a subscriber wants, in the words of JMS."""
        return f"{subscriber.wanted} = {subscriber.value}"

    async def receive(
        self, address: str, topic: str, subscriber: Subscriber, tally: Tally, ready: Callable[[], None]
    ) -> None:
        """A durable subscription with a selector; the token is acknowledged once a second and in the end."""
        import gapless

        async with (
            gapless.connect(address, client_id=f"{topic}-{subscriber.name}") as connection,
            connection.session() as session,
            session.subscribe(topic, name=subscriber.name, selector=self.selector(subscriber)) as subscription,
        ):
            ready()
            if tally.done():
                return
            rhythm = Rhythm()
            async for batch in subscription.batches(max_events=4096):
                assert isinstance(batch, gapless.Batch)
                tally.take(batch.bodies)
                if rhythm.due() or tally.done():
                    await subscription.acknowledge(batch.token)
                if tally.done():
                    return
