"""A broker's process stands still (SIGSTOP), and somebody leaves: that ends soon, and says what nobody knows then."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import gapless
import gapless.sync
from gapless import jms
from integration.broker_process import BrokerProcess, bounded

SOON = 10.0
"""Seconds. It takes at most 5, on a machine that has nothing else to do; after 15 any client would give the link up."""


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    """A broker, with one event in its log."""
    async with BrokerProcess(tmp_path / "volume") as broker:
        async with gapless.connect(broker.url) as connection, connection.session() as session:
            await session.publisher("t").send(b"1")
        yield broker


@contextlib.contextmanager
def standing_still(broker: BrokerProcess) -> Iterator[None]:
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(broker.pid, signal.SIGCONT)


async def test_who_waits_for_nothing_leaves_at_once(broker: BrokerProcess) -> None:
    connection = await gapless.connect(broker.url)
    with standing_still(broker):
        await bounded(connection.close(), SOON)


async def test_an_event_without_a_receipt_is_uncertain(broker: BrokerProcess) -> None:
    connection = await gapless.connect(broker.url)
    publisher = connection.session().publisher("t")
    await publisher.send(b"2")
    with standing_still(broker):
        waiting, given_up = [asyncio.ensure_future(publisher.send_batch([gapless.Message(b"3")])) for _ in "34"]
        await asyncio.sleep(0)
        given_up.cancel()

        with pytest.raises(gapless.PublishUncertainError):
            await bounded(connection.close(), SOON)
        with pytest.raises(gapless.PublishUncertainError):
            await waiting


async def test_sessions_inside_of_a_connection_leave_together(broker: BrokerProcess) -> None:
    """The second one does not begin to wait anew."""

    async def use() -> None:
        async with gapless.connect(broker.url, client_id="c") as connection, connection.session() as first:
            async with connection.session(gapless.AckMode.AUTO) as second:
                subscription = await second.subscribe("t", name="n", start="earliest")
                await anext(subscription)
                await first.publisher("t").send(b"2")
                os.kill(broker.pid, signal.SIGSTOP)
                for session in (first, second):
                    asyncio.ensure_future(session.publisher("t").send(b"3")).add_done_callback(asyncio.Future.exception)
                await asyncio.sleep(0)

    try:
        with pytest.raises(gapless.ConnectionClosedError, match="'n' was handed last"):
            await bounded(use(), SOON)
    finally:
        os.kill(broker.pid, signal.SIGCONT)


@pytest.mark.parametrize("mode", ["CLIENT", "TOKEN", "DUPS_OK"])
async def test_modes_that_commit_nothing_at_the_end_leave_at_once(broker: BrokerProcess, mode: str) -> None:
    connection = await gapless.connect(broker.url, client_id="c")
    subscription = await connection.session(gapless.AckMode[mode]).subscribe("t", name="n", start="earliest")
    await anext(subscription)
    with standing_still(broker):
        await bounded(connection.close(), SOON)


async def test_of_auto_the_event_in_hand_comes_again_marked(broker: BrokerProcess) -> None:
    connection = await gapless.connect(broker.url, client_id="c")
    subscription = await connection.session(gapless.AckMode.AUTO).subscribe("t", name="n", start="earliest")
    await anext(subscription)
    with standing_still(broker), pytest.raises(gapless.ConnectionClosedError, match="no sign of life"):
        await bounded(connection.close(), SOON)


@pytest.mark.parametrize("api", ["sync", "jms"])
async def test_the_blocking_apis_leave_as_soon(broker: BrokerProcess, api: str) -> None:
    def begin() -> Any:
        if api == "sync":
            connection = gapless.sync.connect(broker.url, client_id="c")
            subscription = connection.session(gapless.AckMode.AUTO).subscribe("t", name="n", start="earliest")
            assert subscription.receive(timeout=30)
            return connection
        context = jms.ConnectionFactory(broker.url, client_id="c").create_context(jms.AUTO_ACKNOWLEDGE)
        consumer = context.create_durable_consumer("t", "n")
        context.create_producer().send("t", "2")
        assert consumer.receive(30_000)
        return context

    error = gapless.ConnectionClosedError if api == "sync" else jms.JMSError
    opened = await asyncio.to_thread(begin)
    with standing_still(broker), pytest.raises(error, match="no sign of life"):
        await bounded(asyncio.to_thread(opened.close), SOON)
