"""Several publishers, with one name and without any, against a real broker: whose events are logged, who is known."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import gapless
from gapless import sync
from gapless.core.wire.messages import OpenPublisher, PublisherOpened
from gapless.node.node import Node
from integration.nodes_in_process import running_node
from integration.raw_client import RawClient

CLICK = gapless.Message(b"click", {"page": "/"})


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with running_node(tmp_path / "volume", phb={"max_publishers": 20, "publisher_expiry_seconds": 0.5}) as node:
        yield node


async def known(connection: gapless.Connection) -> int:
    [pubend] = await connection.pubends()
    return pubend.publishers


class TestOneNameForSeveral:
    """Whoever opens a name later owns it; equal events are no repetitions."""

    async def test_no_event_of_two_live_publishers_is_swallowed(self, node: Node) -> None:
        async with gapless.connect(node.url) as one, gapless.connect(node.url) as two:
            async with one.session() as session, two.session() as other:
                async with session.subscribe("clicks", name="s") as subscription:
                    older = session.publisher("clicks", name="web")
                    first = await older.send(b"first")
                    newer = other.publisher("clicks", name="web")
                    receipts = [await newer.send(b"click") for _ in range(3)]
                    for _ in range(3):
                        with pytest.raises(gapless.PublisherFencedError, match="a name each, or none"):
                            await older.send(b"click")
                    receipts.append(await newer.send(b"click"))

                    events = [await anext(subscription) for _ in range(5)]

        assert [event.tick for event in events] == [receipt.tick for receipt in (first, *receipts)]
        assert [event.body for event in events] == [b"first", *[b"click"] * 4]

    async def test_three_in_turn_on_one_connection(self, node: Node) -> None:
        """The name goes to each in turn; what each has a receipt for is logged, and nothing else."""
        async with gapless.connect(node.url) as connection, connection.session() as session:
            async with session.subscribe("clicks", name="s") as subscription:
                owners, receipts = [], []
                for _ in range(3):
                    owners.append(session.publisher("clicks", name="web"))
                    receipts += await owners[-1].send_batch([CLICK, CLICK])
                    for older in owners[:-1]:
                        with pytest.raises(gapless.PublisherFencedError):
                            await older.send_batch([CLICK, CLICK])
                events = [await anext(subscription) for _ in range(6)]

            assert [event.tick for event in events] == [receipt.tick for receipt in receipts]
            assert (await owners[-1].recover()).sequence == 6

    async def test_workers_without_a_name_do_not_disturb_each_other(self, node: Node) -> None:
        async with gapless.connect(node.url) as one, gapless.connect(node.url) as two:
            async with one.session() as session, two.session() as other:
                workers = [session.publisher("clicks"), other.publisher("clicks")]
                receipts = await asyncio.gather(*(worker.send(b"click") for worker in workers * 10))

        assert len({receipt.tick for receipt in receipts}) == 20

    async def test_blocking(self, node: Node) -> None:
        def work() -> tuple[list[int], list[int]]:
            with sync.connect(node.url) as one, sync.connect(node.url) as two:
                with one.session() as session, two.session() as other:
                    subscription = session.subscribe("clicks", name="s")
                    older = session.publisher("clicks", name="web")
                    ticks = [older.send(b"click").tick]
                    newer = other.publisher("clicks", name="web")
                    ticks.append(newer.send(b"click").tick)
                    with pytest.raises(gapless.PublisherFencedError, match="a name each, or none"):
                        older.send(b"click")
                    events = [subscription.receive(timeout=10) for _ in range(2)]
                    return ticks, [event.tick for event in events if event is not None]

        ticks, received = await asyncio.to_thread(work)
        assert ticks == received


class TestWithoutAName:
    """Who is closed is forgotten at once, who is gone after `publisher_expiry_seconds`."""

    async def test_web_requests_leave_nothing_behind(self, node: Node) -> None:
        async with gapless.connect(node.url) as watcher:
            for _ in range(30):
                async with gapless.connect(node.url) as connection, connection.session() as session:
                    await session.publisher("clicks").send(b"x")
            async with gapless.connect(node.url) as connection, connection.session() as session:
                for number in range(30):
                    async with session.publisher("clicks") as publisher:
                        await publisher.send(b"x")
                    if number % 3 == 0:
                        session.publisher("clicks")  # never used, and closed with its session
            assert await known(watcher) == 0

    async def test_blocking_requests_neither(self, node: Node) -> None:
        def work() -> None:
            for _ in range(30):
                with sync.connect(node.url) as connection, connection.session() as session:
                    session.publisher("clicks").send(b"x")

        await asyncio.to_thread(work)
        async with gapless.connect(node.url) as watcher:
            assert await known(watcher) == 0

    async def test_who_leaves_by_an_exception_is_forgotten_too(self, node: Node) -> None:
        async with gapless.connect(node.url) as watcher:
            with pytest.raises(ZeroDivisionError):
                async with gapless.connect(node.url) as connection, connection.session() as session:
                    await session.publisher("clicks").send(b"x")
                    raise ZeroDivisionError
            assert await known(watcher) == 0

    async def test_dead_ones_expire_and_live_ones_stay(self, node: Node) -> None:
        async with gapless.connect(node.url) as live, live.session() as session:
            publisher = session.publisher("clicks")
            await publisher.send(b"x")
            for number in range(30):
                async with RawClient(node.url.removeprefix("gapless://")) as dead:
                    await dead.shake_hands(f"dead-{number}")
                    await dead.say(OpenPublisher(1, f"~{number}", "raw", 1, None))
                    assert await dead.hear(PublisherOpened) is not None
            for _ in range(100):
                if await known(live) == 1:
                    break
                await asyncio.sleep(0.05)
            assert await known(live) == 1
            await publisher.send(b"y")

    async def test_a_name_of_its_own_is_kept(self, node: Node) -> None:
        async with gapless.connect(node.url) as connection:
            async with connection.session() as session:
                await session.publisher("clicks", name="loader").send(b"x")
            async with connection.session() as session:
                assert (await session.publisher("clicks", name="loader").recover()).sequence == 1
            assert await known(connection) == 1

    async def test_a_name_that_would_be_forgotten_is_refused(self, node: Node) -> None:
        async with gapless.connect(node.url) as connection, connection.session() as session:
            with pytest.raises(gapless.ConfigurationError, match="begins with '~'"):
                session.publisher("clicks", name="~loader")
