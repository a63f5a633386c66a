"""Sessions: what is begun together ends together."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

import gapless
from gapless.core.stream.ticks import STEP
from unit.gapless.client.conftest import ADDRESS
from unit.gapless.client.fake_broker import BASE, PUBEND
from unit.gapless.client.fake_network import FakeNetwork


async def test_leaving_well_waits_for_receipts(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        publisher = session.publisher("t")
        sending = asyncio.create_task(publisher.send(b"a"))
        await asyncio.sleep(0)

    assert (await sending).tick == BASE + STEP


async def test_leaving_does_not_wait_for_a_disk_that_is_full(network: FakeNetwork) -> None:
    network.broker.full_disk = True
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        sending = asyncio.create_task(session.publisher("t").send(b"a"))
        await asyncio.sleep(0.01)

    with pytest.raises(gapless.PublishUncertainError):
        await sending


async def test_leaving_by_an_exception_does_not_wait(network: FakeNetwork) -> None:
    sending: asyncio.Future[Any]
    with pytest.raises(ZeroDivisionError):
        async with gapless.connect(ADDRESS) as connection, connection.session() as session:
            publisher = session.publisher("t")
            await publisher.recover()
            network.stalled = True
            sending = asyncio.ensure_future(publisher.send(b"a"))
            await asyncio.sleep(0.01)
            raise ZeroDivisionError

    with pytest.raises(gapless.PublishUncertainError):
        await sending


async def test_leaving_a_session_ends_what_it_made_and_nothing_else(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as other:
        kept = await other.subscribe("t", name="kept")
        async with connection.session() as session:
            publisher = session.publisher("t")
            subscription = await session.subscribe("t", name="s")
            await publisher.send(b"a")
        await asyncio.sleep(0.01)
        assert network.broker.subscriptions[2].session is None
        with pytest.raises(gapless.ConnectionClosedError):
            await publisher.send(b"b")
        with pytest.raises(gapless.SubscriptionError):
            await anext(subscription)
        with pytest.raises(gapless.SubscriptionError, match="session is closed"):
            session.publisher("t")
        with pytest.raises(gapless.SubscriptionError, match="session is closed"):
            _ = session.subscribe("t")
        await session.close()
        assert (await anext(kept)).body == b"a"


async def test_auto_acknowledges_what_a_session_that_ends_well_has_handed_out(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session(gapless.AckMode.AUTO) as session:
        subscription = await session.subscribe("t", name="s")
        (tick,) = network.log(b"a")
        await anext(subscription)
    assert network.broker.subscriptions[1].acknowledged == {PUBEND: tick}


async def test_drain_of_a_session(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        subscription = await session.subscribe("t")
        session.drain()
        assert [event async for event in subscription] == []


async def test_a_session_that_cannot_be(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection:
        with pytest.raises(gapless.ConfigurationError, match="AckMode"):
            connection.session("auto")  # type: ignore[arg-type]


async def test_close_says_what_nobody_heard_although_the_rest_is_well(network: FakeNetwork) -> None:
    network.broker.rejects = b"bad"
    async with gapless.connect(ADDRESS) as connection:
        session = connection.session()
        publisher = session.publisher("t")
        await publisher.recover()
        network.stalled = True
        sending = asyncio.ensure_future(publisher.send(b"bad"))
        await asyncio.sleep(0.01)
        sending.cancel()
        network.flow()
        with pytest.raises(gapless.PublishRejectedError):
            await session.close()


async def test_a_session_does_not_keep_what_is_over(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        made: list[weakref.ref[Any]] = []
        for _ in range(5):
            async with session.subscribe("t") as subscription, session.publisher("t") as publisher:
                await publisher.send(b"a")
                await anext(subscription)
            made += [weakref.ref(subscription), weakref.ref(publisher)]
        del subscription, publisher
        gc.collect()

        assert sum(one() is not None for one in made) <= 2, "the last of each, until there is another one"
