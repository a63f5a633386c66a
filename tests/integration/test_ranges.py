"""Subscriptions read by ranges, and keyed publishing, against a real broker: over TCP, on RocksDB and in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import gapless
from integration.nodes_in_process import running_node


@pytest.fixture(params=["memory", "rocksdb"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """Where a fresh broker listens."""
    async with running_node(None if request.param == "memory" else tmp_path / "volume") as node:
        yield node.url


async def publish(connection: gapless.Connection, numbers: range) -> list[gapless.Receipt]:
    """Publishes a numbered event each."""
    async with connection.session() as session:
        publisher = session.publisher("t")
        messages = [gapless.Message(b"%d" % n, {"n": n}) for n in numbers]
        return await publisher.send_batch(messages) if messages else []


async def numbers(
    connection: gapless.Connection, name: str, start: gapless.CheckpointToken, end: gapless.CheckpointToken
) -> list[object]:
    """The numbers of the events between two positions."""
    found: list[object] = []
    for pubend, tick in end.ticks.items():
        async with connection.read_range(name, pubend, start.ticks.get(pubend, 0), tick) as reader:
            found += [event.properties["n"] async for event in reader]
            assert reader.position == tick
    return found


async def test_the_life_of_a_query(url: str) -> None:
    """As a micro-batch engine lives it: attach, plan, read in pieces and again, acknowledge, come back."""
    async with gapless.connect(url, client_id="etl") as connection:
        position = await connection.attach("orders", "t", selector="n >= 3")
        await publish(connection, range(10))
        head = await connection.heads("orders", after=position, wait=10)
        assert await numbers(connection, "orders", position, head) == list(range(3, 10))

        first = await connection.bound("orders", position, max_events=4)
        assert await numbers(connection, "orders", position, first) == [3, 4, 5, 6]
        assert await numbers(connection, "orders", first, head) == [7, 8, 9]
        await connection.ack("orders", first)
    async with gapless.connect(url, client_id="etl") as connection:
        assert await connection.attach("orders", "t", selector="n >= 3") == first
        await publish(connection, range(10, 12))
        later = await connection.heads("orders", after=head, wait=10)
        assert await numbers(connection, "orders", first, later) == [7, 8, 9, 10, 11]
        with pytest.raises(gapless.SubscriptionMismatchError):
            await connection.attach("orders", "t", selector="n >= 4")


async def test_a_restart_of_the_broker_in_the_middle_of_everything(tmp_path: Path) -> None:
    """The position is the application's: what was read is read again, and what was acknowledged stays so."""
    async with running_node(tmp_path / "volume") as node, gapless.connect(node.url, client_id="etl") as connection:
        position = await connection.attach("orders", "t")
        await publish(connection, range(300))
        head = await connection.heads("orders", after=position, wait=10)
        middle = await connection.bound("orders", position, max_events=100)
        await connection.ack("orders", middle)
    async with running_node(tmp_path / "volume") as node, gapless.connect(node.url, client_id="etl") as connection:
        assert (await connection.attach("orders", "t")).ticks == middle.ticks
        assert await numbers(connection, "orders", middle, head) == list(range(100, 300))
        assert (await connection.heads("orders", after=middle)).ticks.keys() == head.ticks.keys()


async def test_many_read_the_same_range_at_once(url: str) -> None:
    """Stateless: any number, on any connection of the client, each all of it."""
    async with gapless.connect(url, client_id="etl") as connection:
        position = await connection.attach("orders", "t")
        for part in range(5):
            await publish(connection, range(1000 * part, 1000 * (part + 1)))
        head = await connection.heads("orders", after=position, wait=10)
        while len(await numbers(connection, "orders", position, head)) < 5000:
            head = await connection.heads("orders", after=head, wait=10)

        async def task() -> list[object]:
            async with gapless.connect(url, client_id="etl") as own:
                return await numbers(own, "orders", position, head)

        for found in await asyncio.gather(*(task() for _ in range(4))):
            assert found == list(range(5000))


async def test_a_subscription_that_begins_in_the_past(url: str) -> None:
    async with gapless.connect(url, client_id="etl") as connection:
        await publish(connection, range(5))
        position = await connection.attach("orders", "t", start="earliest")
        assert await numbers(connection, "orders", position, await connection.heads()) == list(range(5))
        assert await connection.earliest() <= await connection.heads()


async def test_two_queries_of_one_subscription(url: str) -> None:
    """The second is told who has it; it is free when the first one's connection is gone."""
    async with gapless.connect(url, client_id="etl") as connection:
        position = await connection.attach("orders", "t")
        async with gapless.connect(url, client_id="etl") as second:
            lease = await connection.lease("orders", "query-1")
            with pytest.raises(gapless.SubscriptionInUseError, match="'query-1'"):
                await second.lease("orders", "query-2")
            with pytest.raises(gapless.SubscriptionInUseError):
                await second.ack("orders", position)
            waiting = asyncio.ensure_future(second.lease("orders", "query-2", in_use="wait").__aenter__())
            await asyncio.sleep(0.05)
            assert not waiting.done()
            lease.release()
            await waiting
            with pytest.raises(gapless.SubscriptionInUseError):
                await connection.lease("orders", "query-1")
        async with connection.lease("orders", "query-1") as lease:
            lease.check()


async def test_a_sink_that_repeats_itself(url: str) -> None:
    """As a replayed task does: the same keys, cut differently; and an attempt that is late."""
    rows = [gapless.Message(b"%d" % n, {"n": n}) for n in range(20_000)]
    async with gapless.connect(url, client_id="etl") as connection:
        position = await connection.attach("orders", "t")
        first = await connection.publish("query/0", 1, 0, rows[:9000], topic="t")
        again = await connection.publish("query/0", 1, 0, rows, topic="t")
        late = await connection.publish("query/0", 0, 5, rows[:10], topic="t")
        other = await connection.publish("query/1", 1, 0, rows[:10], topic="t")
        assert [(one.published, one.duplicates) for one in (first, again, late, other)] == [
            (9000, 0),
            (11_000, 9000),
            (0, 10),
            (10, 0),
        ]
        head = await connection.heads()
        found = await numbers(connection, "orders", position, head)
        while len(found) < 20_010:
            head = await connection.heads("orders", after=head, wait=10)
            found = await numbers(connection, "orders", position, head)
        assert found == [*range(20_000), *range(10)]


async def test_a_sink_repeats_itself_after_a_restart_of_the_broker(tmp_path: Path) -> None:
    rows = [gapless.Message(b"%d" % n) for n in range(10)]
    async with running_node(tmp_path / "volume") as node, gapless.connect(node.url) as connection:
        await connection.publish("query/0", 1, 0, rows, topic="t")
    async with running_node(tmp_path / "volume") as node, gapless.connect(node.url) as connection:
        again = await connection.publish("query/0", 1, 5, rows, topic="t")
        assert (again.published, again.duplicates) == (5, 5)


def test_the_same_blocking() -> None:
    with gapless.sync.connect("embedded:", client_id="etl") as connection:
        position = connection.attach("orders", "t", timeout=10)
        receipt = connection.publish("q", 0, 0, [gapless.Message(b"a"), gapless.Message(b"b")], topic="t", timeout=10)
        head = connection.heads("orders", after=position, wait=10, timeout=20)
        end = connection.bound("orders", position, max_events=1, timeout=10)
        with connection.lease("orders", "me", timeout=10) as lease:
            assert lease.owner == "me"
            lease.check()
            with connection.read_range("orders", receipt.pubend, 0, head.ticks[receipt.pubend]) as reader:
                assert [event.body for event in reader] == [b"a", b"b"]
            with connection.read_range("orders", receipt.pubend, 0, end.ticks[receipt.pubend]) as reader:
                assert [part.count for part in reader.parts() if not isinstance(part, gapless.Gap)] == [1]
            connection.ack("orders", head, timeout=10)
        assert connection.earliest("orders", timeout=10) <= head
