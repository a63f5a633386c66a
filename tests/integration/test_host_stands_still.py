"""The process of the publishers' host stands still (SIGSTOP) behind an SHB that lives, and somebody leaves that SHB."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import gapless
import gapless.sync
from gapless import jms
from gapless_testing.ports import free_ports
from integration.broker_process import BrokerProcess, bounded, to_toml

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="it needs POSIX signals"),
    pytest.mark.timeout(120),
]

SOON = 10.0
"""Seconds. It takes at most 5, on a machine that has nothing else to do."""
ROLES = {"phb": ["phb"], "shb": ["shb"]}


class Network:
    """A PHB and an SHB, each a process."""

    def __init__(self, directory: Path) -> None:
        self.nodes = {
            name: BrokerProcess(directory / name, network={"file": "../network.toml", "node": name}) for name in ROLES
        }
        addresses = [f"127.0.0.1:{port}" for port in free_ports(len(ROLES))]
        nodes = [
            {"name": name, "roles": roles, "address": address, "cell": name}
            for (name, roles), address in zip(ROLES.items(), addresses, strict=True)
        ]
        sections: dict[str, Any] = {
            "network": {"name": "flights", "secret": "a secret of some length", "router": "knowledge"},
            "node": nodes,
        }
        (directory / "network.toml").write_text(f'bundles = [["phb", "shb"]]\n{to_toml(sections)}', "utf-8")

    @property
    def url(self) -> str:
        return self.nodes["shb"].url

    @contextlib.contextmanager
    def host_stands_still(self) -> Iterator[None]:
        pid = self.nodes["phb"].pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)


@pytest.fixture
async def network(tmp_path: Path) -> AsyncIterator[Network]:
    """One event is in the log."""
    network = Network(tmp_path)
    async with contextlib.AsyncExitStack() as stack:
        for node in network.nodes.values():
            await stack.enter_async_context(node)
        async with gapless.connect(network.url) as connection, connection.session() as session:
            await bounded(session.publisher("t").send(b"1"), 60)
        yield network


async def test_an_event_without_a_receipt_is_uncertain(network: Network) -> None:
    connection = await gapless.connect(network.url)
    publisher = connection.session().publisher("t")
    await bounded(publisher.send(b"2"))
    with network.host_stands_still():
        waiting = [asyncio.ensure_future(publisher.send_batch([gapless.Message(b"3")])) for _ in range(3)]
        await asyncio.sleep(0.2)
        waiting.pop().cancel()  # nobody waits for that one: `close` tells
        with pytest.raises(gapless.PublishUncertainError):
            await bounded(connection.close(), SOON)
        for each in waiting:
            with pytest.raises(gapless.PublishUncertainError):
                await each


async def test_a_publisher_that_was_never_opened_is_no_reason_to_wait(network: Network) -> None:
    connection = await gapless.connect(network.url)
    with network.host_stands_still():
        waiting = asyncio.ensure_future(connection.session().publisher("t", name="new").send(b"2"))
        await asyncio.sleep(0.2)
        await bounded(connection.close(), SOON)
        with pytest.raises(gapless.PublishError):
            await waiting


async def test_of_a_transform_the_stored_position_tells(network: Network) -> None:
    """What it had sent is uncertain; begun again, it makes each output once."""
    connection = await gapless.connect(network.url, client_id="c")
    work = await connection.session().transform("t", to="out", name="work", start="earliest")
    batch = await bounded(anext(work))
    with network.host_stands_still():
        await bounded(batch.publish([gapless.Message(b"of " + event.body) for event in batch]))
        with pytest.raises(gapless.PublishUncertainError):
            await bounded(work.close(), SOON)
        await bounded(connection.close(), SOON)
    async with gapless.connect(network.url, client_id="c") as connection, connection.session() as session:
        await bounded(session.publisher("t").send(b"2"), 60)
        async with session.transform("t", to="out", name="work") as work:
            bodies: list[bytes] = []
            while b"2" not in bodies:
                batch = await bounded(anext(work))
                bodies += [event.body for event in batch]
                await batch.publish([gapless.Message(b"of " + event.body) for event in batch])
        async with session.subscribe("out", start="earliest") as outputs:
            assert [(await bounded(anext(outputs))).body for _ in "12"] == [b"of 1", b"of 2"]


@pytest.mark.parametrize("mode", ["AUTO", "CLIENT", "TOKEN", "DUPS_OK"])
async def test_a_session_at_its_home_settles_without_the_host(network: Network, mode: str) -> None:
    """Its position is durable at its home, which lives: nothing is in doubt, and nothing comes again."""
    connection = await gapless.connect(network.url, client_id="c")
    subscription = await connection.session(gapless.AckMode[mode]).subscribe("t", name="n", start="earliest")
    await bounded(anext(subscription))
    with network.host_stands_still():
        await bounded(connection.close(), SOON)
    async with gapless.connect(network.url, client_id="c") as connection:
        await bounded(connection.session().publisher("t").send(b"2"), 60)
        again = await connection.session(gapless.AckMode[mode]).subscribe("t", name="n")
        assert (await bounded(anext(again))).body == (b"2" if mode in ("AUTO", "DUPS_OK") else b"1")


async def test_all_of_them_leave_together(network: Network) -> None:
    """None of them begins to wait anew when another one has."""
    connection = await gapless.connect(network.url, client_id="c")
    work = await connection.session().transform("t", to="out", name="work", start="earliest")
    batch = await bounded(anext(work))
    automatic = await connection.session(gapless.AckMode.AUTO).subscribe("t", name="n", start="earliest")
    await bounded(anext(automatic))
    publishers = [connection.session().publisher("t", name=f"p{number}") for number in range(3)]
    for publisher in publishers:
        await bounded(publisher.send(b"2"))
    with network.host_stands_still():
        await batch.publish([gapless.Message(b"out")])
        waiting = [asyncio.ensure_future(publisher.send(b"3")) for publisher in publishers]
        await asyncio.sleep(0.2)
        await bounded(connection.close(), SOON)
        for each in waiting:
            with pytest.raises(gapless.PublishUncertainError):
                await each


@pytest.mark.parametrize("api", ["sync", "transform", "jms", "transacted"])
async def test_the_blocking_apis_leave_as_soon(network: Network, api: str) -> None:
    opened = await bounded(asyncio.to_thread(begin, network.url, api), 60)
    with network.host_stands_still():
        await asyncio.to_thread(go_on, opened, api)
        leaving = asyncio.to_thread(leave, opened, api)
        if api in ("jms", "transacted"):  # a completion listener hears it; what was not committed is rolled back
            await bounded(leaving, SOON)
        else:
            with pytest.raises(gapless.PublishUncertainError):
                await bounded(leaving, SOON)


class Heard:
    """A completion listener that nobody asks."""

    def on_completion(self, message: jms.Message) -> None:
        """It was logged."""

    def on_exception(self, message: jms.Message, error: Exception) -> None:
        """It was not, or nobody knows."""


def leave(opened: tuple[Any, Any], api: str) -> None:
    """Leaves what was begun, from the inside out."""
    connection, user = opened
    try:
        if api == "transform":
            user[0].close()
    finally:
        connection.close()


def begin(url: str, api: str) -> tuple[Any, Any]:
    """Something that is connected, with something in hand."""
    if api in ("jms", "transacted"):
        mode = jms.AUTO_ACKNOWLEDGE if api == "jms" else jms.SESSION_TRANSACTED
        context = jms.ConnectionFactory(url, client_id="c").create_context(mode)
        assert context.create_durable_consumer("t", "n") is not None
        producer = context.create_producer()
        producer.send("t", "2")
        if api == "transacted":
            context.commit()
        return context, producer
    connection = gapless.sync.connect(url, client_id="c")
    if api == "transform":
        work = connection.session().transform("t", to="out", name="work", start="earliest", timeout=60)
        return connection, (work, next(work))
    subscription = connection.session(gapless.AckMode.AUTO).subscribe("t", name="n", start="earliest", timeout=60)
    assert subscription.receive(timeout=30)
    publisher = connection.session().publisher("t")
    publisher.send(b"2", timeout=30)
    return connection, publisher


def go_on(opened: tuple[Any, Any], api: str) -> None:
    """Sends something that gets no receipt."""
    _, sender = opened
    if api == "sync":
        with pytest.raises(TimeoutError):
            sender.send(b"3", timeout=0.2)
    elif api == "transform":
        sender[1].publish([gapless.Message(b"out")])
    elif api == "jms":
        sender.set_async(Heard())
        sender.send("t", "3")
    else:
        sender.send("t", "3")
