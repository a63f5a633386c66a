"""The reference workload: a real broker process under the I/O shim, and clients that note what they do.

Publishers that send at the same time, durable subscriptions that are made, acknowledge and are given up, memory
that is flushed, space that is given back, an orderly stop, a kill in mid-publish, and an opening after each.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import gapless
from integration import broker_process
from integration.broker_process import BrokerProcess, until
from integration.io_shim import Shim

SECTIONS: Mapping[str, Mapping[str, Any]] = {
    "node": {"network": "power"},
    "phb": {
        "pubends": [{"name": "default", "min_retain_seconds": 0.0, "min_retain_bytes": 0}],
        "release_seconds": 0.05,
        "silence_seconds": 0.2,
        "reservation_seconds": 0.4,
        "checkpoint_bytes": 16 << 10,
    },
    "shb": {"checkpoint_seconds": 0.05},
}
"""Of the configuration: little is kept, and often something is written."""

STORAGE: Mapping[str, Any] = {"write_buffer_bytes": 64 << 10}

PROGRAM = (
    "-c",
    """
from gapless.cli import main
from gapless.node import upkeep

upkeep.INTERVAL, upkeep.RECLAIM_BYTES = 0.1, 4 << 10
main()
""",
)
"""The broker as it is, but that it gives space back as soon as there is a little."""

PATIENCE = 60.0
"""Seconds for anything: what is recorded may be slow."""

bounded = partial(broker_process.bounded, patience=PATIENCE)

PARITY = ("even", "odd")


@dataclass(frozen=True, slots=True)
class Logged:
    """An event that was published, and its receipt."""

    publisher: str
    sequence: int
    tick: int
    body: str
    parity: str


@dataclass(slots=True)
class Truth:
    """What the clients know in the end."""

    events: list[Logged] = field(default_factory=list)
    parities: dict[str, str] = field(default_factory=dict)
    """The parity that a subscription selects; "" for none."""

    def save(self, path: Path) -> None:
        """Writes it to a file."""
        path.write_text(json.dumps(asdict(self)), "utf-8")

    @classmethod
    def load(cls, path: Path) -> Truth:
        """Reads it again."""
        fields = json.loads(path.read_text("utf-8"))
        return cls([Logged(**event) for event in fields["events"]], fields["parities"])


async def run(shim: Shim, directory: Path, disk: Path, events: int, seed: int, fence: str) -> Truth:
    """Runs all of it, with the volume on `disk`. `events`: of each publisher in each phase."""
    broker = BrokerProcess(directory, environment=shim.environment, program=PROGRAM, **SECTIONS)
    broker.sections["storage"] = {"path": str(disk / "volume"), "fence": fence, **STORAGE}
    workload = Workload(shim, broker, events, Random(seed))
    async with broker:
        await workload.fill()
        await workload.change()
        shim.note("stopping")
        assert await broker.stop() == 0
        await broker.start()
        await workload.survive_a_kill()
        await workload.rest()
        await broker.stop()
    return workload.truth


async def only_open(shim: Shim, directory: Path, disk: Path) -> None:
    """Starts a broker on a disk, and kills it when it serves."""
    broker = BrokerProcess(directory, environment=shim.environment, program=PROGRAM, **SECTIONS)
    broker.sections["storage"] = {"path": str(disk / "volume"), **STORAGE}
    async with broker:
        pass


class Workload:
    """The clients of one recording."""

    def __init__(self, shim: Shim, broker: BrokerProcess, events: int, random: Random) -> None:
        self.truth = Truth()
        self._shim = shim
        self._broker = broker
        self._events = events
        self._random = random
        self._sequences: dict[str, int] = {}

    # The phases.

    async def fill(self) -> None:
        """Two subscriptions that follow, one that is slow, one that comes to nothing."""
        async with self._session() as (connection, session):
            for name, parity in (("all", ""), ("even", "even"), ("gone", "odd"), ("slow", "")):
                await self._make(session, name, parity)
            await self._publish(session, "a", "b", "c")
            for name in ("all", "even"):
                await self._consume(session, name)
            await self._consume(session, "slow", self._events)
            self._shim.note("unsubscribe gone")
            await bounded(connection.unsubscribe("gone"))
            self._shim.note("unsubscribed gone")

    async def change(self) -> None:
        """One that begins with what comes, and one with what is there, while all go on."""
        async with self._session() as (_, session):
            publishing = asyncio.ensure_future(self._publish(session, "a", "b", "c"))
            await self._make(session, "late", "odd", start="latest")
            await self._make(session, "early", "", start="earliest")
            await publishing
            for name in ("all", "even", "early", "slow"):
                await self._consume(session, name)
            await self._released()

    async def survive_a_kill(self) -> None:
        """The broker is killed while it is published; the clients go on by themselves."""
        async with self._session() as (_, session):
            publishing = asyncio.ensure_future(self._publish(session, "a", "b", "c"))
            known = len(self.truth.events)
            await until(lambda: len(self.truth.events) > known + self._events // 2, "some receipts", PATIENCE)
            await self._broker.restart()
            await bounded(publishing)
            for name in ("all", "even", "late"):
                await self._consume(session, name)

    async def rest(self) -> None:
        """A little more, and what is acknowledged is given back."""
        async with self._session() as (_, session):
            await self._publish(session, "a", "d")
            for name in self.truth.parities:
                if name != "gone":
                    await self._consume(session, name)
            await self._released()

    # What they are made of.

    @contextlib.asynccontextmanager
    async def _session(self) -> AsyncIterator[tuple[gapless.Connection, gapless.Session]]:
        async with gapless.connect(self._broker.url) as connection, connection.session() as session:
            yield connection, session

    async def _publish(self, session: gapless.Session, *names: str) -> None:
        await bounded(asyncio.gather(*(self._publish_as(session, name) for name in names)))

    async def _publish_as(self, session: gapless.Session, name: str) -> None:
        publisher = session.publisher(f"t.{name}", name=name)
        left = self._events
        while left:
            count = min(left, self._random.randint(1, 4))
            left -= count
            messages = [self._message() for _ in range(count)]
            receipts = await publisher.send_batch(messages)
            for message, receipt in zip(messages, receipts, strict=True):
                sequence = self._sequences[name] = self._sequences.get(name, 0) + 1
                parity = str(message.properties["parity"])
                self.truth.events.append(Logged(name, sequence, receipt.tick, message.body.hex(), parity))

    def _message(self) -> gapless.Message:
        body = self._random.randbytes(self._random.choice([20, 200, 900]))
        return gapless.Message(body, {"parity": self._random.choice(PARITY)})

    async def _make(self, session: gapless.Session, name: str, parity: str, **options: Any) -> None:
        self.truth.parities[name] = parity
        self._shim.note(f"subscribe {name}")
        subscription = session.subscribe("t.#", name=name, selector=selector(parity), **options)
        async with await bounded(_entered(subscription)):
            pass

    async def _consume(self, session: gapless.Session, name: str, most: int | None = None) -> None:
        """Consumes and acknowledges up to the last event that there is, or so many."""
        parity = self.truth.parities[name]
        last = max(event.tick for event in self.truth.events if parity in ("", event.parity))
        async with session.subscribe("t.#", name=name, selector=selector(parity), in_use="takeover") as subscription:
            reached = max(subscription.token.ticks.values(), default=0)
            count = 0
            while reached < last and (most is None or count < most):
                reached = (await bounded(_next(subscription))).tick
                count += 1
                if count % 5 == 0 or reached == last:
                    await self._acknowledge(subscription, name)
            await self._acknowledge(subscription, name)

    async def _acknowledge(self, subscription: gapless.Subscription[Any, Any], name: str) -> None:
        token = subscription.token
        self._shim.note(f"acknowledge {name} {max(token.ticks.values())}")
        await subscription.acknowledge(token)

    async def _released(self) -> None:
        """Waits until the log was chopped."""
        async with gapless.connect(self._broker.url) as connection:

            async def lost() -> int:
                return (await connection.pubends())[0].lost

            before = await lost()
            for _ in range(40):
                if await lost() > before:
                    break
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.3)  # in which space may be given back; nothing depends on it


def selector(parity: str) -> str:
    """What selects the events of a parity; "" selects all."""
    return f"parity = '{parity}'" if parity else ""


async def _entered(subscription: Any) -> gapless.Subscription[Any, Any]:
    entered: gapless.Subscription[Any, Any] = await subscription
    return entered


async def _next(subscription: gapless.Subscription[gapless.Event, Any]) -> gapless.Event:
    async for event in subscription:
        return event
    raise AssertionError("the subscription has ended")
