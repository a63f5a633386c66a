"""Transactions by real processes: whatever is killed or stands still, each input takes effect once (J4)."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

import gapless
from gapless.errors import TransactionRolledBackError
from integration.broker_process import BrokerProcess
from integration.networks_in_process import network_of
from integration.nodes_in_process import running_node
from integration.outputs_once import Work, line

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="it needs POSIX signals")

KILLS = 3
WORK = Work("transaction_process.py", 400, 10)


@pytest.mark.timeout(120)
async def test_each_input_takes_effect_once_whatever_is_killed(tmp_path: Path) -> None:
    async with BrokerProcess(tmp_path) as broker:
        await WORK.under_kills(broker, KILLS, 6)


@pytest.mark.timeout(120)
async def test_a_process_that_was_stopped_commits_nothing_when_it_wakes(tmp_path: Path) -> None:
    async with BrokerProcess(tmp_path) as broker, WORK.running(broker.url) as old:
        publishing = asyncio.ensure_future(WORK.publish(broker.url))
        for _ in range(3):
            assert await line(old)
        old.send_signal(signal.SIGSTOP)
        async with WORK.running(broker.url) as new:
            for _ in range(3):
                assert await line(new)
            old.send_signal(signal.SIGCONT)
            while (said := await line(old)) != "taken over":
                assert said
            await WORK.is_done(broker.url, publishing)


async def test_the_outputs_of_a_transaction_are_of_one_pubend(tmp_path: Path) -> None:
    pubends = [{"name": name, "topics": [name]} for name in ("orders", "flights")]
    async with (
        running_node(tmp_path / "volume", phb={"pubends": pubends}) as node,
        gapless.connect(node.url) as connection,
        connection.session(gapless.AckMode.CLIENT) as session,
    ):
        transactions = session.transactions()
        inputs = await session.subscribe("orders", name="work", start="earliest")
        await session.publisher("orders").send(b"1")
        assert (await anext(inputs)).body == b"1"
        transactions.send(gapless.Message(b"a", topic="flights"))
        transactions.send(gapless.Message(b"b", topic="orders"))
        with pytest.raises(TransactionRolledBackError, match=r"topics flights, orders: give them to one pubend"):
            await transactions.commit()

        event = await anext(inputs)
        assert (event.body, event.redelivered) == (b"1", True)
        transactions.send(gapless.Message(b"a", topic="flights"))
        assert len(await transactions.commit()) == 1


async def test_log_and_subscription_at_two_nodes_that_lose_each_other(tmp_path: Path) -> None:
    """The home asks the pubend what was committed before it hands out anything; meanwhile the consumer waits."""
    async with network_of(tmp_path, "phb", "shb") as network:
        network.network["router"] = "knowledge"
        await network.start_all()
        await network.until_linked("phb", "shb")
        url = network.nodes["shb"].url
        async with gapless.connect(url) as connection, connection.session(gapless.AckMode.CLIENT) as session:
            transactions = session.transactions()
            inputs = await session.subscribe("in", name="work", start="earliest")
            publisher = session.publisher("in")
            await publisher.send(b"1")
            assert (await anext(inputs)).body == b"1"
            transactions.send(gapless.Message(b"out", topic="out"))
            assert len(await transactions.commit()) == 1
            await publisher.send(b"2")
            assert (await anext(inputs)).body == b"2"
            transactions.send(gapless.Message(b"out", topic="out"))
            network.proxies["phb"].target = ""
            network.proxies["phb"].cut()
            network.proxies["shb"].cut()
            await network.until_linked("phb", "shb", linked=False)
            commit = asyncio.ensure_future(transactions.commit())
            network.proxies["phb"].target = network.nodes["phb"].nodes_address
            assert len(await asyncio.wait_for(commit, 30)) == 1
            await publisher.send(b"3")
        async with gapless.connect(url) as connection, connection.session(gapless.AckMode.CLIENT) as session:
            again = await session.subscribe("in", name="work", in_use="takeover")
            assert (await anext(again)).body == b"3"
