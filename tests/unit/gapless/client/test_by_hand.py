"""`AckMode.CLIENT`, as an application sees it: all that was handed out is one unit, until the session acknowledges."""

from __future__ import annotations

import asyncio
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
async def consuming(**wanted: Any) -> AsyncIterator[tuple[Any, Any]]:
    """One application, which consumes the subscription `s`: its session and its subscription."""
    async with gapless.connect(ADDRESS) as connection, connection.session(gapless.AckMode.CLIENT) as session:
        async with session.subscribe("t", **{"name": "s", **wanted}) as subscription:
            yield session, subscription


async def take(subscription: Any, count: int) -> list[tuple[bytes, int]]:
    """The body and the count of so many events."""
    events = [await anext(subscription) for _ in range(count)]
    return [(event.body, event.delivery_count) for event in events]


def firsts(bodies: str, count: int = 1) -> list[tuple[bytes, int]]:
    """Events of one byte each, all handed out for the same time."""
    return [(body.encode(), count) for body in bodies]


def units(network: FakeNetwork) -> list[tuple[int, int]]:
    """What was announced."""
    return [(c.unit.first, c.unit.last) for c in network.broker.messages(m.Commit) if c.unit is not None]


async def test_nothing_is_acknowledged_before_the_application_says_so(network: FakeNetwork) -> None:
    async with consuming() as (session, subscription):
        ticks = network.log(b"a", b"b", b"c")
        assert await take(subscription, 2) == firsts("ab")
        assert network.broker.subscriptions[1].acknowledged == {PUBEND: BASE}
        await session.acknowledge()
        assert network.broker.subscriptions[1].acknowledged == {PUBEND: ticks[1]}
        assert await take(subscription, 1) == firsts("c")

    assert network.broker.subscriptions[1].acknowledged == {PUBEND: ticks[1]}
    async with consuming() as (_, subscription):
        assert await take(subscription, 1) == firsts("c", 2)


async def test_an_acknowledgement_is_durable_when_it_returns(network: FakeNetwork) -> None:
    async with consuming() as (session, subscription):
        network.log(b"a", b"b")
        await take(subscription, 1)
        network.broker.withheld = []
        acknowledging = asyncio.ensure_future(session.acknowledge())
        asking = asyncio.ensure_future(anext(subscription))
        await until(lambda: bool(network.broker.withheld))
        await asyncio.sleep(0.02)
        assert not acknowledging.done()
        assert not asking.done()

        network.broker.tell(*network.broker.withheld.pop())
        network.broker.withheld = None
        network.silence()
        await acknowledging
        assert (await asking).body == b"b"


async def test_an_acknowledgement_waits_for_an_announcement_and_is_made(network: FakeNetwork) -> None:
    async with consuming() as (session, subscription):
        ticks = network.log(b"a", b"b")
        await take(subscription, 1)
        network.broker.withheld = []
        asking = asyncio.ensure_future(anext(subscription))
        await until(lambda: bool(network.broker.withheld))
        acknowledging = asyncio.ensure_future(session.acknowledge())
        await asyncio.sleep(0)
        network.broker.tell(*network.broker.withheld.pop())
        network.broker.withheld = None
        network.silence()
        await asyncio.gather(asking, acknowledging)

        assert network.broker.subscriptions[1].acknowledged[PUBEND] >= ticks[0]


async def test_what_is_handed_out_is_announced_by_many_events_at_once(network: FakeNetwork) -> None:
    async with consuming() as (session, subscription):
        ticks = network.log(*(b"x" for _ in range(100)))
        await take(subscription, 70)
        assert units(network) == [(ticks[0], ticks[64]), (ticks[0], ticks[99])]
        await session.acknowledge()
        await take(subscription, 30)

    assert len(units(network)) == 2


async def test_after_an_unclean_end_all_of_the_unit_is_marked(network: FakeNetwork) -> None:
    async with consuming() as (session, subscription):
        network.log(b"a", b"b", b"c", b"d")
        await take(subscription, 1)
        await session.acknowledge()
        await take(subscription, 2)
        die(subscription)
    network.log(b"e")

    async with consuming() as (_, subscription):
        # `d` was announced, as it was there.
        assert await take(subscription, 4) == [*firsts("bcd", 2), *firsts("e")]


async def test_batches_are_part_of_the_unit(network: FakeNetwork) -> None:
    async with consuming() as (session, subscription):
        ticks = network.log(*(b"x" for _ in range(10)))
        batches = subscription.batches(max_events=4)
        assert [len(await anext(batches)) for _ in range(2)] == [4, 4]
        await session.acknowledge()
        assert network.broker.subscriptions[1].acknowledged == {PUBEND: ticks[7]}


@pytest.mark.parametrize("name", ["s", None])
async def test_recover_hands_out_again_what_is_not_acknowledged(network: FakeNetwork, name: str | None) -> None:
    async with consuming(name=name) as (session, subscription):
        ticks = network.log(b"a", b"b", b"c", b"d")
        await take(subscription, 1)
        await session.acknowledge()
        await take(subscription, 2)
        await session.recover()
        assert subscription.token.ticks == {PUBEND: ticks[0]}
        assert await take(subscription, 3) == [*firsts("bc", 2), *firsts("d")]
        await session.recover()
        assert await take(subscription, 3) == [*firsts("bc", 3), *firsts("d", 2)]
        await session.acknowledge()
        await session.recover()
        network.log(b"e")

        assert await take(subscription, 1) == firsts("e")


@pytest.mark.parametrize("turns", range(8))
async def test_a_recovery_that_was_cancelled_may_be_repeated(network: FakeNetwork, turns: int) -> None:
    async with consuming() as (session, subscription):
        network.log(b"a", b"b", b"c")
        await take(subscription, 2)
        recovering = asyncio.ensure_future(session.recover())
        for _ in range(turns):
            await asyncio.sleep(0)
        recovering.cancel()
        await asyncio.wait([recovering])
        await session.recover()

        assert await take(subscription, 3) == [*firsts("ab", 2), *firsts("c")]
        await session.acknowledge()


async def test_a_recovery_that_was_cancelled_goes_on(network: FakeNetwork) -> None:
    async with consuming() as (session, subscription):
        network.log(b"a", b"b")
        await take(subscription, 1)
        network.stalled = True
        recovering = asyncio.ensure_future(session.recover())
        await asyncio.sleep(0.01)
        recovering.cancel()
        await asyncio.wait([recovering])
        again = asyncio.ensure_future(session.recover())
        await asyncio.sleep(0.01)
        assert len(network.kept) == 1, "it waits for what is under way"
        network.flow()
        await again

        assert await take(subscription, 2) == [*firsts("a", 2), *firsts("b")]
        await session.acknowledge()


async def test_recover_wakes_who_waits(network: FakeNetwork) -> None:
    async with consuming() as (session, subscription):
        network.log(b"a")
        await take(subscription, 1)
        waiting = asyncio.ensure_future(anext(subscription))
        await asyncio.sleep(0)
        await session.recover()

        assert (await waiting).body == b"a"


async def test_what_was_put_back_is_not_acknowledged(network: FakeNetwork) -> None:
    async with consuming() as (session, subscription):
        ticks = network.log(b"a", b"b")
        await take(subscription, 1)
        assert await subscription.wait()
        await session.acknowledge()
        assert network.broker.subscriptions[1].acknowledged[PUBEND] in range(ticks[0], ticks[1])

        assert await take(subscription, 1) == firsts("b")
        subscription.drain()
        assert not await subscription.wait()


async def test_a_closed_subscription_is_out_of_it_and_a_lost_one_is_an_error(network: FakeNetwork) -> None:
    async with consuming() as (session, subscription):
        network.log(b"a")
        await take(subscription, 1)
        await subscription.close()
        await session.acknowledge()
        await session.recover()
        again = await session.subscribe("t", name="s")
        async with gapless.connect(ADDRESS) as other:
            await other.unsubscribe("s")
        await until(lambda: again.is_over)

        for call in (session.acknowledge, session.recover):
            with pytest.raises(gapless.SubscriptionNotFoundError):
                await call()


async def test_other_modes_have_neither(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session(gapless.AckMode.AUTO) as session:
        for call in (session.acknowledge, session.recover):
            with pytest.raises(gapless.SubscriptionError, match=r"for AckMode\.CLIENT"):
                await call()


async def test_a_recovery_that_is_refused_is_raised(network: FakeNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    async with consuming() as (session, subscription):
        network.log(b"a")
        await take(subscription, 1)

        def refuse(session: Any, message: m.Subscribe) -> None:
            refused = m.RequestFailed(message.request, m.Code.IN_USE, "somebody else has it")
            network.broker.tell(session, refused)

        monkeypatch.setattr(network.broker, "_subscribe", refuse)
        with pytest.raises(gapless.SubscriptionInUseError):
            await session.recover()
        with pytest.raises(gapless.SubscriptionInUseError):
            await anext(subscription)


async def test_who_leaves_says_what_is_in_hand_of_each_pubend(network: FakeNetwork) -> None:
    network.broker.add_pubend("q@1")
    async with consuming() as (_, subscription):
        ticks = network.log(b"a", b"b")
        other = network.log(b"c", pubend="q@1")
        assert {event for event, _ in await take(subscription, 3)} == {b"a", b"b", b"c"}

    [detach] = network.broker.messages(m.Detach)
    assert detach.handed is not None
    assert {(unit.pubend, unit.first, unit.last) for unit in detach.handed} == {
        (PUBEND, ticks[0], ticks[1]),
        ("q@1", other[0], other[0]),
    }
    async with consuming() as (_, subscription):
        assert {count for _, count in await take(subscription, 3)} == {2}
