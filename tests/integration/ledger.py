"""What publishers were told, held against what a broker has."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from shutil import rmtree
from typing import Any

import pytest

import gapless
from integration.broker_process import CLI, BrokerProcess, bounded
from integration.io_shim import Shim
from power.disk import CUTS, Disk, Image, changes, put


def body(size: int = 64) -> bytes:
    """A body that nothing else looks like, not even compressed."""
    return secrets.token_bytes(size)


@dataclass(slots=True)
class Ledger:
    """Bodies that were published, and the tick of each that has a receipt."""

    bodies: list[bytes] = field(default_factory=list)
    ticks: dict[bytes, int] = field(default_factory=dict)

    async def publish(self, publisher: gapless.Publisher, count: int, size: int = 64) -> None:
        """Publishes events, one after the other."""
        for _ in range(count):
            await self.send(publisher, body(size))

    async def send(self, publisher: gapless.Publisher, content: bytes) -> None:
        """Publishes one event."""
        self.bodies.append(content)
        self.ticks[content] = (await publisher.send(content)).tick

    async def check(self, url: str) -> None:
        """Every event with a receipt is there, once, with its tick; and nothing that nobody has published."""
        events = await everything(url)
        seen = [event.body for event in events]
        ticks = [event.tick for event in events]
        assert ticks == sorted(set(ticks))
        assert len(set(seen)) == len(seen), "an event is there twice"
        assert set(seen) <= set(self.bodies)
        assert {event.body: event.tick for event in events if event.body in self.ticks} == self.ticks


async def everything(url: str) -> list[gapless.Event]:
    """All events that a broker has."""
    async with gapless.connect(url) as connection, connection.session() as session:
        async with session.subscribe("#", start="earliest") as subscription:
            marker = await bounded(session.publisher("the.end").send(b""))
            events: list[gapless.Event] = []
            while (event := await bounded(next_of(subscription))).tick < marker.tick:
                events.append(event)
    return [event for event in events if event.topic != "the.end"]


async def next_of(subscription: gapless.Subscription[Any, Any]) -> gapless.Event:
    """The next event."""
    async for event in subscription:
        assert isinstance(event, gapless.Event)
        return event
    raise AssertionError("the subscription has ended")


async def publish(url: str, ledger: Ledger, count: int, size: int = 64, name: str | None = None) -> None:
    """Publishes events with a connection of its own."""
    async with gapless.connect(url) as connection, connection.session() as session:
        await bounded(ledger.publish(session.publisher("t", name=name), count, size))


async def refusal(broker: BrokerProcess) -> str:
    """The last line of a broker that must not start."""
    with pytest.raises(AssertionError, match="the broker did not start"):
        await broker.start()
    last = broker.log.splitlines()[-1]
    assert last.startswith("gapless: "), broker.log
    return last


class Plug:
    """A broker process, and the power of its disk."""

    def __init__(self, library: Path, directory: Path, **sections: dict[str, Any]) -> None:
        self._disk = directory / "disk"
        self._disk.mkdir()
        self.shim = Shim(library, self._disk, directory, whole=True)
        self.broker = BrokerProcess(directory, environment=self.shim.environment, program=CLI, **sections)
        self.broker.volume = self._disk / "volume"
        self._base: Image = {}

    async def pull(self, cut: str, seed: int = 0) -> None:
        """Ends the broker, and leaves on its disk what a power cut may leave."""
        await self.broker.kill()
        self.shim.reset()
        disk = Disk(self._base)
        for call in changes(self.shim.calls()):
            disk.apply(call)
        self._base = CUTS[cut](disk, Random(seed))
        rmtree(self._disk)
        put(self._base, self._disk)
        self.shim.journal.write_bytes(b"")

    async def close(self) -> None:
        """Ends the broker."""
        await self.broker.kill()
        self.shim.close()


async def waiting(publisher: gapless.Publisher, ledger: Ledger, count: int) -> list[asyncio.Future[None]]:
    """Events that are sent, and that nobody waits for yet."""
    sending: list[asyncio.Future[None]] = [asyncio.ensure_future(ledger.send(publisher, body())) for _ in range(count)]
    await asyncio.sleep(0)
    return sending
