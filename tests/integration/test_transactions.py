"""Transactions by real processes: whatever is killed or stands still, each input takes effect once (J4)."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

import gapless
from gapless.errors import TransactionRolledBackError
from integration.broker_process import BrokerProcess
from integration.networks_in_process import network_of
from integration.nodes_in_process import running_node
from integration.test_transforms import line
from integration.transform_process import INPUT, OUTPUT, outputs

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="it needs POSIX signals")

PROGRAM = Path(__file__).with_name("transaction_process.py")
KILLS = 6
INPUTS = 400


@asynccontextmanager
async def working(url: str) -> AsyncIterator[Process]:
    """A process that has its input."""
    environment = os.environ | {"PYTHONPATH": str(PROGRAM.parents[1])}
    process = await asyncio.create_subprocess_exec(sys.executable, str(PROGRAM), url, stdout=PIPE, env=environment)
    try:
        assert await line(process) == "ready"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def publish(url: str, upto: int) -> None:
    """The inputs, a few at a time."""
    async with gapless.connect(url) as connection, connection.session() as session:
        publisher = session.publisher(INPUT, name="numbers")
        for start in range(0, upto, 10):
            await publisher.send_batch([gapless.Message(b"%d" % number) for number in range(start, start + 10)])
            await asyncio.sleep(0.01)


async def logged(url: str, count: int) -> list[bytes]:
    """The output log, as soon as it is as long as it should be, and what else is in it by then."""
    found: list[bytes] = []
    async with gapless.connect(url) as connection, connection.session() as session:
        async with session.subscribe(OUTPUT, name="reader", start="earliest") as subscription:
            async for event in subscription:
                if event.body == b"end":
                    break
                found.append(event.body)
                if len(found) == count:
                    await session.publisher(OUTPUT).send(b"end")
    return found


def expected() -> list[bytes]:
    return [body for number in range(INPUTS) for body in outputs(number)]


@pytest.mark.timeout(120)
async def test_each_input_takes_effect_once_whatever_is_killed(tmp_path: Path) -> None:
    """Application and broker by turns, and both at once, with kill -9 in the middle of their transactions."""
    random = Random(19)
    async with BrokerProcess(tmp_path) as broker:
        publishing = asyncio.ensure_future(publish(broker.url, INPUTS))
        for number in range(KILLS):
            async with working(broker.url) as process:
                for _ in range(random.randint(1, 6)):
                    await line(process)
                victim = ("application", "broker", "both")[number % 3]
                if victim != "application":
                    await broker.kill()
                if victim != "broker":
                    process.kill()
                if victim != "application":
                    await broker.start()
                if victim == "broker":
                    await line(process)
        async with working(broker.url):
            await publishing
            found = await asyncio.wait_for(logged(broker.url, len(expected())), 60)

    assert found == expected()


@pytest.mark.timeout(120)
async def test_a_process_that_was_stopped_commits_nothing_when_it_wakes(tmp_path: Path) -> None:
    async with BrokerProcess(tmp_path) as broker, working(broker.url) as old:
        publishing = asyncio.ensure_future(publish(broker.url, INPUTS))
        for _ in range(3):
            assert await line(old)
        old.send_signal(signal.SIGSTOP)
        async with working(broker.url) as new:
            for _ in range(3):
                assert await line(new)
            old.send_signal(signal.SIGCONT)
            while (said := await line(old)) != "taken over":
                assert said
            await publishing
            found = await asyncio.wait_for(logged(broker.url, len(expected())), 60)

    assert found == expected()


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
