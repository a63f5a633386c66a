"""gapless.jms in a network: elsewhere than at home, over a PHB's volume that is lost, over a node that runs twice."""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless import jms
from gapless.core.ports import Roaming
from gapless.core.wire.messages import GapReason
from gapless_shb.core.state.places import home_of
from integration.broker_process import bounded, until
from integration.networks_in_process import TestNetwork, network_of
from integration.test_node_twice import Run, send

MODES = (jms.AUTO_ACKNOWLEDGE, jms.CLIENT_ACKNOWLEDGE, jms.DUPS_OK_ACKNOWLEDGE, jms.SESSION_TRANSACTED)
CLIENT = "desk"
PLACES = ("shb", "shb2")
LOST = GapReason.VOLUME_LOST.value
WAIT = 30_000
"""Milliseconds."""
HEARS_WITHIN = 10
"""Seconds."""


def client_at(home: str, mode: jms.SessionMode) -> str:
    """A client whose subscriptions have that home."""
    names = (f"{CLIENT}-{mode}-{number}" for number in range(1000))
    return next(name for name in names if home_of(name, Roaming(PLACES, b"")) == home)


@pytest.fixture
async def network(tmp_path: Path) -> AsyncIterator[TestNetwork]:
    """A PHB whose volume is in memory (a restart makes it anew), an IB, and two SHBs."""
    async with network_of(tmp_path, "phb", "ib", "shb", "shb2") as network:
        network.network["router"] = "knowledge"
        await network.start_all()
        await network.until_linked("phb", "ib")
        await network.until_linked("ib", "shb")
        await network.until_linked("shb", "shb2")
        yield network


async def publish(url: str, *bodies: str) -> list[gapless.Receipt]:
    async with gapless.connect(url) as connection, connection.session() as session:
        publisher = session.publisher("t", name="loader")
        return [await bounded(publisher.send(body.encode())) for body in bodies]


def text_of(message: jms.Message) -> str:
    """The text that was published as bytes."""
    body = message.get_body(bytes)
    assert body is not None
    return body.decode()


def settle(context: jms.JMSContext) -> None:
    """What was handed out is done with, as the mode of the session has it."""
    if context.get_transacted():
        context.commit()
    else:
        context.acknowledge()


def open_consumer(url: str, client: str, mode: jms.SessionMode) -> tuple[jms.JMSContext, jms.JMSConsumer]:
    """Opens it, as soon as its home has heard that the consumer before, elsewhere, is gone: that travels by mail."""
    for _ in range(HEARS_WITHIN):
        context = jms.ConnectionFactory(url, client_id=client).create_context(mode)
        try:
            return context, context.create_durable_consumer(context.create_topic("t"), "s")
        except jms.IllegalStateError as error:
            context.close()
            assert isinstance(error.__cause__, gapless.SubscriptionInUseError)
            time.sleep(1)
    raise AssertionError(f"{client} at {url}: the subscription is in use, and nobody is there")


def received(
    url: str, client: str, mode: jms.SessionMode, last: str, *, aborts: bool = False
) -> list[tuple[str, bool]]:
    """What a context gets up to a message: bodies, and whether they were marked; reasons of gaps.

    `aborts`: it settles nothing, and its application fails.
    """
    items: list[tuple[str, bool]] = []
    context, consumer = open_consumer(url, client, mode)
    try:
        with context:
            while not items or items[-1][0] != last:
                try:
                    message = consumer.receive(WAIT)
                except gapless.GapError as error:
                    items.append((error.gap.reason, False))
                    continue
                assert message is not None
                items.append((text_of(message), message.get_jms_redelivered()))
                if not aborts:
                    settle(context)
            if aborts:
                raise ZeroDivisionError
    except ZeroDivisionError:
        assert aborts
    return items


@pytest.mark.parametrize("mode", MODES)
async def test_a_durable_subscription_goes_on_wherever_its_client_is(
    network: TestNetwork, mode: jms.SessionMode
) -> None:
    """Each message once; what an application that has failed did not settle comes again: marked, but for DUPS_OK."""
    client, urls = client_at("shb", mode), {name: node.url for name, node in network.nodes.items()}

    def at(place: str, last: str, *, aborts: bool = False) -> Any:
        return bounded(asyncio.to_thread(received, urls[place], client, mode, last, aborts=aborts), 60)

    context, _ = await asyncio.to_thread(open_consumer, urls["shb2"], client, mode)
    await asyncio.to_thread(context.close)
    await publish(urls["phb"], "1", "2", "3")
    assert await at("shb2", "2") == [("1", False), ("2", False)]
    await publish(urls["shb2"], "4")
    assert await at("shb", "4") == [("3", False), ("4", False)]
    await publish(urls["shb"], "5", "6")
    assert await at("shb2", "6", aborts=True) == [("5", False), ("6", False)]
    again = await at("shb", "6")
    bodies = [body for body, _ in again]
    if mode == jms.DUPS_OK_ACKNOWLEDGE:  # it acknowledges what has arrived together, when it asks for more
        assert bodies in (["6"], ["5", "6"])
    else:
        assert bodies == (["6"] if mode == jms.AUTO_ACKNOWLEDGE else ["5", "6"])
    assert all(marked is (mode != jms.DUPS_OK_ACKNOWLEDGE) for _, marked in again)
    await publish(urls["phb"], "7")
    assert await at("shb2", "7") == [("7", False)]


async def lose_volume(network: TestNetwork) -> None:
    await network.stop("phb")
    await network.start("phb")
    for name in PLACES:
        await until(lambda name=name: "pubend_made_anew" in network.alarms(name), f"{name} knows it")  # type: ignore[misc]


@pytest.mark.parametrize("place", PLACES)
async def test_whoever_receives_is_told_once_that_the_volume_was_lost(network: TestNetwork, place: str) -> None:
    """At home and elsewhere, live and behind; and then the messages of the new log come."""
    urls = {name: node.url for name, node in network.nodes.items()}
    clients = {mode: client_at("shb", mode) for mode in MODES}
    live = {mode: await asyncio.to_thread(open_consumer, urls[place], client, mode) for mode, client in clients.items()}
    await publish(urls["phb"], "1", "2")

    def first(mode: jms.SessionMode) -> str:
        context, consumer = live[mode]
        message = consumer.receive(WAIT)
        assert message is not None
        settle(context)
        return text_of(message)

    for mode in MODES:
        assert await bounded(asyncio.to_thread(first, mode)) == "1"
    await lose_volume(network)
    await publish(urls[place], "new")

    for mode in MODES:
        told = await bounded(asyncio.to_thread(told_and_new, *live[mode]), 60)
        assert told in (["2", LOST, "new"], ["2", "new", LOST])  # two pubends, which take turns
    await publish(urls[place], "newer")
    other = PLACES[1 - PLACES.index(place)]
    for mode, client in clients.items():
        later = await bounded(asyncio.to_thread(received, urls[other], client, mode, "newer"), 60)
        assert later == [("newer", False)]


def told_and_new(context: jms.JMSContext, consumer: jms.JMSConsumer) -> list[str]:
    """What a context gets until it was told a gap, and has the message that was published then; it is closed."""
    items: list[str] = []
    with context:
        while not {LOST, "new"} <= {*items}:
            try:
                message = consumer.receive(WAIT)
            except gapless.GapError as error:
                items.append(error.gap.reason)
                continue
            assert message is not None
            items.append(text_of(message))
        settle(context)
    return items


@pytest.mark.parametrize("place", PLACES)
async def test_a_listener_goes_on_and_the_exception_listener_is_told(network: TestNetwork, place: str) -> None:
    urls = {name: node.url for name, node in network.nodes.items()}
    heard: dict[jms.SessionMode, queue.SimpleQueue[str]] = {mode: queue.SimpleQueue() for mode in MODES}
    contexts: list[jms.JMSContext] = []

    def listen(mode: jms.SessionMode) -> None:
        context = jms.ConnectionFactory(urls[place], client_id=client_at("shb", mode)).create_context(mode)
        contexts.append(context)
        context.set_exception_listener(lambda error: heard[mode].put(_reason(error)))

        def listener(message: jms.Message) -> None:
            settle(context)
            heard[mode].put(text_of(message))

        context.create_durable_consumer(context.create_topic("t"), "s").set_message_listener(listener)

    for mode in MODES:
        await asyncio.to_thread(listen, mode)
    await publish(urls["phb"], "1")
    for mode in MODES:
        assert await bounded(asyncio.to_thread(heard[mode].get)) == "1"
    await lose_volume(network)
    await publish(urls[place], "new")
    for mode in MODES:
        assert {await bounded(asyncio.to_thread(heard[mode].get)) for _ in range(2)} == {LOST, "new"}
    for context in contexts:
        await asyncio.to_thread(context.close)


def _reason(error: Exception) -> str:
    return error.gap.reason if isinstance(error, gapless.GapError) else repr(error)


async def test_over_a_node_that_runs_twice_every_message_comes_or_is_told(tmp_path: Path) -> None:
    """At home and elsewhere: those of both processes of the publishers' host."""
    async with network_of(tmp_path, "phb", "ib", "shb", "shb2") as network:
        network.network["router"] = "knowledge"
        run = Run(network, tmp_path)
        await run.start("phb")
        urls = {name: node.url for name, node in network.nodes.items()}
        places = dict(zip(MODES, ("shb", "shb2", "shb", "shb2"), strict=True))
        consumers = {
            mode: await asyncio.to_thread(open_consumer, urls[place], client_at("shb", mode), mode)
            for mode, place in places.items()
        }
        try:
            receipts = await in_two_processes(run, urls, take(consumers))
            items = {mode: await bounded(asyncio.to_thread(rest_of, *consumers[mode], "5"), 60) for mode in MODES}
        finally:
            for context, _ in consumers.values():
                await asyncio.to_thread(context.close)
            for rival in run.rivals:
                await rival.stop()
    for mode in MODES:
        gaps = [item for item in items[mode] if isinstance(item, gapless.Gap)]
        assert {gap.reason for gap in gaps} == {"the broker ran twice"}
        for body, tick in receipts.items():
            assert body.decode() in items[mode] or any(gap.start < tick <= gap.end for gap in gaps), (mode, body)


def take(consumers: dict[jms.SessionMode, tuple[jms.JMSContext, jms.JMSConsumer]]) -> Callable[[], None]:
    """Lets each consumer take one message."""

    def one_each() -> None:
        for context, consumer in consumers.values():
            assert consumer.receive(WAIT) is not None
            settle(context)

    return one_each


async def in_two_processes(run: Run, urls: dict[str, str], one_each: Callable[[], None]) -> dict[bytes, int]:
    """Publishes at a node, and at a second process on a copy of its volume. Returns what the copy had not."""
    async with gapless.connect(urls["phb"]) as first, first.session() as publishing:
        publisher = publishing.publisher("t", name="loader")
        await send(publisher, b"common")
        await bounded(asyncio.to_thread(one_each), 60)
        run.copy("phb")
        receipts = await send(publisher, b"1", b"2", b"3")
    rival = await run.start_rival("phb")
    await run.until_shut_out("phb", "ib")
    async with gapless.connect(rival.url) as second, second.session() as again:
        return receipts | await send(again.publisher("t", name="later"), b"4", b"5")


def rest_of(context: jms.JMSContext, consumer: jms.JMSConsumer, last: str) -> list[Any]:
    """Bodies and gaps up to a message."""
    items: list[Any] = []
    while not items or items[-1] != last:
        try:
            message = consumer.receive(WAIT)
        except gapless.GapError as error:
            items.append(error.gap)
            continue
        assert message is not None
        items.append(text_of(message))
        settle(context)
    return items
