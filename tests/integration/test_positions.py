"""Positions of a real broker: what it ever told is good for ever, and what nobody was told is refused (T11, U03)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import gapless
from gapless.core.stream.ticks import FOREVER, MILLISECOND, SECOND, STEP
from integration.broker_process import BrokerProcess, bounded

SHORT_PROMISES = {"silence_seconds": 0.01, "reservation_seconds": 0.02}
"""So that of a second without a broker nearly all is void."""


async def publish(url: str, topic: str, count: int) -> gapless.CheckpointToken:
    """Publishes, and returns the position behind that."""
    async with gapless.connect(url) as connection, connection.session() as session:
        publisher = session.publisher(topic)
        receipts = await bounded(publisher.send_batch([gapless.Message(b"x") for _ in range(count)]))
        return gapless.CheckpointToken(connection.network, {receipts[-1].pubend: receipts[-1].tick})


async def test_a_position_in_a_time_without_a_broker_is_good(tmp_path: Path) -> None:
    """Silence may end there, and so may what is acknowledged: wherever a range of what is fetched happens to end."""
    async with BrokerProcess(tmp_path, phb=SHORT_PROMISES) as broker:
        first = await publish(broker.url, "a", 1)
        for _ in range(2):
            await broker.kill()
            await asyncio.sleep(1)  # this is the time without a broker
            await broker.start()
            last = await publish(broker.url, "a", 1)
        async with gapless.connect(broker.url, client_id="z") as connection, connection.session() as session:
            async with session.subscribe("b", name="z", start="earliest", silence=True) as subscription:
                await bounded(session.publisher("b").send(b"1"))
                token = subscription.token
                told = [token]
                async for item in subscription:
                    told.append(subscription.token)
                    if isinstance(item, gapless.Event):
                        break
            ((pubend, start),) = first.ticks.items()
            between = range(start, last.ticks[pubend], 10 * MILLISECOND)
            # Where events stand silence never ends; that of the others it may end anywhere is not in the test's hand.
            told += [token.advance({pubend: tick - tick % STEP + STEP - 1}) for tick in between]
            told += [info.acknowledged for info in await connection.subscriptions()]
            assert len(told) > 200
            for position in told:
                await bounded(connection.heads("z", after=position))
            for position in told[:: len(told) // 10]:
                await bounded(connection.bound("z", position, max_events=1))
                async with session.subscribe("b", name="z", start=position):
                    pass


@pytest.mark.parametrize("ahead", ["a minute", "2 to the power of 62", "the end of all ticks"])
async def test_a_subscription_ahead_of_everything_is_not_created(tmp_path: Path, ahead: str) -> None:
    """It would be silent for ever."""
    async with BrokerProcess(tmp_path) as broker:
        now = await publish(broker.url, "t", 1)
        ((pubend, tick),) = now.ticks.items()
        places = {"a minute": tick + 60 * SECOND, "2 to the power of 62": 1 << 62, "the end of all ticks": FOREVER}
        token = gapless.CheckpointToken(now.network, {pubend: places[ahead]})
        async with gapless.connect(broker.url, client_id="c") as connection, connection.session() as session:
            with pytest.raises(gapless.TokenAheadError, match="'orders' stands ahead of everything that default@"):
                await bounded(session.subscribe("t", name="orders", start=token))
            with pytest.raises(gapless.TokenAheadError, match="'etl' stands ahead"):
                await bounded(connection.attach("etl", "t", start=token))
            assert await connection.subscriptions() == []


async def test_what_nobody_was_handed_out_is_not_acknowledged(tmp_path: Path) -> None:
    """The one who says so is told; what comes is for him all the same, and others notice nothing."""
    async with BrokerProcess(tmp_path) as broker:
        now = await publish(broker.url, "t", 1)
        ((pubend, _),) = now.ticks.items()
        beyond = gapless.CheckpointToken(now.network, {pubend: FOREVER})
        async with gapless.connect(broker.url, client_id="c") as connection, connection.session() as session:
            other = await bounded(session.subscribe("t", name="other"))
            subscription = await bounded(session.subscribe("t", name="orders"))
            await subscription.acknowledge(beyond)
            with pytest.raises(gapless.TokenAheadError, match="'orders' stands ahead of everything"):
                await bounded(anext(subscription))
            with pytest.raises(gapless.TokenAheadError, match="'orders'"):
                await subscription.acknowledge()
            with pytest.raises(gapless.TokenAheadError, match="'other' stands ahead"):
                await bounded(connection.ack("other", beyond))

            await broker.kill()
            await broker.start()
            receipt = await bounded(session.publisher("t").send(b"after"))
            async with session.subscribe("t", name="orders") as again:
                assert (await bounded(anext(again))).tick == receipt.tick
            assert (await bounded(anext(other))).tick == receipt.tick
