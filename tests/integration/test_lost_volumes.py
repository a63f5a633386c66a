"""A PHB's volume is lost and made anew: whoever is owed something of it is told, and its publishers hear it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import gapless
from gapless import jms
from gapless.core.wire.messages import GapReason
from integration.broker_process import bounded, until
from integration.networks_in_process import TestNetwork, network_of


@pytest.fixture
async def network(tmp_path: Path) -> AsyncIterator[TestNetwork]:
    """A PHB whose volume is in memory: a restart makes it anew. The SHBs keep theirs."""
    async with network_of(tmp_path, "phb", "ib", "shb", "shb2") as network:
        network.network["router"] = "knowledge"
        for name in ("phb", "ib"):
            await network.start(name)
        for name in ("shb", "shb2"):
            await start_shb(network, name)
        await network.until_linked("phb", "ib")
        await network.until_linked("ib", "shb")
        await network.until_linked("shb", "shb2")
        yield network


async def start_shb(network: TestNetwork, name: str) -> None:
    """Starts an SHB on its volume on disk."""
    await network.start(name, storage={"path": str(network.directory / name)})


async def lose_volume(network: TestNetwork) -> None:
    """The PHB dies, and comes back with an empty volume."""
    await network.stop("phb")
    await network.start("phb")


async def publish(url: str, topic: str, count: int) -> list[gapless.Receipt]:
    """Publishes so many events, and waits for each receipt."""
    async with gapless.connect(url) as connection, connection.session() as session:
        publisher = session.publisher(topic)
        return [await bounded(publisher.send(b"%d" % number)) for number in range(count)]


async def gap_of(
    subscription: gapless.Subscription[gapless.Event | gapless.Gap, gapless.Gap], pubend: str
) -> gapless.Gap:
    """Waits for the gap on a pubend."""
    while True:
        item = await bounded(anext(subscription))
        if isinstance(item, gapless.Gap) and item.pubend == pubend:
            return item


def covers(gap: gapless.Gap, receipts: list[gapless.Receipt]) -> bool:
    """Whether a gap has the reason, and all of these events lie in it."""
    right = gap.reason == GapReason.VOLUME_LOST.value
    return right and all(gap.start < receipt.tick <= gap.end for receipt in receipts)


async def is_told(
    subscription: gapless.Subscription[gapless.Event | gapless.Gap, gapless.Gap], owed: list[gapless.Receipt]
) -> None:
    """Each of these events is delivered (a broker may still have it in memory), or lies in a gap with the reason."""
    left = {receipt.tick for receipt in owed}
    while left:
        item = await bounded(anext(subscription))
        if isinstance(item, gapless.Gap):
            assert covers(item, [])
            left = {tick for tick in left if not item.start < tick <= item.end}
        else:
            left.discard(item.tick)


async def test_every_subscription_is_told_wherever_it_is_consumed(network: TestNetwork) -> None:
    urls = {name: node.url for name, node in network.nodes.items()}
    async with gapless.connect(urls["shb"], client_id="c") as connection, connection.session() as session:
        async with session.subscribe("t", name="behind", start="earliest"):
            pass
        async with session.subscribe("t", name="live", start="earliest", on_gap="deliver") as live:
            receipts = await publish(urls["phb"], "t", 5)
            await until(lambda: network.is_linked("shb", "ib"), "the way is there")
            delivered = [await bounded(anext(live)) for _ in receipts]
            await lose_volume(network)
            told = await gap_of(live, receipts[0].pubend)
            (after,) = await publish(urls["shb"], "t", 1)
            next_one = await bounded(anext(live))

    assert [event.tick for event in delivered if isinstance(event, gapless.Event)] == [one.tick for one in receipts]
    assert covers(told, [])
    assert told.start >= receipts[-1].tick
    assert isinstance(next_one, gapless.Event)
    assert (next_one.pubend, next_one.tick) == (after.pubend, after.tick)
    for name in ("shb", "shb2"):  # at home, and elsewhere
        async with gapless.connect(urls[name], client_id="c") as connection, connection.session() as session:
            async with session.subscribe("t", name="behind", on_gap="deliver") as behind:
                await is_told(behind, receipts)

    def alarms() -> list[str]:
        told = (network.alarms(node).get("pubend_made_anew", ()) for node in ("shb", "shb2"))
        return [text for texts in told for text in texts if "'behind' of client 'c' had not " in text]

    await until(lambda: bool(alarms()), "the operator is told who lacked something")
    (text,) = alarms()
    assert receipts[0].pubend in text
    assert after.pubend in text


async def test_an_shb_that_was_down_meanwhile_tells_it_when_it_is_back(network: TestNetwork) -> None:
    urls = {name: node.url for name, node in network.nodes.items()}
    async with gapless.connect(urls["shb"], client_id="c") as connection, connection.session() as session:
        async with session.subscribe("t", name="s", start="earliest"):
            pass
    for name in ("shb", "shb2"):
        await network.stop(name)
    unheard = await publish(urls["phb"], "t", 3)
    await lose_volume(network)
    for name in ("shb", "shb2"):
        await start_shb(network, name)
    url = network.nodes["shb"].url
    async with gapless.connect(url, client_id="c", wait=True) as connection, connection.session() as session:
        async with session.subscribe("t", name="s", on_gap="deliver") as subscription:
            await is_told(subscription, unheard)
    await network.stop("shb")
    await start_shb(network, "shb")
    url = network.nodes["shb"].url
    async with gapless.connect(url, client_id="c", wait=True) as connection, connection.session() as session:
        async with session.subscribe("t", name="s", on_gap="deliver") as subscription:
            await is_told(subscription, unheard)  # again: it was not acknowledged


async def test_open_publishers_hear_it_and_a_name_that_is_opened_again_goes_on(network: TestNetwork) -> None:
    urls = {name: node.url for name, node in network.nodes.items()}
    async with (
        gapless.connect(urls["phb"], wait=True) as near,
        near.session() as at_phb,
        gapless.connect(urls["shb"], wait=True) as far,
        far.session() as at_shb,
    ):
        publishers = [
            at_phb.publisher("t", name="direct"),
            at_shb.publisher("t", name="through"),
            at_shb.publisher("t"),
        ]
        before = [await bounded(publisher.send(b"1")) for publisher in publishers]
        port = urls["phb"].rpartition(":")[2]
        await network.stop("phb")
        sending = [asyncio.ensure_future(publisher.send(b"2")) for publisher in publishers]
        await network.start("phb", listen=[{"address": f"127.0.0.1:{port}"}])
        outcomes = await bounded(asyncio.gather(*sending, return_exceptions=True))
        for outcome in outcomes:
            assert isinstance(outcome, (gapless.PublishUncertainError, gapless.PublishRejectedError))
            assert f"pubend '{before[0].pubend}' is gone" in str(outcome)
        for publisher in publishers[1:]:
            with pytest.raises(gapless.PublishError):
                await bounded(publisher.send(b"3"))
        again = at_shb.publisher("t", name="through")
        done = await bounded(again.recover())
        receipt = await bounded(again.send(b"4"))

    assert done.sequence == 0
    assert receipt.pubend != before[0].pubend


async def test_a_jms_context_goes_on_once_its_publisher_is_over(network: TestNetwork) -> None:
    """A context has one publisher for each topic: when that was over, nothing could be sent to the topic any more."""
    url = network.nodes["shb"].url
    context = await asyncio.to_thread(lambda: jms.ConnectionFactory(url).create_context())
    topic = context.create_topic("t")
    producer = context.create_producer()
    try:
        await bounded(asyncio.to_thread(producer.send, topic, "before"))
        await lose_volume(network)
        with pytest.raises(jms.JMSError, match="is gone"):
            await bounded(asyncio.to_thread(producer.send, topic, "uncertain"))
        with contextlib.suppress(jms.JMSError):  # that it is over may come with the next answer
            await bounded(asyncio.to_thread(producer.send, topic, "rejected"))

        await bounded(asyncio.to_thread(producer.send, topic, "after"))
    finally:
        await asyncio.to_thread(context.close)


async def test_a_range_read_meets_the_gap_and_heads_do_not_wait(network: TestNetwork) -> None:
    urls = {name: node.url for name, node in network.nodes.items()}
    async with gapless.connect(urls["shb"], client_id="etl") as connection, connection.session() as session:
        async with session.subscribe("t", name="q", start="earliest"):
            pass
        home = next(row.node for row in await connection.subscriptions() if row.name == "q")
    async with gapless.connect(urls[str(home)], client_id="etl") as connection:
        position = await connection.attach("q", "t")
        receipts = await publish(urls["phb"], "t", 4)
        pubend = receipts[0].pubend
        head = await bounded(connection.heads("q", after=position, wait=10))
        while head.ticks[pubend] < receipts[-1].tick:
            head = await bounded(connection.heads("q", after=head, wait=10))
        await lose_volume(network)
        await until(lambda: "pubend_made_anew" in network.alarms(str(home)), "the SHB knows it")
        later = await bounded(connection.heads("q", after=position, wait=10))
        start = position.ticks[pubend]
        async with connection.read_range("q", pubend, start, later.ticks[pubend], on_gap="deliver") as reader:
            items = [item async for item in reader]

    gaps = [item for item in items if isinstance(item, gapless.Gap)]
    delivered = {item.tick for item in items if isinstance(item, gapless.Event)}
    left = [one for one in receipts if one.tick not in delivered]
    assert gaps
    assert all(covers(gap, []) for gap in gaps)
    assert all(any(gap.start < one.tick <= gap.end for gap in gaps) for one in left)


async def test_a_token_of_the_lost_log_is_told_a_gap_and_is_refused_where_that_was_never_known(
    network: TestNetwork,
) -> None:
    urls = {name: node.url for name, node in network.nodes.items()}
    async with gapless.connect(urls["shb"], client_id="c") as connection, connection.session() as session:
        async with session.subscribe("t", name="s", start="earliest") as subscription:
            receipts = await publish(urls["phb"], "t", 3)
            await bounded(anext(subscription))
            token = subscription.token
        await lose_volume(network)
        async with session.subscribe("t", name="new", start=token, on_gap="deliver") as new:
            await is_told(new, receipts[1:])
    for name in ("shb", "shb2"):
        await network.stop(name)
        await network.start(name)  # in memory: it has never heard of that pubend
    await network.until_linked("shb", "ib")
    async with gapless.connect(network.nodes["shb"].url, client_id="c") as connection, connection.session() as session:
        await publish(network.nodes["shb"].url, "t", 1)
        with pytest.raises(gapless.TokenMismatchError):
            await bounded(session.subscribe("t", name="other", start=token))
