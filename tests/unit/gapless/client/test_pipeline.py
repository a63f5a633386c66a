"""`Publisher.send_all`: pipelined, in order, and no more read than there is room for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import gapless
from gapless.core.stream.ticks import STEP
from gapless.core.wire import messages as m
from unit.gapless.client.conftest import ADDRESS
from unit.gapless.client.fake_broker import BASE, PUBEND, logged
from unit.gapless.client.fake_network import FakeNetwork


@pytest.mark.parametrize("kind", ["list", "iterator", "async"])
async def test_send_all_yields_receipts_in_order(network: FakeNetwork, kind: str) -> None:
    messages = [gapless.Message(b"%d" % i) for i in range(5000)]

    async def slowly() -> AsyncIterator[gapless.Message]:
        for i, message in enumerate(messages):
            if i % 700 == 0:
                await asyncio.sleep(0.001)
            yield message

    source: Any = {"list": messages, "iterator": iter(messages), "async": slowly()}[kind]
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        ticks = [receipt.tick async for receipt in session.publisher("t").send_all(source)]

    assert ticks == network.broker.streams[PUBEND].ticks
    assert logged(network.broker) == [message.body for message in messages]
    assert max(batch.events.count for batch in network.broker.messages(m.Publish)) == 512


async def test_send_all_sends_the_first_event_at_once(network: FakeNetwork) -> None:
    """Receipts come while the source has nothing more to give."""
    more = asyncio.Event()

    async def source() -> AsyncIterator[gapless.Message]:
        yield gapless.Message(b"first")
        await more.wait()
        yield gapless.Message(b"second")

    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        receipts = session.publisher("t").send_all(source())
        assert (await anext(receipts)).tick == BASE + STEP
        more.set()
        assert (await anext(receipts)).tick == BASE + 2 * STEP
        with pytest.raises(StopAsyncIteration):
            await anext(receipts)


async def test_send_all_reads_no_more_than_there_is_room_for(network: FakeNetwork) -> None:
    read = 0

    def source() -> Iterator[gapless.Message]:
        nonlocal read
        while True:
            read += 1
            yield gapless.Message(b"x" * 100)

    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        receipts = session.publisher("t").send_all(source())
        await anext(receipts)
        network.broker.full_disk = True
        taking = asyncio.create_task(_count(receipts))
        before = 0
        for _ in range(100):
            await asyncio.sleep(0.05)
            if read == before:
                break
            before = read
        assert read == before
        assert 0 < read <= 2 * network.broker.window_batches * 512
        taking.cancel()
        network.broker.full_disk = False


async def _count(receipts: AsyncIterator[gapless.Receipt]) -> int:
    return sum([1 async for _ in receipts])


@pytest.mark.parametrize("awaited", [False, True])
async def test_send_all_raises_in_the_place_of_the_first_missing_receipt(network: FakeNetwork, awaited: bool) -> None:
    messages = [gapless.Message(b"a"), gapless.Message(b"b"), gapless.Message("no bytes"), gapless.Message(b"c")]

    async def source() -> AsyncIterator[gapless.Message]:
        for message in messages:
            yield message

    seen = []
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        with pytest.raises(gapless.InvalidMessageError):
            async for receipt in session.publisher("t").send_all(source() if awaited else messages):
                seen.append(receipt)  # noqa: PERF401 - what came before the error must stay

    assert len(seen) == 2
    assert logged(network.broker) == [b"a", b"b"]


async def test_send_all_left_early_is_published_all_the_same(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        publisher = session.publisher("t")
        messages = (gapless.Message(b"%d" % i) for i in range(1000))
        async for _ in publisher.send_all(messages):
            break
        await publisher.flush()

        assert len(logged(network.broker)) >= 512
        assert logged(network.broker) == [b"%d" % i for i in range(len(logged(network.broker)))]


async def test_the_source_of_send_all_is_closed_with_it(network: FakeNetwork) -> None:
    closed = asyncio.Event()

    async def source() -> AsyncIterator[gapless.Message]:
        try:
            while True:
                yield gapless.Message(b"x")
                await asyncio.sleep(0)
        finally:
            closed.set()

    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        receipts = session.publisher("t").send_all(source())
        await anext(receipts)
        await receipts.aclose()

    assert closed.is_set()


async def test_an_error_of_the_source_is_raised_behind_what_it_gave(network: FakeNetwork) -> None:
    def source() -> Iterator[gapless.Message]:
        yield gapless.Message(b"a")
        raise KeyError("mine")

    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        receipts = session.publisher("t").send_all(source())
        await anext(receipts)
        with pytest.raises(KeyError, match="mine"):
            await anext(receipts)


async def test_messages_of_very_different_sizes_make_batches_that_fit(network: FakeNetwork) -> None:
    network.broker.event_bytes = 500_000
    network.broker.frame_bytes = 600_000
    sizes = [10] * 600 + [400_000] * 5 + [10] * 50 + [200_000] * 5
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        messages = [gapless.Message(bytes(size)) for size in sizes]
        receipts = [receipt async for receipt in session.publisher("t").send_all(messages)]

    assert len(receipts) == len(sizes)
    assert [len(body) for body in logged(network.broker)] == sizes
    assert max(batch.events.size for batch in network.broker.messages(m.Publish)) < 500_000


async def test_a_slow_source_that_is_at_hand_does_not_hold_events_back(network: FakeNetwork) -> None:
    def source() -> Iterator[gapless.Message]:
        for i in range(3):
            time.sleep(0.005)
            yield gapless.Message(b"%d" % i)

    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async for _ in session.publisher("t").send_all(source()):
            pass

    assert [batch.events.count for batch in network.broker.messages(m.Publish)] == [1, 1, 1]


async def test_messages_that_are_not_alike_share_a_batch_all_the_same(network: FakeNetwork) -> None:
    messages = [
        gapless.Message(b"a", {"x": 1}),
        gapless.Message(b"b", {"x": None}),
        gapless.Message(b"c", topic="u", priority=9),
        gapless.Message(bytearray(b"d"), None),  # type: ignore[arg-type]
    ]
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async for _ in session.publisher("t").send_all(messages):
            pass

    assert [batch.events.count for batch in network.broker.messages(m.Publish)] == [4]
    headers = network.broker.streams[PUBEND].headers
    assert [header.topic for header in headers] == ["t", "t", "u", "t"]
    assert [header.properties for header in headers] == [{"x": 1}, {}, {}, {}]


async def test_one_of_many_that_is_too_large_is_refused_behind_the_others(network: FakeNetwork) -> None:
    messages = [gapless.Message(b"x" * size) for size in (10, 10, 70_000, 10)]
    seen = []
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        with pytest.raises(gapless.InvalidMessageError, match="at most 65536"):
            async for receipt in session.publisher("t").send_all(messages):
                seen.append(receipt)  # noqa: PERF401 - what came before the error must stay

    assert len(seen) == 2


async def test_nothing_to_send(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        assert [receipt async for receipt in session.publisher("t").send_all([])] == []


async def test_two_pipelines_and_a_send_share_a_publisher(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        publisher = session.publisher("t")

        async def run(name: str) -> list[int]:
            messages = [gapless.Message(f"{name}{i}".encode()) for i in range(1500)]
            return [receipt.tick async for receipt in publisher.send_all(messages)]

        first, second, alone = await asyncio.gather(run("a"), run("b"), publisher.send(b"c"))

    assert len({*first, *second, alone.tick}) == 3001
    bodies = logged(network.broker)
    assert [body for body in bodies if body.startswith(b"a")] == [b"a%d" % i for i in range(1500)]
    assert [body for body in bodies if body.startswith(b"b")] == [b"b%d" % i for i in range(1500)]
