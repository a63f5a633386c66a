"""A gateway to a real Kafka is a process that is killed, again and again, while publishers publish through it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless.core.stream.ticks import Tick
from gapless_testing.kafka import KafkaCluster
from integration.broker_process import BrokerProcess, until
from kafka3.test_leaders import NODES, state, until_in_sync
from kafka_front import gateway, pubend_of, session_at

pytestmark = pytest.mark.timeout(400)

KILLS = 10
LEADERS = 4
NAMES = ("one", "two", "three")


def gateway_process(directory: Path, kafka: KafkaCluster, topic: str) -> BrokerProcess:
    """A broker that publishes to a topic of Kafka's, with a volume on the disk."""
    section = {"servers": kafka.bootstrap.split(","), "topics": [{"name": topic, "publish": True}]}
    sections: dict[str, Any] = {
        "node": {"network": "shop"},
        "phb": {"pubends": []},  # no ticks but Kafka's are in tokens
        "phb.kafka": [section],
    }
    return BrokerProcess(directory, **sections)


class Publishing:
    """Some publishers with names, which publish numbers until they are told to stop."""

    def __init__(self) -> None:
        self.receipts: dict[str, list[Tick]] = {name: [] for name in NAMES}
        self.interrupted: list[str] = []
        """Why one had to ask what was logged."""
        self._stops = False

    @property
    def count(self) -> int:
        """How many receipts there are."""
        return sum(map(len, self.receipts.values()))

    async def until_more(self, count: int) -> None:
        """Waits for so many receipts more, of each publisher."""
        wanted = {name: len(receipts) + count for name, receipts in self.receipts.items()}
        await until(
            lambda: all(len(self.receipts[name]) >= many for name, many in wanted.items()), f"{count} receipts more", 60
        )

    def stop(self) -> None:
        """Nothing new is published."""
        self._stops = True

    async def publish(self, url: str, topic: str, name: str) -> None:
        """Publishes under a name. When it does not know what became of something it asks, as applications do."""
        receipts = self.receipts[name]
        while True:
            try:
                async with gapless.connect(url) as connection, connection.session() as session:
                    publisher = session.publisher(topic, name=name)
                    done = (await publisher.recover()).sequence
                    assert done >= len(receipts), "what there was a receipt for is gone"
                    receipts += [0] * (done - len(receipts))  # logged, and the receipt was lost
                    async for receipt in publisher.send_all(self._messages(name, done)):
                        receipts.append(receipt.tick)
                    return
            except gapless.GaplessError as error:
                self.interrupted.append(repr(error))
                await asyncio.sleep(0.05)

    async def _messages(self, name: str, number: int) -> AsyncIterator[gapless.Message]:
        while not self._stops:
            yield gapless.Message(b"%s %d" % (name.encode(), number), {"publisher": name})
            number += 1
            await asyncio.sleep(0.002)


async def take(subscription: Any, into: list[tuple[Tick, bytes]]) -> None:
    """Takes everything that a subscription is given."""
    async for batch in subscription.batches():
        into += [(event.tick, event.body) for event in batch]


async def take_with_token(url: str, topic: str, into: list[tuple[Tick, bytes]]) -> None:
    """The same, of an application that keeps its position itself: it subscribes again when the broker has lost it."""
    token: gapless.CheckpointToken | None = None
    while True:
        with contextlib.suppress(gapless.GaplessError):
            async with gapless.connect(url) as connection, connection.session() as session:
                start = token or "earliest"
                async with session.subscribe(topic, name="with a token", start=start) as subscription:
                    async for batch in subscription.batches():
                        into += [(event.tick, event.body) for event in batch]
                        token = subscription.token
        await asyncio.sleep(0.05)


def check(events: list[tuple[Tick, bytes]], receipts: dict[str, list[Tick]]) -> None:
    """Each publisher's events are there once, in order, at the ticks of their receipts."""
    assert [tick for tick, _ in events] == sorted({tick for tick, _ in events})
    for name, ticks in receipts.items():
        mine = [(tick, body) for tick, body in events if body.startswith(name.encode() + b" ")]
        assert [body for _, body in mine] == [b"%s %d" % (name.encode(), number) for number in range(len(ticks))]
        assert [tick for tick, _ in mine] == [tick or mine[at][0] for at, tick in enumerate(ticks)]
    assert len(events) == sum(map(len, receipts.values()))


@contextlib.asynccontextmanager
async def tasks(*work: Any) -> AsyncIterator[list[asyncio.Future[None]]]:
    """Does some things beside the block, until its end."""
    running = [asyncio.ensure_future(each) for each in work]
    try:
        yield running
    finally:
        for each in running:
            each.cancel()
        ended = await asyncio.gather(*running, return_exceptions=True)
    assert [each for each in ended if isinstance(each, Exception)] == []


@pytest.mark.parametrize("loses_volume", [False, True], ids=["its volume stays", "its volume is lost"])
async def test_ten_kills_of_the_gateway_while_publishers_publish_through_it(
    kafka: KafkaCluster, tmp_path: Path, loses_volume: bool
) -> None:
    """Each event is there once: for who is at the gateway, and for who is at another node over the same topic."""
    topic = f"killed-gateways-{loses_volume}"
    await kafka.create_topic(topic)
    publishing, here, there, again = Publishing(), list[Any](), list[Any](), list[Any]()
    async with (
        gateway(kafka, topic) as other,
        session_at(other) as (connection, session),
        gateway_process(tmp_path, kafka, topic) as process,
        session.subscribe(topic, name="there", start="earliest") as elsewhere,
        tasks(
            take(elsewhere, there),
            take_with_token(process.url, topic, here),
            *(publishing.publish(process.url, topic, name) for name in NAMES),
        ) as (_, _, *publishers),
    ):
        await pubend_of(connection, topic)
        for _ in range(KILLS):
            await publishing.until_more(100)
            await process.kill()
            if loses_volume:
                process.lose_volume()
            await process.start()
        await publishing.until_more(100)
        publishing.stop()
        await asyncio.wait_for(asyncio.gather(*publishers), 60)
        await until(lambda: len(there) >= publishing.count, "the last events elsewhere", 60)
        await until(lambda: len(here) >= publishing.count, "the last events here", 60)
        async with session.subscribe(topic, name="again", start="earliest") as everything:
            while len(again) < publishing.count:
                batch = await anext(everything.batches())
                again += [(event.tick, event.body) for event in batch]

    for events in (there, here, again):
        check(events, publishing.receipts)
    assert loses_volume or publishing.interrupted == []


async def test_kills_of_the_leader_while_publishers_publish(kafka: KafkaCluster) -> None:
    """The gateway does not know then what became of what it has appended: it finds out by reading."""
    topic = "published-over-elections"
    await kafka.create_topic(topic)
    publishing, events = Publishing(), list[Any]()
    async with (
        gateway(kafka, {"name": topic, "publish": True}) as node,
        session_at(node) as (connection, session),
        session.subscribe(topic, name="all", start="earliest") as everything,
        tasks(take(everything, events), *(publishing.publish(node.url, topic, name) for name in NAMES)) as (
            _,
            *publishers,
        ),
    ):
        await pubend_of(connection, topic)
        for _ in range(LEADERS):
            await publishing.until_more(100)
            leader = (await state(kafka, topic)).leader
            await kafka.kill(leader)
            await publishing.until_more(100)
            await kafka.restart(leader)
            await until_in_sync(kafka, topic, *NODES)
        publishing.stop()
        await asyncio.wait_for(asyncio.gather(*publishers), 60)
        await until(lambda: len(events) >= publishing.count, "the last events", 60)
        left = [(alarm.code, alarm.text) for alarm in node.alarms() if not alarm.over]

    check(events, publishing.receipts)
    assert publishing.interrupted == []
    assert left == []
