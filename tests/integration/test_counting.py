"""What brokers count is what publishers and subscribers have counted, over kills and stops of real processes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import gapless
from gapless import jms
from gapless.core.wire.framing import encode_frame
from integration.broker_process import BrokerProcess, bounded
from integration.raw_client import RawClient
from integration.test_policies import until_lost
from integration.tree_of_brokers import Tree

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL"),
]

EVENTS = 40
PHB: dict[str, Any] = {
    "release_seconds": 0.1,
    "pubends": [
        {"name": "telemetry", "topics": ["telemetry"], "max_retain_bytes": 20_000},
        {"name": "default", "count": 2},
    ],
}
SHB: dict[str, Any] = {"catchup_bytes": 0}
"""Else it has in memory what its PHB has given up, and nothing is missing."""
Series: TypeAlias = "tuple[str, tuple[tuple[str, str], ...]]"


@dataclass
class Lives:
    """A node: what its counters came to in the lives that are over, and in this one."""

    process: BrokerProcess
    over: dict[Series, float] = field(default_factory=dict)
    now: dict[Series, float] = field(default_factory=dict)
    opened: int = 0
    """How many connections were opened here."""

    @asynccontextmanager
    async def connected(self, client_id: str = "desk") -> AsyncIterator[gapless.Connection]:
        """A connection to it."""
        self.opened += 1
        async with gapless.connect(self.process.url, client_id=client_id) as connection:
            yield connection

    async def look(self) -> None:
        """Asks for its counters. None of them has fallen."""
        async with self.connected() as connection:
            status = await bounded(connection.status())
        found = {(gauge.name, tuple(gauge.labels)): gauge.value for gauge in status.gauges if gauge.counter}
        fallen = {series: value for series, value in self.now.items() if found.get(series, 0) < value}
        assert not fallen
        self.now = found

    async def end(self, *, killed: bool) -> None:
        """It was looked at when it was calm, and ends; it comes back."""
        for series, value in self.now.items():
            self.over[series] = self.over.get(series, 0) + value
        self.now = {}
        if not killed:
            assert await self.process.stop() == 0
        await self.process.kill()
        await self.process.start()

    def total(self, name: str, **labels: str) -> float:
        """What all series of this name and these labels have come to, in all lives."""
        return sum(
            value
            for lives in (self.over, self.now)
            for (found, pairs), value in lives.items()
            if found == name and labels.items() <= dict(pairs).items()
        )


@dataclass
class Counted:
    """What the applications have counted."""

    published: int = 0
    consumed: int = 0
    redelivered: int = 0
    gaps: int = 0
    refused: int = 0
    tokens: dict[str, gapless.CheckpointToken] = field(default_factory=dict)


def each(*lives: Lives) -> list[Lives]:
    """Each node once: it may have both roles."""
    return list({id(node): node for node in lives}.values())


async def end_all(nodes: Sequence[Lives], *, killed: bool) -> None:
    """All of them are calm, and end; they come back."""
    for node in nodes:
        await node.look()
    await asyncio.gather(*(node.end(killed=killed) for node in nodes))


async def publish(phb: Lives, counted: Counted, topic: str, count: int, size: int = 10) -> list[gapless.Receipt]:
    """Publishes in batches of ten."""
    receipts: list[gapless.Receipt] = []
    async with phb.connected() as connection, connection.session() as session:
        publisher = session.publisher(topic)
        for _ in range(0, count, 10):
            receipts += await bounded(publisher.send_batch([gapless.Message(bytes(size))] * 10))
    counted.published += len(receipts)
    return receipts


async def consume(shb: Lives, counted: Counted, name: str, count: int, going: asyncio.Event | None = None) -> None:
    """Goes on where the subscription's token stands, takes so many events, and acknowledges them."""
    async with shb.connected() as connection, connection.session() as session:
        start: Any = counted.tokens.get(name, "earliest")
        async with session.subscribe("flights", name=name, start=start) as subscription:
            if going is not None:
                going.set()
            for _ in range(count):
                await bounded(anext(aiter(subscription)))
                counted.consumed += 1
            counted.tokens[name] = subscription.token
            await subscription.acknowledge()


async def live(phb: Lives, shb: Lives, counted: Counted) -> None:
    """One subscriber is there while events are published, and another one comes later."""
    going = asyncio.Event()
    taking = asyncio.create_task(consume(shb, counted, "live", EVENTS, going))
    await bounded(going.wait())
    await publish(phb, counted, "flights", EVENTS)
    await bounded(taking)
    await consume(shb, counted, "late", EVENTS)


async def redeliver(_: Lives, shb: Lives, counted: Counted) -> None:
    """A JMS-style consumer takes five messages, begins again, and acknowledges them then."""
    factory = jms.ConnectionFactory(shb.process.url, client_id="teller")
    shb.opened += 1

    def work() -> None:
        with factory.create_context(jms.CLIENT_ACKNOWLEDGE) as context:
            consumer = context.create_durable_consumer("orders", "audit")
            for number in range(5):
                context.create_producer().send("orders", str(number))
                counted.published += 1
            first = [consumer.receive(20_000) for _ in range(5)]
            context.recover()
            again = [consumer.receive(20_000) for _ in range(5)]
            assert None not in first + again
            assert all(message.get_jms_redelivered() for message in again if message is not None)
            counted.consumed += len(first) + len(again)
            counted.redelivered += len(again)
            context.acknowledge()

    await asyncio.to_thread(work)


async def lose(phb: Lives, shb: Lives, counted: Counted) -> None:
    """A subscriber is away while more is published than its pubend keeps. Brokers that were killed do not have it."""
    async with shb.connected() as connection, connection.session() as session:
        async with session.subscribe("telemetry", name="away"):
            pass
    receipts = await publish(phb, counted, "telemetry", 60, 1000)
    async with phb.connected() as asking:
        await until_lost(asking, "telemetry", receipts[20].tick)
    await end_all(each(phb, shb), killed=True)
    async with shb.connected() as connection, connection.session() as session:
        async with session.subscribe("telemetry", name="away", on_gap="deliver") as subscription:
            async for unit in subscription:
                if isinstance(unit, gapless.Gap):
                    counted.gaps += 1
                else:
                    counted.consumed += 1
                    if unit.tick == receipts[-1].tick:
                        break
            await subscription.acknowledge()


async def knock(shb: Lives, counted: Counted) -> None:
    """Somebody says what is no Hello."""
    async with RawClient(shb.process.url.rpartition("/")[2]) as client:
        await client.send(encode_frame(b"junk"))
        await client.hear_all()
        counted.refused += 1


async def play(phb: Lives, shb: Lives) -> Counted:
    """Three lives of one node, or of two: the first is killed, the second ends in order, and the last one goes on."""
    counted = Counted()
    nodes = each(phb, shb)
    for happens in (lose, redeliver):
        await live(phb, shb, counted)
        await knock(shb, counted)
        for node in nodes:
            await node.look()
        await happens(phb, shb, counted)
    await end_all(nodes, killed=False)
    await live(phb, shb, counted)
    for node in nodes:
        await node.look()
    return counted


def compare(phb: Lives, shb: Lives, counted: Counted) -> None:
    """Brokers and applications have counted the same."""
    paths = {path: shb.total("gapless_shb_delivered_events_total", path=path) for path in ("live", "caught_up")}
    assert phb.total("gapless_pubend_published_events_total") == counted.published
    assert sum(paths.values()) == counted.consumed
    assert min(paths.values()) >= EVENTS
    assert shb.total("gapless_shb_redelivered_total") == counted.redelivered > 0
    assert shb.total("gapless_shb_gaps_total", reason="released early") == counted.gaps > 0
    assert shb.total("gapless_shb_gaps_total") == counted.gaps
    assert shb.total("gapless_node_refused_total", code="protocol-version") == counted.refused
    assert shb.total("gapless_shb_acknowledged_total") >= 2
    assert phb.total("gapless_pubend_published_bytes_total") > 10 * counted.published
    assert phb.total("gapless_phb_publish_seconds_count") >= counted.published / 10
    assert phb.total("gapless_volume_commit_seconds_count") >= phb.total("gapless_volume_sync_seconds_count") > 0
    assert shb.total("gapless_shb_event_age_seconds_count") > 0
    assert shb.total("gapless_shb_catch_up_seconds_count") > 0
    for node in (phb, shb):
        assert node.total("gapless_node_sessions_opened_total") == node.opened
        assert node.total("gapless_node_frames_total", direction="in") > node.opened
        assert node.total("gapless_node_turn_seconds_count") > 0
    assert phb.total("gapless_node_bytes_total", direction="in") > 10 * counted.published
    assert shb.total("gapless_node_bytes_total", direction="out") > 10 * counted.consumed


async def test_one_broker_over_its_lives(tmp_path: Path) -> None:
    async with BrokerProcess(tmp_path / "broker", phb=PHB, shb=SHB) as process:
        node = Lives(process)
        counted = await play(node, node)

    compare(node, node, counted)


async def test_two_brokers_each_for_itself(tmp_path: Path) -> None:
    roles: Mapping[str, list[str]] = {"phb": ["phb"], "shb": ["shb"]}
    network = Tree(tmp_path, roles, [("shb", "phb")], "knowledge")
    network.nodes["phb"].sections["phb"] = PHB
    network.nodes["shb"].sections["shb"] = SHB
    phb, shb = map(Lives, network.nodes.values())
    try:
        await asyncio.gather(*(node.start() for node in network.nodes.values()))
        counted = await play(phb, shb)
    finally:
        await network.kill(*network.nodes)

    compare(phb, shb, counted)
    for node, peer in ((phb, "shb"), (shb, "phb")):
        for direction in ("in", "out"):
            assert node.total("gapless_broker_link_frames_total", node=peer, direction=direction) > 0
    sent = phb.total("gapless_broker_link_bytes_total", node="shb", direction="out")
    assert sent > 10 * counted.published
