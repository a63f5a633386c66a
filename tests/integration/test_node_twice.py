"""Two processes under one node's name, on copies of one volume: the later one counts, and nothing is lost untold."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import gapless
import gapless.sync
from gapless import jms
from gapless.cli.doctor import Examination, examine_network
from gapless.node.config import make_config
from gapless.node.network import load_network
from gapless.node.node import Node
from integration.broker_process import bounded, until
from integration.networks_in_process import TestNetwork, network_of

pytestmark = pytest.mark.timeout(60)

NO_MORE = (gapless.PublishError, gapless.ConfigurationError)
"""What a publisher of a process that is shut out hears; the second, if its connection is over already."""


class Run:
    """A network with a node whose volume is on disk, a copy of that, and a second process on the copy."""

    def __init__(self, network: TestNetwork, directory: Path) -> None:
        self.network = network
        self.directory = directory
        self.rivals: list[Node] = []

    def volume(self, name: str) -> dict[str, Any]:
        """The configuration of a volume on disk."""
        return {"plugin": "rocksdb", "path": str(self.directory / name), "reserve_bytes": 0}

    async def start(self, kept: str) -> None:
        """Starts all nodes; one has a volume on disk."""
        for name in self.network.proxies:
            storage = self.volume(name) if name == kept else {"plugin": "memory", "path": ""}
            await self.network.start(name, storage=storage)
        names = list(self.network.proxies)
        for one, other in pairwise(names):
            await self.network.until_linked(one, other)

    def copy(self, name: str) -> None:
        """Copies a volume under the process that uses it."""
        ignore = shutil.ignore_patterns("LOCK")
        shutil.copytree(self.directory / name, self.directory / f"{name}-copy", ignore=ignore)

    async def start_rival(self, name: str) -> Node:
        """Starts a second process under a node's name, on the copy of its volume, at addresses of its own."""
        settings: dict[str, Any] = {
            "network": {"file": str(self.network.write()), "node": name, "listen": "127.0.0.1:0"},
            "storage": self.volume(f"{name}-copy"),
            "listen": [{"address": "127.0.0.1:0"}],
        }
        rival = await Node.start(make_config(settings))
        self.rivals.append(rival)
        return rival

    async def findings(self, at: str) -> list[str]:
        """What `gapless doctor --network` finds."""
        examination = Examination()
        description = load_network(self.network.directory / "network.toml")
        await bounded(examine_network(examination, description, self.network.nodes[at].url, 15.0, None))
        return examination.findings

    async def until_shut_out(self, name: str, *neighbours: str) -> None:
        """Waits until the first process of a node has stopped, and a neighbour has said why.

        The neighbour that knows both first shuts the first process out. For the others that one ended in order.
        """
        node = self.network.nodes[name]
        await until(lambda: not node.serving, f"the first process of {name} to stop")
        assert "node_twice" in self.network.alarms(name)
        said = [alarm for neighbour in neighbours for alarm in self.network.alarms(neighbour).get("node_twice", ())]
        assert said
        for alarm in said:
            assert f"two processes run as node {name!r}" in alarm


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[Run]:
    """A PHB, an IB and an SHB in a row."""
    async with network_of(tmp_path, "phb", "ib", "shb") as network:
        network.network["router"] = "knowledge"
        run = Run(network, tmp_path)
        yield run
        for rival in run.rivals:
            await rival.stop()


async def send(publisher: gapless.Publisher, *bodies: bytes) -> dict[bytes, int]:
    return {body: (await bounded(publisher.send(body))).tick for body in bodies}


async def received(subscription: Any, last: bytes) -> list[Any]:
    """Events and gaps, up to the event with this body."""
    items: list[Any] = []
    while not items or getattr(items[-1], "body", None) != last:
        items.append(await bounded(anext(subscription)))
    return items


def untold(receipts: dict[bytes, int], items: Sequence[Any]) -> list[bytes]:
    """Which events were neither delivered nor told as a gap."""
    gaps = [item for item in items if isinstance(item, gapless.Gap)]
    bodies = {item.body for item in items if isinstance(item, gapless.Event)}
    covered = {body for body, tick in receipts.items() if any(gap.start < tick <= gap.end for gap in gaps)}
    return [body for body in receipts if body not in bodies | covered]


async def test_the_events_of_both_processes_of_a_publishers_host_are_delivered_or_told(run: Run) -> None:
    await run.start("phb")
    nodes = run.network.nodes
    async with (
        gapless.connect(nodes["phb"].url) as first,
        gapless.connect(nodes["shb"].url, client_id="c") as connection,
        first.session() as publishing,
        connection.session() as session,
    ):
        publisher = publishing.publisher("t", name="loader")
        live = await session.subscribe("t", name="live", start="earliest", on_gap="deliver")
        away = await session.subscribe("t", name="away", start="earliest", on_gap="deliver")
        receipts = await send(publisher, b"common")
        await received(away, b"common")
        await received(live, b"common")
        await away.acknowledge()
        await away.close()
        run.copy("phb")
        receipts |= await send(publisher, b"1", b"2", b"3")
        seen = await received(live, b"3")

        rival = await run.start_rival("phb")
        await run.until_shut_out("phb", "ib")
        with pytest.raises(NO_MORE, match="another process runs as node 'phb'"):
            await bounded(publisher.send(b"never"))
        async with gapless.connect(rival.url) as second, second.session() as again:
            receipts |= await send(again.publisher("t", name="later"), b"4", b"5")
            seen += await received(live, b"5")
            away = await session.subscribe("t", name="away", start="earliest", on_gap="deliver")
            seen_away = await received(away, b"5")

            del receipts[b"common"]
            assert untold(receipts, seen) == []
            assert untold(receipts, seen_away) == []
            assert [item.body for item in seen if isinstance(item, gapless.Event)] == [b"1", b"2", b"3", b"4", b"5"]
            for items in (seen, seen_away):
                reasons = {item.reason for item in items if isinstance(item, gapless.Gap)}
                assert reasons == {"the broker ran twice"}
            findings = await run.findings("shb")
            assert any("node ib" in text and "node_twice" in text for text in findings)
            assert any("node phb" in text and "node_twice" in text for text in findings)


async def test_what_the_first_process_had_when_the_second_is_gone_is_told_when_the_first_starts_again(run: Run) -> None:
    """By its own volume: no neighbour remembers."""
    await run.start("phb")
    nodes = run.network.nodes
    async with gapless.connect(nodes["shb"].url, client_id="c") as connection, connection.session() as session:
        live = await session.subscribe("t", name="live", start="earliest", on_gap="deliver")
        async with gapless.connect(nodes["phb"].url) as first, first.session() as publishing:
            await send(publishing.publisher("t"), b"common")
            await received(live, b"common")
        run.copy("phb")
        rival = await run.start_rival("phb")
        await run.until_shut_out("phb", "ib")
        async with gapless.connect(rival.url) as second, second.session() as publishing:
            receipts = await send(publishing.publisher("t"), b"1")
            seen = await received(live, b"1")
        await live.acknowledge()
        await live.close()
        async with gapless.connect(rival.url) as second, second.session() as publishing:
            receipts |= await send(publishing.publisher("t"), b"2")
        await rival.stop()
        await run.network.stop("phb")
        await run.network.stop("ib")

        await run.network.start("ib")
        await run.network.start("phb", storage=run.volume("phb"))
        await run.network.until_linked("phb", "ib")
        await run.network.until_linked("ib", "shb")
        async with gapless.connect(nodes["phb"].url) as third, third.session() as publishing:
            receipts |= await send(publishing.publisher("t"), b"3")
        live = await session.subscribe("t", name="live", start="earliest", on_gap="deliver")
        seen += await received(live, b"3")

        assert untold(receipts, seen) == []


async def take_over(run: Run) -> None:
    """The second process of the PHB takes over; its volume was copied before publishers were opened."""
    await run.start_rival("phb")
    await run.until_shut_out("phb", "ib")


@pytest.mark.parametrize("name", ["loader", None], ids=["named", "without a name"])
async def test_whether_the_event_of_an_open_publisher_was_logged_nobody_knows_after_a_takeover(
    run: Run, name: str | None
) -> None:
    """The publisher was opened by the process that does not count any more. It has no newer rival: it goes on."""
    await run.start("phb")
    run.copy("phb")
    async with gapless.connect(run.network.nodes["shb"].url) as connection, connection.session() as session:
        publisher = session.publisher("t", name=name)
        await send(publisher, b"1")
        await take_over(run)

        with pytest.raises(gapless.PublishUncertainError):
            await bounded(publisher.send(b"2"))
        assert (await bounded(publisher.send(b"3"))).tick


async def test_so_it_is_for_blocking_programs(run: Run) -> None:
    await run.start("phb")
    run.copy("phb")
    url = run.network.nodes["shb"].url
    connection = await asyncio.to_thread(lambda: gapless.sync.connect(url))
    try:
        publisher = connection.session().publisher("t", name="loader")
        await asyncio.to_thread(publisher.send, b"1", timeout=20)
        await take_over(run)

        with pytest.raises(gapless.PublishUncertainError):
            await asyncio.to_thread(publisher.send, b"2", timeout=20)
        assert (await asyncio.to_thread(publisher.send, b"3", timeout=20)).tick
    finally:
        await asyncio.to_thread(connection.close)


async def test_so_it_is_for_jms_contexts(run: Run) -> None:
    await run.start("phb")
    run.copy("phb")
    url = run.network.nodes["shb"].url
    context = await asyncio.to_thread(lambda: jms.ConnectionFactory(url).create_context())
    try:
        producer, topic = context.create_producer(), context.create_topic("t")
        await asyncio.to_thread(producer.send, topic, "1")
        await take_over(run)

        with pytest.raises(jms.JMSError) as failed:
            await asyncio.to_thread(producer.send, topic, "2")
        assert isinstance(failed.value.__cause__, gapless.PublishUncertainError)
        await asyncio.to_thread(producer.send, topic, "3")
    finally:
        await asyncio.to_thread(context.close)


@pytest.mark.parametrize("name", ["shb", "ib"])
async def test_another_node_that_runs_twice_costs_nobody_an_event(run: Run, name: str) -> None:
    await run.start(name)
    nodes = run.network.nodes
    async with gapless.connect(nodes["phb"].url) as first, first.session() as publishing:
        publisher = publishing.publisher("t", name="loader")
        await send(publisher, b"common")
        url = nodes["shb"].url
        async with gapless.connect(url, client_id="c") as connection, connection.session() as session:
            live = await session.subscribe("t", name="live", start="earliest")
            await received(live, b"common")
            await live.acknowledge()
            await live.close()
        run.copy(name)

        rival = await run.start_rival(name)
        await run.until_shut_out(name, *(["ib"] if name == "shb" else ["phb", "shb"]))
        receipts = await send(publisher, b"1", b"2")
        if name == "shb":
            with pytest.raises(gapless.ConfigurationError, match="another process runs as node 'shb'"):
                async with gapless.connect(url):
                    pass
            url = rival.url
        async with gapless.connect(url, client_id="c") as connection, connection.session() as session:
            live = await session.subscribe("t", name="live", start="earliest")
            assert untold(receipts, await received(live, b"2")) == []
