"""A PHB's volume is lost and made anew: all kinds of readers are told, in total order, by gapless.jms, by Spark."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless import jms
from gapless.core.wire.messages import GapReason
from gapless.errors import TransactionInDoubtError, TransactionRolledBackError
from gapless_spark.gaps import RangeGapError
from gapless_spark.offsets import offset_of
from gapless_spark.options import SourceOptions, source_options
from gapless_spark.stream import Stream
from gapless_spark.stream import ranges as ranges_between
from integration.broker_process import bounded, until
from integration.command_line import COMMAND
from integration.networks_in_process import TestNetwork, network_of

REASON = GapReason.VOLUME_LOST.value
LOST = (TransactionInDoubtError, TransactionRolledBackError)
"""Of a transaction whose outputs were to go to the lost pubend; in doubt if it was sent."""


@pytest.fixture
async def network(tmp_path: Path) -> AsyncIterator[TestNetwork]:
    """Two PHBs whose volumes are in memory (a restart makes one anew), and an SHB; both pubends are of one group."""
    async with network_of(tmp_path, "phb", "ib", "shb", "phb2") as network:
        network.network["router"] = "knowledge"
        network.groups = [{"name": "book", "members": ["phb/default", "phb2/default"], "silence_seconds": 0.01}]
        await start_first(network)
        await network.start("ib")
        await network.start("shb")
        await network.start("phb2", phb={"pubends": [{"name": "default", "topics": ["b.#"]}]})
        await network.until_linked("phb", "ib")
        await network.until_linked("ib", "shb")
        await network.until_linked("shb", "phb2")
        await network.until_pubends("shb", 2)
        yield network


async def start_first(network: TestNetwork) -> None:
    """The first PHB starts, with an empty volume."""
    await network.start("phb", phb={"pubends": [{"name": "default", "topics": ["a.#"]}]})


async def lose_volume(network: TestNetwork) -> None:
    """The first PHB dies, and comes back with an empty volume."""
    await network.stop("phb")
    await start_first(network)


async def publish(network: TestNetwork, node: str, topic: str, count: int) -> list[gapless.Receipt]:
    """Publishes so many events at one node, one after the other."""
    async with gapless.connect(network.nodes[node].url) as connection, connection.session() as session:
        publisher = session.publisher(topic)
        return [await bounded(publisher.send(b"%d" % number)) for number in range(count)]


async def take(subscription: gapless.Subscription[Any, Any], *receipts: gapless.Receipt) -> list[gapless.Gap]:
    """Takes these events, in this order, and what else comes before the last of them. Returns the gaps."""
    gaps: list[gapless.Gap] = []
    taken: list[tuple[int, str]] = []
    last = receipts[-1]
    while not taken or taken[-1] != (last.tick, last.pubend):
        item = await bounded(anext(subscription))
        if isinstance(item, gapless.Gap):
            gaps.append(item)
        else:
            taken.append((item.tick, item.pubend))
    assert taken[-len(receipts) :] == [(each.tick, each.pubend) for each in receipts]
    assert taken == sorted(taken)
    return gaps


async def test_in_total_order_the_gap_comes_and_then_all_that_the_new_pubend_has(network: TestNetwork) -> None:
    """Also what was published before any SHB had heard of the new pubend, when the other members were further."""
    async with gapless.connect(network.nodes["shb"].url) as connection, connection.session() as session:
        async with session.subscribe("#", name="behind", start="earliest", order="total"):
            pass
        live = await session.subscribe("#", name="live", start="earliest", order="total", on_gap="deliver")
        lost = await publish(network, "phb", "a.x", 3)
        held = await publish(network, "phb2", "b.x", 3)
        await take(live, *lost, *held)
        await lose_volume(network)
        after = [*await publish(network, "phb", "a.x", 2), *await publish(network, "phb2", "b.x", 2)]

        told = [await take(live, *after)]
        behind = await session.subscribe("#", name="behind", order="total", on_gap="deliver")
        told.append(await take(behind, *held, *after))
        new = await session.subscribe("#", start="earliest", order="total", on_gap="deliver")
        assert await take(new, *held, *after) == []

    for gaps in told:
        (gap,) = gaps
        assert (gap.pubend, gap.reason) == (lost[0].pubend, REASON)


async def test_whatever_reads_is_told_a_gap_and_goes_on(network: TestNetwork) -> None:
    url = network.nodes["shb"].url
    begun = [
        await asyncio.to_thread(jms_consumer, url, mode) for mode in (jms.AUTO_ACKNOWLEDGE, jms.SESSION_TRANSACTED)
    ]
    streams = {fails: Stream(spark_options(url, fails=fails)) for fails in (True, False)}
    starts = {fails: await asyncio.to_thread(stream.initial) for fails, stream in streams.items()}
    async with (
        gapless.connect(url, client_id="async") as connection,
        connection.session() as session,
        connection.session(gapless.AckMode.CLIENT) as transacted,
    ):
        async with session.subscribe("a.x", name="command", start="earliest"):
            pass
        work = await session.transform("a.x", to="a.out", name="work", start="earliest", on_gap="deliver")
        transactions = transacted.transactions()
        inputs = await transacted.subscribe("a.x", name="inputs", start="earliest", on_gap="deliver")
        (first, *_) = await publish(network, "phb", "a.x", 3)
        batch = await bounded(anext(work))
        assert not isinstance(batch, gapless.Gap)
        await batch.publish([gapless.Message(b"out")])
        await bounded(anext(inputs))
        transactions.send(gapless.Message(b"out", topic="a.out"))
        await bounded(transactions.commit())
        await bounded(anext(inputs))
        transactions.send(gapless.Message(b"out", topic="a.out"))
        await lose_volume(network)
        await until(lambda: "pubend_made_anew" in network.alarms("shb"), "the SHB knows it")
        (after,) = await publish(network, "phb", "a.x", 1)

        with pytest.raises(LOST, match="is gone"):
            await bounded(transactions.commit())
        assert await told_before(inputs, after) == (first.pubend, REASON)
        assert await committed(transactions) == after.pubend

        with pytest.raises(gapless.PublishError, match="is gone"):
            await publish_until_it_fails(work)
        with pytest.raises(gapless.PublishError, match="is gone"):
            await bounded(work.close())
        assert await transformed_again(session, after) == [REASON]

    for context, consumer in begun:
        assert await bounded(asyncio.to_thread(jms_gap, context, consumer)) == REASON
    for fails, stream in streams.items():
        found = await bounded(asyncio.to_thread(read_by_spark, stream, starts[fails], fails=fails))
        assert fails or (found[first.pubend][-1], found[after.pubend]) == (REASON, [b"0"])
    assert await command_line(url) == (1, REASON, after.pubend)


async def committed(transactions: Any) -> str:
    """Commits one message. Returns its pubend. That the publisher is over may come with the first of these commits."""
    while True:
        transactions.send(gapless.Message(b"again", topic="a.out"))
        try:
            (receipt,) = await bounded(transactions.commit())
        except TransactionRolledBackError:
            continue
        return str(receipt.pubend)


async def told_before(inputs: gapless.Subscription[Any, Any], last: gapless.Receipt) -> tuple[str, str]:
    """Takes what comes until a gap and the last event were there: they are of two pubends, which take turns."""
    told, done = ("", ""), False
    while not (done and all(told)):
        item = await bounded(anext(inputs))
        if isinstance(item, gapless.Gap):
            told = item.pubend, item.reason
        else:
            done = done or (item.tick, item.pubend) == (last.tick, last.pubend)
    return told


async def publish_until_it_fails(work: Any) -> None:
    """A transform takes what comes, until its outputs have nowhere to go."""
    while True:
        item = await bounded(anext(work))
        if not isinstance(item, gapless.Gap):
            await bounded(item.publish([gapless.Message(b"out")]))


async def transformed_again(session: gapless.Session, last: gapless.Receipt) -> list[str]:
    """The transform is begun again. Returns the reasons of the gaps that it gets."""
    reasons: list[str] = []
    done = False
    async with session.transform("a.x", to="a.out", name="work", on_gap="deliver") as work:
        while not (done and reasons):
            item = await bounded(anext(work))
            if isinstance(item, gapless.Gap):
                reasons.append(item.reason)
            else:
                done = done or item[-1].tick == last.tick
                await item.publish([gapless.Message(b"out")])
    return reasons


def jms_consumer(url: str, mode: int) -> tuple[jms.JMSContext, jms.JMSConsumer]:
    context = jms.ConnectionFactory(url, client_id=f"jms{mode}").create_context(mode)
    return context, context.create_durable_consumer(context.create_topic("a.x"), "s")


def jms_gap(context: jms.JMSContext, consumer: jms.JMSConsumer) -> str:
    """Receives until a gap is told. Returns its reason."""
    with context, pytest.raises(gapless.GapError) as raised:
        while consumer.receive(30_000) is not None:
            pass
    return str(raised.value.gap.reason)


def spark_options(url: str, *, fails: bool) -> SourceOptions:
    options = {"brokers": url.partition("://")[2], "topics": "a.x", "subscription": f"spark-{fails}"}
    more = {"startingOffsets": "earliest", "failOnGap": str(fails).lower()}
    return source_options(options | more, streaming=True)


def read_by_spark(stream: Stream, start: gapless.CheckpointToken, *, fails: bool) -> dict[str, list[Any]]:
    """The driver of a query fails with the reason, or goes on behind the gap; so does a batch query.

    Returns what was found of each pubend: bodies of events, and reasons of gaps.
    """
    found: dict[str, list[Any]] = {}
    if fails:
        with pytest.raises(RangeGapError, match=REASON):
            stream.latest(offset_of(start), capped=False)
        stream.stop()
        return found
    end = stream.latest(offset_of(start), capped=False)
    for each in ranges_between(offset_of(start), offset_of(end), 0):
        reading = stream.connected().read_range(start, each.pubend, each.start, each.end, on_gap="deliver")
        with reading as reader:
            items = [item.reason if isinstance(item, gapless.Gap) else item.body for item in reader]
        found.setdefault(each.pubend, []).extend(items)
    stream.commit(offset_of(end))
    stream.stop()
    return found


async def command_line(url: str) -> tuple[int | None, str, str]:
    """Returns what `gapless subscribe --json` ended with, the reason of the gap, and the pubend of its event."""
    options = ["--topic", "a.x", "--client-id", "async", "--count", "1", "--json", "--url", url]
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "subscribe", "command", *options, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    output, _ = await bounded(process.communicate())
    lines = [json.loads(line) for line in output.splitlines()]
    (gap,) = [line["gap"] for line in lines if "gap" in line]
    return process.returncode, gap["reason"], lines[-1].get("pubend", "")
