"""Nodes of one machine, as `gapless network --processes 2` lays them out: a publisher finds its pubend's node."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

import gapless
from gapless.cli.network import NODES_PORT, write_network
from integration.broker_process import BrokerProcess, bounded
from integration.test_network_command import running

pytestmark = pytest.mark.timeout(300)
LONG = 100.0
NODES = ("node1", "node2")
EVENTS = 100


def free_port() -> int:
    """The first of the ports that two nodes need, and nobody listens at."""
    for port in range(20000, 60000, 257):
        with ExitStack() as stack:
            try:
                for each in (port, port + 1, port + NODES_PORT, port + NODES_PORT + 1):
                    stack.enter_context(socket.create_server(("127.0.0.1", each)))
            except OSError:
                continue
            return port
    raise AssertionError("no ports are free")


async def host_of(pubend: str, urls: dict[str, str]) -> str:
    """The node that hosts a pubend: only that one has figures of it."""
    for name, url in urls.items():
        async with gapless.connect(url, wait=True) as connection:
            gauges = (await bounded(connection.status(), LONG)).gauges
        if any(gauge.name == "gapless_pubend_publishers" and gauge.labels[0][1] == pubend for gauge in gauges):
            return name
    raise AssertionError(f"nobody hosts {pubend}")


async def batches_from_clients(url: str) -> float:
    """How many batches a node took from its own clients, for itself or for another node."""
    async with gapless.connect(url, wait=True) as connection:
        gauges = (await bounded(connection.status(), LONG)).gauges
    labels = (("source", "sessions"), ("kind", "Submit"))
    return sum(gauge.value for gauge in gauges if gauge.name == "gapless_facts_total" and gauge.labels == labels)


async def publish(publisher: gapless.Publisher, numbers: range) -> str:
    """Numbered events, each with its receipt before the next one. Returns their pubend."""
    pubend = ""
    for number in numbers:
        pubend = (await bounded(publisher.send(str(number).encode()), LONG)).pubend
    return pubend


async def test_one_command_starts_them_and_clients_find_their_way(tmp_path: Path) -> None:
    arguments = ("--processes", "2", "--port", str(free_port()))
    async with running(tmp_path / "two.toml", *arguments) as command:
        await command.until_up(2)
        urls = {name: up["url"] for name, up in command.up.items()}
        both = "gapless://" + ",".join(urls[name].partition("://")[2] for name in NODES)
        async with gapless.connect(both) as connection, connection.session() as session:
            async with session.subscribe("t", name="all") as subscription:
                publishers = [session.publisher("t", name=f"loader {number}") for number in range(6)]
                pubends = [await publish(publisher, range(1)) for publisher in publishers]
                hosts = [await host_of(pubend, urls) for pubend in pubends]
                received = [await bounded(anext(subscription), LONG) for _ in publishers]

    assert set(hosts) == set(NODES), "names are spread over both"
    assert Counter(event.pubend for event in received) == Counter(pubends)
    assert (tmp_path / "two.secret").stat().st_mode & 0o077 == 0


async def test_it_publishes_where_its_pubend_is_and_nothing_is_lost_or_twice_when_nodes_are_killed(
    tmp_path: Path,
) -> None:
    write_network(tmp_path / "two.toml", 2, free_port())
    nodes = {name: BrokerProcess(tmp_path / name, network={"file": "../two.toml", "node": name}) for name in NODES}
    try:
        for node in nodes.values():
            node.patience = LONG
        await asyncio.gather(*(node.start() for node in nodes.values()))
        urls = {name: node.url for name, node in nodes.items()}
        async with gapless.connect(urls["node1"]) as connection, connection.session() as session:
            name = ""
            for number in range(20):  # one whose pubend is at the other node
                name = f"loader {number}"
                if await host_of(await publish(session.publisher("numbered", name=name), range(1)), urls) == "node2":
                    break
        await _publish_and_kill(nodes, urls, name)
    finally:
        await asyncio.gather(*(node.kill() for node in nodes.values()))


async def _publish_and_kill(nodes: dict[str, BrokerProcess], urls: dict[str, str], name: str) -> None:
    both = "gapless://" + ",".join(urls[node].partition("://")[2] for node in NODES)
    async with gapless.connect(both) as connection, connection.session() as session:
        assert connection.connected
        publisher = session.publisher("numbered", name=name)
        assert (await bounded(publisher.recover(), LONG)).sequence == 1
        await publish(publisher, range(1, 10))  # until the session with the other node is there
        before = {node: await batches_from_clients(url) for node, url in urls.items()}
        await publish(publisher, range(10, 10 + EVENTS))
        after = {node: await batches_from_clients(url) for node, url in urls.items()}

        assert after["node1"] == before["node1"], "nothing went through the node that it had connected to"
        assert after["node2"] == before["node2"] + EVENTS

        more = asyncio.ensure_future(publish(publisher, range(10 + EVENTS, 10 + 4 * EVENTS)))
        await nodes["node2"].kill()
        await nodes["node2"].start()
        await publish(session.publisher("t", name="another"), range(1))
        await nodes["node1"].kill()  # the one that it had connected to
        await nodes["node1"].start()
        await bounded(more, LONG)
        assert (await bounded(publisher.recover(), LONG)).sequence == 10 + 4 * EVENTS

        total = 10 + 4 * EVENTS
        pubend = await publish(publisher, range(total, total + 1))
        bodies: list[int] = []
        async with session.subscribe("numbered", name="check", start="earliest") as subscription:
            while len(bodies) < total + 1:
                event = await bounded(anext(subscription), LONG)
                if event.pubend == pubend:
                    bodies.append(int(event.body))
    assert bodies == list(range(total + 1)), "each once, in order"
