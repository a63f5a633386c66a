"""Total order through the front door: pubends of two nodes in one order, the same for all, across whatever crashes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless.cli.doctor_logs import held_groups
from gapless.core.gauges import values_by
from gapless_shb.core.state.gauges import GROUP
from integration.broker_process import bounded, until
from integration.networks_in_process import TestNetwork, network_of
from integration.nodes_in_process import running_node

MEMBERS = ["phb/default", "phb2/default"]
PUBENDS: list[dict[str, Any]] = [
    {"name": "a", "topics": ["a.#"]},
    {"name": "b", "topics": ["b.#"]},
    {"name": "alone", "topics": ["alone"]},
]
BOOK: dict[str, Any] = {"phb": {"pubends": PUBENDS}, "group": [{"name": "book", "members": ["broker/a", "broker/b"]}]}


def place(event: gapless.Event) -> tuple[int, str]:
    """Where an event stands in a total order."""
    return event.tick, event.pubend


@pytest.fixture
async def network(tmp_path: Path) -> AsyncIterator[TestNetwork]:
    """Two PHBs, of which one keeps its volume, and an SHB; their pubends are a group."""
    async with network_of(tmp_path, "phb", "ib", "shb", "phb2") as network:
        network.network["router"] = "knowledge"
        network.groups = [{"name": "book", "members": MEMBERS, "silence_seconds": 0.01}]
        await network.start("phb", phb={"pubends": [{"name": "default", "topics": ["a.#"]}]})
        await network.start("ib")
        await network.start("shb")
        await start_second(network)
        yield network


async def start_second(network: TestNetwork) -> None:
    """The PHB that keeps its volume is there, or there again."""
    pubends = [{"name": "default", "topics": ["b.#"]}]
    await network.start("phb2", storage={"path": str(network.directory / "phb2")}, phb={"pubends": pubends})
    await network.until_linked("shb", "phb2")


async def publish(url: str, topic: str, count: int) -> list[gapless.Receipt]:
    """Publishes so many events at one node, one after the other."""
    async with gapless.connect(url) as connection, connection.session() as session:
        publisher = session.publisher(topic)
        return [await bounded(publisher.send(b"%d" % number)) for number in range(count)]


async def test_events_of_two_nodes_come_in_one_order_and_a_dead_one_holds_it(network: TestNetwork) -> None:
    urls = {name: node.url for name, node in network.nodes.items()}
    async with (
        gapless.connect(urls["shb"]) as connection,
        connection.session() as session,
        session.subscribe("#", name="durable", order="total") as durable,
        session.subscribe("a.*", "b.x", order="total") as passing,
    ):
        halves = await asyncio.gather(publish(urls["phb"], "a.x", 60), publish(urls["phb2"], "b.x", 60))
        expected = sorted((receipt.tick, receipt.pubend) for half in halves for receipt in half)
        assert len({pubend for _, pubend in expected}) == 2

        assert [place(await bounded(anext(passing))) for _ in expected] == expected
        assert [place(await bounded(anext(durable))) for _ in expected] == expected

        await network.stop("phb2")
        held = await publish(urls["phb"], "a.x", 3)
        late = asyncio.ensure_future(anext(durable))
        await until(lambda: lag(network) > 300, "the dead member is seen to be behind")
        assert not late.done()
        (finding,) = held_groups((await connection.status()).gauges, 0.1)
        assert finding.startswith("the group 'book' is held by phb2/default since ")
        await start_second(network)

        events = [await bounded(late), *[await bounded(anext(durable)) for _ in held[1:]]]
        assert [event.tick for event in events] == [receipt.tick for receipt in held]


def lag(network: TestNetwork) -> int:
    """By how many milliseconds the last member is behind the first, as the SHB sees it."""
    heads = values_by(network.nodes["shb"].gauges(), GROUP, "member")
    assert list(heads) == MEMBERS
    return int(heads[MEMBERS[0]] - heads[MEMBERS[1]]) >> 22


@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "rocksdb"])
async def test_consumers_that_are_killed_at_any_event_get_the_rest_in_the_same_order(
    tmp_path: Path, *, on_disk: bool
) -> None:
    """Events of one batch of two pubends have equal ticks or near ones, and each consumer dies after each few."""
    async with running_node(tmp_path / "volume" if on_disk else None, **BOOK) as node:
        async with gapless.connect(node.url) as connection, connection.session() as session:
            async with session.subscribe("a.#", "b.#", name="dying", order="total"):
                pass
            publishers = [session.publisher("a.x"), session.publisher("b.x")]
            receipts: list[gapless.Receipt] = []
            for _ in range(20):
                batch = [gapless.Message(b"x") for _ in range(3)]
                for got in await asyncio.gather(*[one.send_batch(batch) for one in publishers]):
                    receipts += got
        expected = sorted((receipt.tick, receipt.pubend) for receipt in receipts)

        consumed: list[tuple[int, str]] = []
        token: gapless.CheckpointToken | None = None
        for lifetime in (1, 2, 3, 5, 7, 11, 13, 78):
            connection = await gapless.connect(node.url)
            session = connection.session()
            subscription = await session.subscribe("a.#", "b.#", name="dying", start=token, order="total")
            for _ in range(lifetime):
                consumed.append(place(await bounded(anext(subscription))))
                token = subscription.token
            session.abandon()
            await connection.close()

    assert consumed == expected


async def test_what_has_no_one_order_is_refused_in_a_sentence() -> None:
    async with (
        running_node(**BOOK) as node,
        gapless.connect(node.url) as connection,
        connection.session() as session,
    ):
        with pytest.raises(gapless.ConfigurationError, match="order is one of 'pubend', 'total', not 'best'"):
            await session.subscribe("a.#", order="best")  # type: ignore[call-overload]  # on purpose
        with pytest.raises(
            gapless.ConfigurationError,
            match="broker/a, which is in the group 'book' and to broker/alone, which is in no group",
        ):
            await session.subscribe("a.#", "alone", order="total")
        with pytest.raises(gapless.ConfigurationError, match="published to broker/alone, and to no member of a group"):
            await session.subscribe("alone", name="durable", order="total")
        async with session.subscribe("a.#", name="plain"):
            pass
        with pytest.raises(gapless.SubscriptionMismatchError, match="exists with order='pubend'"):
            await session.subscribe("a.#", name="plain", order="total")
    async with running_node() as node, gapless.connect(node.url) as connection, connection.session() as session:
        with pytest.raises(gapless.ConfigurationError, match="needs a group of pubends: none is configured here"):
            await session.subscribe("t", order="total")


def test_the_blocking_facade_has_it_too() -> None:
    async def run() -> None:
        async with running_node(**BOOK) as node:
            assert await asyncio.to_thread(blocking, node.url) == [b"0", b"1", b"2", b"3"]

    asyncio.run(run())


def blocking(url: str) -> list[bytes]:
    """Publishes to both pubends in turns, and returns what a subscriber gets."""
    with gapless.sync.connect(url) as connection, connection.session() as session:
        subscription = session.subscribe("a.#", "b.#", order="total")
        publishers = [session.publisher(topic) for topic in ("b.x", "a.x")]
        for number in range(4):
            publishers[number % 2].send(b"%d" % number)
        events = [subscription.receive(timeout=10) for _ in range(4)]
        return [event.body for event in events if event is not None]
