"""`AckMode.AUTO`, as an application sees it: the position is kept by the broker."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import gapless
from gapless.core.wire import messages as m
from unit.gapless.client.conftest import ADDRESS, die, until
from unit.gapless.client.fake_broker import BASE, PUBEND
from unit.gapless.client.fake_network import FakeNetwork


@asynccontextmanager
async def consuming(**wanted: Any) -> AsyncIterator[Any]:
    """One application, which consumes the subscription `s`."""
    async with gapless.connect(ADDRESS) as connection, connection.session(gapless.AckMode.AUTO) as session:
        async with session.subscribe("t", **{"name": "s", **wanted}) as subscription:
            yield subscription


async def dies_with(count: int) -> None:
    """An application dies with the last of so many events in hand: its connection ends, and it says nothing."""
    connection = await gapless.connect(ADDRESS)
    session = connection.session(gapless.AckMode.AUTO)
    subscription = await session.subscribe("t", name="s")
    for _ in range(count):
        await anext(subscription)
    die(subscription)


async def test_the_next_event_comes_when_the_one_before_is_durably_committed(network: FakeNetwork) -> None:
    async with consuming() as subscription:
        ticks = network.log(b"a", b"b")
        await anext(subscription)
        network.broker.withheld = []
        waiting = asyncio.ensure_future(anext(subscription))
        await until(lambda: bool(network.broker.withheld))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        assert network.broker.subscriptions[1].acknowledged == {PUBEND: ticks[0]}

        network.broker.tell(*network.broker.withheld.pop())
        network.broker.withheld = None
        network.silence()
        assert (await waiting).body == b"b"


async def test_what_was_in_hand_comes_again_marked(network: FakeNetwork) -> None:
    network.log(b"before")
    async with consuming(start="earliest") as subscription:
        assert not (await anext(subscription)).redelivered
    network.log(b"a", b"b", b"c")
    await dies_with(2)
    async with consuming() as subscription:
        events = [await anext(subscription) for _ in range(2)]

    assert [(event.body, event.redelivered, event.delivery_count) for event in events] == [
        (b"b", True, 2),
        (b"c", False, 1),
    ]


async def test_an_exception_says_what_was_in_hand(network: FakeNetwork) -> None:
    network.log(b"a")
    for count in range(1, 4):
        with pytest.raises(ZeroDivisionError):
            async with consuming(start="earliest") as subscription:
                event = await anext(subscription)
                raise ZeroDivisionError
        assert event.delivery_count == count


async def test_a_batch_that_was_in_hand_is_marked_as_a_whole(network: FakeNetwork) -> None:
    async with consuming():
        pass
    network.log(*(b"%d" % i for i in range(6)))
    with pytest.raises(ZeroDivisionError):
        async with consuming() as subscription:
            async for batch in subscription.batches(max_events=4):
                assert [event.redelivered for event in batch] == [False] * 4
                raise ZeroDivisionError
    async with consuming() as subscription:
        batches = subscription.batches()
        first, second = await anext(batches), await anext(batches)

    assert [(event.body, event.redelivered) for event in first] == [(b"0", True)]
    assert [(event.body, event.redelivered) for event in second] == [(b"%d" % i, i < 4) for i in range(1, 6)]
    assert pickle.loads(pickle.dumps(second)) == second


async def test_a_batch_that_waits_for_more_events_is_announced_before_it_comes(network: FakeNetwork) -> None:
    async with consuming() as subscription:
        batches = subscription.batches(max_events=8, max_wait=0.05)
        ticks = network.log(*(b"%d" % i for i in range(5)))
        assert len(await anext(batches)) == 5

    announced = [commit.unit for commit in network.broker.messages(m.Commit) if commit.unit is not None]
    assert announced == [m.Unit(PUBEND, ticks[0], ticks[4])]


async def test_the_end_of_the_block_waits_until_the_last_event_is_committed(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session(gapless.AckMode.AUTO) as session:
        subscription = await session.subscribe("t", name="s")
        (tick,) = network.log(b"a")
        await anext(subscription)
        network.broker.withheld = []
        closing = asyncio.ensure_future(subscription.close())
        await until(lambda: bool(network.broker.withheld))
        await asyncio.sleep(0.02)
        assert not closing.done()
        network.broker.tell(*network.broker.withheld.pop())
        network.silence()
        await closing
        assert network.broker.subscriptions[1].acknowledged[PUBEND] == tick

        await until(lambda: bool(network.broker.messages(m.Detach)))
        assert network.broker.messages(m.Detach)[-1].handed == []


async def test_a_subscription_is_closed_while_another_task_waits_for_an_event(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session(gapless.AckMode.AUTO) as session:
        subscription = await session.subscribe("t", name="s")
        waiting = asyncio.ensure_future(anext(subscription))
        await asyncio.sleep(0.02)
        await subscription.close()

        with pytest.raises(gapless.SubscriptionError):
            await waiting


async def test_a_cancelled_anext_loses_nothing_and_hands_out_nothing_twice(network: FakeNetwork) -> None:
    async with consuming() as subscription:
        seen = []
        for i in range(50):
            waiting = asyncio.ensure_future(anext(subscription))
            await asyncio.sleep(0)
            network.log(b"%d" % i)
            for _ in range(i % 6):
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            if not waiting.cancelled():
                seen.append(waiting.result().body)
        while len(seen) < 50:
            seen.append((await anext(subscription)).body)

    assert seen == [b"%d" % i for i in range(50)]


async def test_a_commit_outlives_a_lost_connection(network: FakeNetwork) -> None:
    async with consuming() as subscription:
        network.log(*(b"%d" % i for i in range(6)))
        seen = [await anext(subscription) for _ in range(3)]
        network.cut()
        seen += [await anext(subscription) for _ in range(3)]

    assert [event.body for event in seen] == [b"%d" % i for i in range(6)]
    assert not any(event.redelivered for event in seen)


async def test_without_a_durable_name_nothing_is_committed(network: FakeNetwork) -> None:
    async with consuming(name=None) as subscription:
        network.log(*(b"%d" % i for i in range(6)))
        assert [(await anext(subscription)).body for _ in range(6)] == [b"%d" % i for i in range(6)]

    assert network.broker.messages(m.Commit) == []
    assert not network.broker.messages(m.Subscribe)[0].commits


async def test_drain_ends_the_iteration_behind_what_is_in_hand(network: FakeNetwork) -> None:
    async with consuming() as subscription:
        ticks = network.log(b"a", b"b", b"c")
        seen = []
        async for event in subscription:
            seen.append(event.body)
            subscription.drain()
        assert seen == [b"a"]

    assert network.broker.subscriptions[1].acknowledged == {PUBEND: ticks[0]}


async def test_the_token_stands_behind_what_is_in_hand(network: FakeNetwork) -> None:
    async with consuming() as subscription:
        assert subscription.token.ticks == {PUBEND: BASE}
        ticks = network.log(b"a", b"b", b"c")
        await anext(subscription)
        await anext(subscription)
        assert subscription.token.ticks == {PUBEND: ticks[1]}
