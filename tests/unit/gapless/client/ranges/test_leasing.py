"""A lease as applications hold it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import gapless


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[gapless.Connection, gapless.Connection]]:
    """Two connections of one client to one broker, and a subscription."""
    address = f"embedded:{tmp_path / 'volume'}"
    async with gapless.connect(address, client_id="c") as one, gapless.connect(address, client_id="c") as other:
        await one.attach("s", "t")
        yield one, other


Pair = tuple[gapless.Connection, gapless.Connection]


async def test_who_loses_it_is_told(pair: Pair) -> None:
    one, other = pair
    async with one.lease("s", "a") as lease:
        lease.check()
        over = asyncio.ensure_future(lease.over())
        async with other.lease("s", "b", in_use="takeover"):
            assert isinstance(await over, gapless.SubscriptionTakenOverError)
            with pytest.raises(gapless.SubscriptionTakenOverError):
                lease.check()


async def test_one_that_is_not_granted_is_raised(pair: Pair) -> None:
    one, other = pair
    async with one.lease("s", "a"):
        with pytest.raises(gapless.SubscriptionInUseError):
            await other.lease("s", "b")


async def test_who_waits_can_give_up(pair: Pair) -> None:
    one, other = pair
    async with one.lease("s", "a"):
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(other.lease("s", "b", in_use="wait").__aenter__(), 0.05)
    async with one.lease("s", "c"):
        pass


async def test_it_is_free_when_its_connection_is_gone(pair: Pair) -> None:
    one, other = pair
    await one.lease("s", "a")
    await one.close()
    async with other.lease("s", "b", in_use="wait"):
        pass


async def test_a_consumer_and_a_lease_exclude_each_other(pair: Pair) -> None:
    one, other = pair
    async with one.session() as session:
        async with session.subscribe("t", name="s"):
            with pytest.raises(gapless.SubscriptionInUseError):
                await other.lease("s", "b")
        async with other.lease("s", "b"):
            with pytest.raises(gapless.SubscriptionInUseError):
                await session.subscribe("t", name="s")


async def test_when_the_connection_is_closed_it_is_over(pair: Pair) -> None:
    one, _ = pair
    lease = await one.lease("s", "a")
    lease.release()
    lease.release()
    with pytest.raises(gapless.SubscriptionError):
        lease.check()
    another = await one.lease("s", "a")
    await one.close()

    assert isinstance(await another.over(), gapless.ConnectionClosedError)
