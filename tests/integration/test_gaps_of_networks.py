"""Where events are released early, there is no gap in what a broker on the way still has (protocol: knowledge)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import gapless
import gapless.sync
from gapless.core.ports import Roaming
from gapless_shb.core.state.gauges import HEAD
from gapless_shb.core.state.places import home_of
from integration.broker_process import bounded, until
from integration.networks_in_process import TestNetwork, network_of

PATIENCE = 60.0
CLIENT = "desk-7"
EARLY = {
    "release_seconds": 0.1,
    "clock_doubt_seconds": 0.1,
    "pubends": [{"name": "default", "min_retain_seconds": 0.2, "max_retain_seconds": 0.5}],
}
HOME = home_of(CLIENT, Roaming(("shb", "shb2"), b""))
ELSEWHERE = "shb" if HOME == "shb2" else "shb2"


@contextlib.asynccontextmanager
async def network(directory: Path) -> AsyncIterator[TestNetwork]:
    """PHB – IB – SHB – SHB, where events are released after half a second."""
    async with network_of(directory, "phb", "ib", "shb", "shb2") as net:
        net.network["router"] = "knowledge"
        path = net.write()
        for name in net.proxies:
            await net.start(name, path, **(sections_of_the_host(directory) if name == "phb" else {}))
        await until(lambda: all(knows_a_pubend(net, shb) for shb in ("shb", "shb2")), "the SHBs know the pubend")
        yield net


def knows_a_pubend(net: TestNetwork, shb: str) -> bool:
    return any(gauge.name == HEAD.name for gauge in net.nodes[shb].gauges())


def sections_of_the_host(directory: Path) -> dict[str, Any]:
    """The configuration of the PHB: it has a disk, so it can start anew."""
    return {"phb": EARLY, "storage": {"plugin": "rocksdb", "path": str(directory / "phb")}}


async def taken(items_of: AsyncIterator[gapless.Event | gapless.Gap], last: bytes) -> list[gapless.Event | gapless.Gap]:
    """What a consumer gets up to some event."""
    items: list[gapless.Event | gapless.Gap] = []
    async for item in items_of:
        items.append(item)
        if isinstance(item, gapless.Event) and item.body == last:
            return items
    raise AssertionError("a subscription has no end")


async def missed(net: TestNetwork, name: str) -> tuple[gapless.CheckpointToken, list[bytes]]:
    """A subscription whose consumer leaves, and the events that are published and released before it is back."""
    async with gapless.connect(net.nodes[HOME].url, client_id=CLIENT) as connection, connection.session() as session:
        subscription = await bounded(session.subscribe("t", name=name), PATIENCE)
        async with gapless.connect(net.nodes["phb"].url) as writer, writer.session() as first:
            await bounded(first.publisher("t", name="first").send(b"first", properties={"later": True}), PATIENCE)
        async with subscription:
            await bounded(anext(subscription), PATIENCE)  # now its place names the pubend, which the SHB had to hear of
            token = subscription.token
    bodies = [b"%d" % number for number in range(40)]
    async with gapless.connect(net.nodes["phb"].url) as writer, writer.session() as session:
        publisher = session.publisher("t", name="loader")
        ticks = [(await bounded(publisher.send(body), PATIENCE)).tick for body in bodies]
        while (await bounded(writer.pubends(), PATIENCE))[0].lost < ticks[-1]:
            await publisher.send(b"another", properties={"later": True})  # nothing is released but for a newer event
            await asyncio.sleep(0.05)
        await publisher.send(b"last")
    return token, bodies


def shown(items: list[gapless.Event | gapless.Gap]) -> list[object]:
    return [item.body if isinstance(item, gapless.Event) else item for item in items]


@pytest.mark.timeout(200)
@pytest.mark.parametrize("place", [HOME, ELSEWHERE])
async def test_who_was_away_gets_what_a_broker_on_the_way_has_and_no_gap(tmp_path: Path, place: str) -> None:
    async with network(tmp_path) as net:
        token, bodies = await missed(net, "s")
        async with gapless.connect(net.nodes[place].url, client_id=CLIENT) as connection, connection.session() as own:
            selected = own.subscribe("t", name="s", start=token, on_gap="deliver")
            async with selected as subscription:
                items = shown(await bounded(taken(subscription, b"last"), PATIENCE))

    assert [item for item in items if item != b"another"] == [*bodies, b"last"]


@pytest.mark.timeout(200)
@pytest.mark.parametrize("place", [HOME, ELSEWHERE])
async def test_who_has_changed_the_filter_does_too(tmp_path: Path, place: str) -> None:
    async with network(tmp_path) as net:
        _, bodies = await missed(net, "s")
        async with gapless.connect(net.nodes[place].url, client_id=CLIENT) as connection, connection.session() as own:
            changed = own.subscribe(
                "t", name="s", selector="later IS NULL", on_change="keep_position", on_gap="deliver"
            )
            async with changed as subscription:
                items = shown(await bounded(taken(subscription, b"last"), PATIENCE))

    assert items == [*bodies, b"last"]


@pytest.mark.timeout(200)
async def test_who_reads_by_ranges_does_too(tmp_path: Path) -> None:
    async with network(tmp_path) as net:
        token, bodies = await missed(net, "s")
        async with gapless.connect(net.nodes[HOME].url, client_id=CLIENT) as connection:
            reader = await bounded(connection.attach("s", "t"), PATIENCE)
            heads = await bounded(connection.heads(reader), PATIENCE)
            (pubend,) = heads.ticks
            parts = connection.read_range(reader, pubend, token.ticks[pubend], heads.ticks[pubend], on_gap="deliver")
            items = shown([item async for item in parts])

    assert [item for item in items if item != b"another"][: len(bodies)] == bodies


@pytest.mark.timeout(200)
async def test_so_does_a_blocking_reader(tmp_path: Path) -> None:
    async with network(tmp_path) as net:
        token, bodies = await missed(net, "s")

        def read(url: str) -> list[object]:
            items: list[gapless.Event | gapless.Gap] = []
            with (
                gapless.sync.connect(url, client_id=CLIENT) as connection,
                connection.session() as session,
                session.subscribe("t", name="s", start=token, on_gap="deliver", timeout=PATIENCE) as subscription,
            ):
                for item in subscription:
                    items.append(item)
                    if isinstance(item, gapless.Event) and item.body == b"last":
                        break
            return shown(items)

        items = await bounded(asyncio.to_thread(read, net.nodes[ELSEWHERE].url), PATIENCE)

    assert [item for item in items if item != b"another"] == [*bodies, b"last"]


async def joined(net: TestNetwork, name: str) -> gapless.CheckpointToken:
    """Creates a subscription that every broker knows by now: its consumer has left, behind a few events."""
    async with gapless.connect(net.nodes["phb"].url) as writer, writer.session() as publishing:
        publisher = publishing.publisher("t", name="first")
        async with (
            gapless.connect(net.nodes[HOME].url, client_id=CLIENT) as connection,
            connection.session() as session,
        ):
            async with await bounded(session.subscribe("t", name=name), PATIENCE) as subscription:
                for number in range(15):
                    await bounded(publisher.send(b"first %d" % number), PATIENCE)
                    await bounded(anext(subscription), PATIENCE)
                    await asyncio.sleep(0.1)
                return subscription.token


async def start_the_host_anew(net: TestNetwork, directory: Path) -> None:
    """What was released, the PHB has not got in memory either then."""
    await net.stop("phb")
    await net.start("phb", directory / "network.toml", **sections_of_the_host(directory))
    async with gapless.connect(net.nodes["phb"].url) as writer, writer.session() as session:
        await bounded(session.publisher("t", name="loader").send(b"end"), PATIENCE)


@pytest.mark.timeout(200)
@pytest.mark.parametrize("place", [HOME, ELSEWHERE])
async def test_nor_is_there_an_empty_gap_where_the_host_has_started_anew(tmp_path: Path, place: str) -> None:
    """What brokers on the way have then is filtered: of what lies between two events the home alone knows something."""
    async with network(tmp_path) as net:
        token = await joined(net, "s")
        _, bodies = await missed(net, "s")
        await start_the_host_anew(net, tmp_path)
        async with gapless.connect(net.nodes[place].url, client_id=CLIENT) as connection, connection.session() as own:
            selected = own.subscribe("t", name="s", start=token, on_gap="deliver")
            async with selected as subscription:
                items = shown(await bounded(taken(subscription, b"end"), PATIENCE))

    assert [item for item in items if item not in (b"first", b"another")] == [*bodies, b"last", b"end"]
