"""Transactions, as a session has them: all of what was consumed and published, or nothing (protocol: transactions)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import gapless
from gapless.client.transaction import Transactions
from gapless.core.wire import messages as m
from gapless.errors import TransactionInDoubtError, TransactionRolledBackError
from unit.gapless.client.conftest import ADDRESS, until
from unit.gapless.client.fake_broker import PUBEND
from unit.gapless.client.fake_network import FakeNetwork


@asynccontextmanager
async def transacting(*names: str) -> AsyncIterator[tuple[Transactions, list[Any]]]:
    """A session with transactions, and its subscriptions."""
    async with gapless.connect(ADDRESS) as connection, connection.session(gapless.AckMode.CLIENT) as session:
        subscriptions = [await session.subscribe("t", name=name) for name in names]
        yield session.transactions(), subscriptions


async def bodies(subscription: Any, count: int) -> list[bytes]:
    return [(await anext(subscription)).body for _ in range(count)]


def out(body: bytes, topic: str = "out") -> gapless.Message:
    return gapless.Message(body, topic=topic)


async def test_inputs_and_outputs_take_effect_together(network: FakeNetwork) -> None:
    async with transacting("s") as (transactions, (subscription,)):
        ticks = network.log(b"a", b"b")
        assert await bodies(subscription, 1) == [b"a"]
        transactions.send(out(b"x"))
        assert network.broker.messages(m.Publish) == []
        (receipt,) = await transactions.commit()

        assert receipt.tick > ticks[0]
        assert network.broker.subscriptions[1].acknowledged[PUBEND] == ticks[0]
        assert await bodies(subscription, 1) == [b"b"]
        assert await transactions.commit() == []
        assert network.broker.subscriptions[1].acknowledged[PUBEND] >= ticks[1]


async def test_what_is_rolled_back_comes_again_and_its_outputs_never_were(network: FakeNetwork) -> None:
    async with transacting("s") as (transactions, (subscription,)):
        network.log(b"a", b"b")
        assert await bodies(subscription, 2) == [b"a", b"b"]
        transactions.send(out(b"x"))
        await transactions.rollback()

        event = await anext(subscription)
        assert (event.body, event.redelivered) == (b"a", True)
        assert await transactions.commit() == []
    assert network.broker.messages(m.Publish) == []


async def test_nothing_to_commit_is_no_work(network: FakeNetwork) -> None:
    async with transacting("s") as (transactions, _):
        assert await transactions.commit() == []

    assert network.broker.messages(m.Commit) == []


async def test_inputs_of_two_subscriptions_are_one_batch(network: FakeNetwork) -> None:
    async with transacting("s", "u") as (transactions, subscriptions):
        network.log(b"a")
        for subscription in subscriptions:
            await bodies(subscription, 1)
        await transactions.commit()

    (batch,) = network.broker.messages(m.Publish)
    assert batch.events.count == 0


async def test_a_refused_transaction_is_rolled_back_and_says_why(network: FakeNetwork) -> None:
    network.broker.rejects = b"bad"
    async with transacting("s") as (transactions, (subscription,)):
        network.log(b"a")
        await bodies(subscription, 1)
        transactions.send(out(b"bad"))
        with pytest.raises(TransactionRolledBackError, match="not allowed"):
            await transactions.commit()

        assert await bodies(subscription, 1) == [b"a"]
        transactions.send(out(b"good"))
        assert len(await transactions.commit()) == 1


async def test_closed_before_the_answer_it_is_in_doubt(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection:
        session = connection.session(gapless.AckMode.CLIENT)
        subscription = await session.subscribe("t", name="s")
        transactions = session.transactions()
        network.log(b"a")
        await bodies(subscription, 1)
        network.broker.silent = True
        transactions.send(out(b"x"))
        commit = asyncio.ensure_future(transactions.commit())
        await until(lambda: bool(network.broker.messages(m.Publish)))
        session.abandon()

        with pytest.raises(TransactionInDoubtError):
            await commit


async def test_a_cancelled_commit_goes_on_and_the_next_call_waits_for_it(network: FakeNetwork) -> None:
    async with transacting("s") as (transactions, (subscription,)):
        network.log(b"a", b"b")
        await bodies(subscription, 1)
        network.broker.silent = True
        transactions.send(out(b"x"))
        commit = asyncio.ensure_future(transactions.commit())
        await until(lambda: bool(network.broker.messages(m.Publish)))
        commit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await commit
        network.broker.silent = False
        network.cut()

        await transactions.rollback()
        assert await bodies(subscription, 1) == [b"b"]
