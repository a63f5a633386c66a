"""A subscription with another selector, without its own events, with a small buffer: as an application uses it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NoReturn

import pytest

import gapless
import gapless.sync
from gapless.node.node import Node
from integration.nodes_in_process import running_node

TOPIC = "flights"


@asynccontextmanager
async def publishing(
    node: Node, client_id: str = "loader", *, identify: bool = False
) -> AsyncIterator[gapless.Publisher]:
    async with gapless.connect(node.url, client_id=client_id, identify=identify) as connection:
        async with connection.session() as session:
            yield session.publisher(TOPIC)


async def publish(publisher: gapless.Publisher, numbers: range) -> None:
    """Numbered flights, of which every third is late."""
    for n in numbers:
        await publisher.send(b"%d" % n, {"delay": 90 if n % 3 == 0 else 10})


async def take(subscription: gapless.Subscription[gapless.Event, NoReturn], count: int) -> list[int]:
    return [int((await asyncio.wait_for(anext(subscription), 20)).body) for _ in range(count)]


async def test_another_selector_keeps_the_position(tmp_path: Path) -> None:
    """The backlog is chosen anew, behind the position; before it, and of what is done, nothing comes."""
    async with running_node(tmp_path / "volume") as node, publishing(node) as publisher:
        async with gapless.connect(node.url, client_id="desk") as connection, connection.session() as session:
            async with session.subscribe(TOPIC, name="late", selector="delay > 60") as late:
                await publish(publisher, range(12))
                assert await take(late, 2) == [0, 3]
                await late.acknowledge()
            with pytest.raises(gapless.SubscriptionMismatchError, match="keep_position"):
                await session.subscribe(TOPIC, name="late", selector="delay < 60")
            async with session.subscribe(
                TOPIC, name="late", selector="delay < 60", on_change="keep_position"
            ) as punctual:
                assert await take(punctual, 6) == [4, 5, 7, 8, 10, 11]
                await punctual.acknowledge()
                await publish(publisher, range(12, 15))
                assert await take(punctual, 2) == [13, 14]
                [info] = await connection.subscriptions()

    assert info.selector == "delay < 60"


async def test_what_keeps_its_position_outlives_the_broker(tmp_path: Path) -> None:
    async with running_node(tmp_path / "volume") as node, publishing(node) as publisher:
        async with gapless.connect(node.url, client_id="desk") as connection, connection.session() as session:
            async with session.subscribe(TOPIC, name="late", selector="delay > 60", start="earliest") as late:
                await publish(publisher, range(9))
                assert await take(late, 1) == [0]
                await late.acknowledge()
            await session.subscribe(TOPIC, name="late", selector="delay < 60", on_change="keep_position")
    async with running_node(tmp_path / "volume") as node:
        async with gapless.connect(node.url, client_id="desk") as connection, connection.session() as session:
            async with session.subscribe(TOPIC, name="late", selector="delay < 60") as punctual:
                assert await take(punctual, 6) == [1, 2, 4, 5, 7, 8]


def test_as_jms_has_it_the_backlog_is_lost(tmp_path: Path) -> None:
    """Also through the blocking connection. Nobody's subscription is taken away while it is consumed."""
    with (
        gapless.sync.connect(f"embedded:{tmp_path / 'volume'}", client_id="desk") as connection,
        connection.session() as session,
    ):
        publisher = session.publisher(TOPIC)
        with session.subscribe(TOPIC, name="late", selector="delay > 60") as late:
            publisher.send(b"1", {"delay": 90})
            with pytest.raises(gapless.SubscriptionInUseError):
                session.subscribe(TOPIC, name="late", on_change="jms", in_use="takeover")
            token = late.token
        with pytest.raises(gapless.ConfigurationError, match="takes no token"):
            session.subscribe(TOPIC, name="late", on_change="jms", start=token)
        with session.subscribe(TOPIC, name="late", selector="delay < 60", on_change="jms") as punctual:
            publisher.send(b"2", {"delay": 10})
            event = punctual.receive(timeout=20)

    assert event is not None
    assert event.body == b"2"


@pytest.mark.parametrize("client_id", ["desk", ""])
async def test_no_local_leaves_out_what_its_own_client_publishes(client_id: str) -> None:
    """Of those that identify themselves. Without a client id it is the connection that is meant."""
    async with running_node() as node, publishing(node, identify=True) as others, publishing(node) as unnamed:
        async with gapless.connect(node.url, client_id=client_id, identify=True) as connection:
            async with connection.session() as session:
                mine = session.publisher(TOPIC)
                async with session.subscribe(TOPIC, selector="delay < 60", no_local=True) as subscription:
                    for n, publisher in enumerate((mine, others, mine, unnamed)):
                        await publisher.send(b"%d" % n, {"delay": 10})
                    await mine.send_batch([gapless.Message(b"4", {"delay": 10})])
                    await others.send(b"5", {"delay": 10})
                    events = [await asyncio.wait_for(anext(subscription), 20) for _ in range(3)]

    assert [event.body for event in events] == [b"1", b"3", b"5"]
    assert [event.properties.get("JMSXAppID") for event in events] == ["loader", None, "loader"]


async def test_no_local_is_a_part_of_a_durable_subscription(tmp_path: Path) -> None:
    """It stays in a crash, is listed, and another one changes it."""
    async with running_node(tmp_path / "volume") as node:
        async with gapless.connect(node.url, client_id="desk") as connection, connection.session() as session:
            await session.subscribe(TOPIC, name="others", no_local=True)
            [info] = await connection.subscriptions()
            with pytest.raises(gapless.SubscriptionMismatchError, match="with no_local"):
                await session.subscribe(TOPIC, name="others", in_use="takeover")
    async with running_node(tmp_path / "volume") as node, publishing(node, "desk", identify=True) as mine:
        async with publishing(node, identify=True) as others:
            await mine.send(b"0")
            await others.send(b"1")
        async with gapless.connect(node.url, client_id="desk") as connection, connection.session() as session:
            async with session.subscribe(TOPIC, name="others", no_local=True) as subscription:
                got = await take(subscription, 1)

    assert (info.selector, info.no_local) == ("", True)
    assert got == [1]


async def test_a_subscription_holds_no_more_than_its_prefetch() -> None:
    """The rest stays at the broker, and comes as it is taken."""
    async with running_node() as node, publishing(node) as publisher:
        async with gapless.connect(node.url) as connection, connection.session() as session:
            async with session.subscribe(TOPIC, prefetch=4) as subscription, session.subscribe(TOPIC) as other:
                await publish(publisher, range(40))
                await take(other, 40)
                core = connection._driver.core.subscription(subscription._number)
                assert core is not None
                buffered = core.buffered_events
                got = await take(subscription, 40)

    assert buffered <= 4
    assert got == list(range(40))


@pytest.mark.parametrize("prefetch", [0, -1, 1_000_001, True, 2.5, "10"])
async def test_nonsense_is_no_prefetch(prefetch: int) -> None:
    async with gapless.connect("embedded:") as connection, connection.session() as session:
        with pytest.raises(gapless.ConfigurationError, match="prefetch is a number of events from 1 to 1,000,000"):
            await session.subscribe(TOPIC, prefetch=prefetch)
