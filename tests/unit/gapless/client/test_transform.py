"""`Session.transform`, as an application calls it (TS9, TS10, TS11)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

import gapless
from gapless.client import transform
from gapless.core.wire import messages as m
from unit.gapless.client.conftest import ADDRESS, is_connected, until
from unit.gapless.client.fake_broker import PUBEND, FakeBroker
from unit.gapless.client.fake_network import FakeNetwork


def upper(events: Iterable[gapless.Event]) -> list[gapless.Message]:
    """What the transforms here make of their input."""
    return [gapless.Message(event.body.upper()) for event in events]


def outputs(broker: FakeBroker) -> list[bytes]:
    """The bodies of what was published to "out"."""
    stream = broker.streams[PUBEND]
    rows = zip(stream.headers, stream.events, stream.body_lengths, strict=True)
    return [event[-length:] for header, event, length in rows if header.topic == "out"]


def acknowledged(broker: FakeBroker) -> int:
    (subscription,) = broker.subscriptions.values()
    return subscription.acknowledged.get(PUBEND, 0)


async def test_each_batch_is_published_with_the_position_behind_it(network: FakeNetwork) -> None:
    ticks = network.broker.log(b"a", b"b", b"c", topic="raw.x")
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        work = await session.transform("raw.#", to="out", name="enrich", start="earliest", max_events=2)
        async for batch in work:
            await batch.publish(upper(batch))
            if batch[-1].tick == ticks[-1]:
                work.drain()
        await work.close()
        await connection.pubends()

        assert outputs(network.broker) == [b"A", b"B", b"C"]
        (token,) = network.broker.names["enrich"].tokens
        assert token == work.token
        assert token.ticks[PUBEND] == ticks[-1]
        assert acknowledged(network.broker) == ticks[-1]


async def test_the_next_one_continues_from_the_stored_position(network: FakeNetwork) -> None:
    ticks = network.broker.log(b"a", b"b", topic="raw.x")
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        for body in (b"a", b"b"):
            async with session.transform("raw.#", to="out", name="enrich", start="earliest", max_events=1) as work:
                async for batch in work:
                    assert [event.body for event in batch] == [body]
                    await batch.publish(upper(batch))
                    break
        network.log(b"c", topic="raw.x")
        async with session.transform("raw.#", to="out", name="enrich", start="earliest") as work:
            async for batch in work:
                assert [event.body for event in batch] == [b"c"]
                break  # not published: it comes again

    assert outputs(network.broker) == [b"A", b"B"]
    assert acknowledged(network.broker) == ticks[-1]


async def test_the_publisher_is_opened_before_the_input_is_attached(network: FakeNetwork) -> None:
    """TS9."""
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        await session.transform("raw.#", to="out", name="enrich")

    kinds = [type(message) for message in network.broker.received]
    assert kinds.index(m.OpenPublisher) < kinds.index(m.Subscribe)


async def test_batches_are_on_their_way_together_and_acknowledged_after_their_receipts(network: FakeNetwork) -> None:
    """TS10."""
    network.broker.log(*(b"%d" % number for number in range(6)), topic="raw.x")
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        work = await session.transform("raw.#", to="out", name="enrich", start="earliest", max_events=1)
        before = acknowledged(network.broker)
        network.broker.silent = True
        for number in range(6):
            batch = await anext(work)
            assert [event.body for event in batch] == [b"%d" % number]
            await batch.publish(upper(batch))
        await until(lambda: len(network.broker.messages(m.Publish)) == 6)
        await asyncio.sleep(0)
        assert acknowledged(network.broker) == before
        network.broker.silent = False
        network.cut()
        await until(lambda: len(network.links) > 1 and connection.connected)
        await work.close()
        await connection.pubends()

    assert outputs(network.broker) == [b"%d" % number for number in range(6)]
    assert acknowledged(network.broker) > before


async def test_without_outputs_the_position_moves_on(network: FakeNetwork) -> None:
    ticks = network.broker.log(*(b"%d" % number for number in range(10)), topic="raw.x")
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async with session.transform("raw.#", to="out", name="enrich", start="earliest", max_events=1) as work:
            async for batch in work:
                await batch.publish(())
                if batch[-1].tick == ticks[-1]:
                    break
        await connection.pubends()
        assert outputs(network.broker) == []
        assert network.broker.names["enrich"].tokens[0].ticks[PUBEND] == ticks[-1]
        assert acknowledged(network.broker) == ticks[-1]
        assert len(network.broker.messages(m.Publish)) < 10, "positions that wait for others go as one"


async def test_outputs_that_do_not_fit_are_an_error_before_anything_is_sent(network: FakeNetwork) -> None:
    """TS11: they must not be two appends."""
    network.broker.log(b"a", b"b", topic="raw.x")
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async with session.transform("raw.#", to="out", name="enrich", start="earliest") as work:
            batch = await anext(work)
            with pytest.raises(gapless.InvalidMessageError, match="max_events"):
                await batch.publish([gapless.Message(bytes(1 << 15))] * 40)
            assert network.broker.messages(m.Publish) == []
            await batch.publish(upper(batch))

    assert outputs(network.broker) == [b"A", b"B"]


async def test_a_batch_is_published_once_and_before_the_next(network: FakeNetwork) -> None:
    network.broker.log(b"a", b"b", topic="raw.x")
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async with session.transform("raw.#", to="out", name="enrich", start="earliest", max_events=1) as work:
            batch = await anext(work)
            with pytest.raises(gapless.SubscriptionError, match="was not published"):
                await anext(work)
            await batch.publish(upper(batch))
            with pytest.raises(gapless.SubscriptionError, match="once"):
                await batch.publish(upper(batch))
            assert [event.body for event in await anext(work)] == [b"b"]

    assert outputs(network.broker) == [b"A"]


async def test_a_rival_that_is_taken_over_is_fenced(network: FakeNetwork) -> None:
    network.broker.log(b"a", topic="raw.x")
    async with gapless.connect(ADDRESS) as connection, gapless.connect(ADDRESS) as other:
        old = await connection.session().transform("raw.#", to="out", name="enrich", start="earliest")
        batch = await anext(old)
        new = await other.session().transform("raw.#", to="out", name="enrich", start="earliest")
        again = await anext(new)

        await batch.publish(upper(batch))
        with pytest.raises(gapless.PublisherFencedError):
            await anext(old)
        with pytest.raises(gapless.PublisherFencedError):
            await old.close()
        await again.publish(upper(again))
        await new.close()

    assert outputs(network.broker) == [b"A"]


async def test_a_rival_that_waits_for_input_is_fenced(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, gapless.connect(ADDRESS) as other:
        old = await connection.session().transform("raw.#", to="out", name="enrich")
        waiting = asyncio.ensure_future(old.__anext__())
        await asyncio.sleep(0)
        await other.session().transform("raw.#", to="out", name="enrich")

        with pytest.raises(gapless.PublisherFencedError):
            await waiting


async def test_a_rival_is_fenced_although_its_last_batch_is_uncertain(network: FakeNetwork) -> None:
    network.broker.log(b"a", topic="raw.x")
    async with gapless.connect(ADDRESS) as connection, gapless.connect(ADDRESS) as other:
        old = await connection.session().transform("raw.#", to="out", name="enrich", start="earliest")
        batch = await anext(old)
        network.broker.silent = True
        await batch.publish(upper(batch))
        await until(lambda: network.broker.messages(m.Publish))
        network.broker.silent = False
        await other.session().transform("raw.#", to="out", name="enrich", start="earliest")

        network.cut()
        with pytest.raises(gapless.PublisherFencedError):
            await anext(old)
        with pytest.raises(gapless.PublisherFencedError):
            await old.close()


@pytest.mark.parametrize("away", [False, True])
async def test_an_input_that_somebody_else_took_is_taken_back(network: FakeNetwork, away: bool) -> None:
    """Perhaps by a rival that had opened the publisher before, and was paused before it attached the input."""
    network.broker.log(b"a", topic="raw.x")
    async with gapless.connect(ADDRESS) as connection, gapless.connect(ADDRESS) as other:
        work = await connection.session().transform("raw.#", to="out", name="enrich", start="earliest")
        batch = await anext(work)
        await batch.publish(upper(batch))
        await until(lambda: acknowledged(network.broker))
        network.unreachable = away
        if away:
            network.links[0].end("cut")
        thief = await other.session().subscribe("raw.#", name="enrich", in_use="takeover")
        network.unreachable = False
        await until(lambda: is_connected(connection))
        network.log(b"b", topic="raw.x")

        batch = await anext(work)
        await batch.publish(upper(batch))
        await work.close()
        with pytest.raises(gapless.SubscriptionTakenOverError):
            while True:
                await anext(thief)

    assert outputs(network.broker) == [b"A", b"B"]
    assert acknowledged(network.broker) == network.broker.streams[PUBEND].ticks[2]  # behind a, A, b


async def test_an_input_is_taken_back_once_for_each_batch(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, gapless.connect(ADDRESS) as other:
        work = await connection.session().transform("raw.#", to="out", name="enrich")
        waiting = asyncio.ensure_future(work.__anext__())
        await asyncio.sleep(0)
        thief = await other.session().subscribe("raw.#", name="enrich", in_use="takeover")
        await until(lambda: thief.is_over)
        assert not waiting.done()

        await other.session().subscribe("raw.#", name="enrich", in_use="takeover")

        with pytest.raises(gapless.SubscriptionTakenOverError):
            await waiting


async def test_an_input_that_is_taken_back_ends_as_it_would_have(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, gapless.connect(ADDRESS) as other:
        work = await connection.session().transform("raw.#", to="out", name="enrich")
        await other.session().subscribe("raw.#", name="enrich", in_use="takeover")
        work.drain()

        assert [batch async for batch in work] == []


async def test_what_is_refused_ends_it(network: FakeNetwork) -> None:
    """The position behind later outputs would cover the refused ones."""
    network.broker.log(b"a", b"bad", b"c", topic="raw.x")
    network.broker.rejects = b"BAD"
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        work = await session.transform("raw.#", to="out", name="enrich", start="earliest", max_events=1)
        with pytest.raises(gapless.PublishRejectedError, match="not allowed"):
            async for batch in work:
                await batch.publish(upper(batch))
        with pytest.raises(gapless.PublishRejectedError):
            await work.close()

    assert outputs(network.broker) == [b"A"]


async def test_a_block_that_ends_with_an_error_publishes_nothing_more(network: FakeNetwork) -> None:
    network.broker.log(b"a", topic="raw.x")
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        with pytest.raises(ZeroDivisionError):
            async with session.transform("raw.#", to="out", name="enrich", start="earliest") as work:
                async for batch in work:
                    await batch.publish(gapless.Message(b"%d" % (1 // (len(event.body) - 1))) for event in batch)
        async with session.transform("raw.#", to="out", name="enrich") as work:
            batch = await anext(work)
            await batch.publish(upper(batch))

    assert outputs(network.broker) == [b"A"]


async def test_a_gap_is_raised_once_or_handed_out(network: FakeNetwork) -> None:
    ticks = network.broker.log(b"a", b"b", b"c", topic="raw.x")
    network.broker.release(ticks[1])
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        first = gapless.CheckpointToken("net", {PUBEND: ticks[0]})
        async with session.transform("raw.#", to="out", name="one", start=first) as work:
            with pytest.raises(gapless.GapError):
                await anext(work)
            batch = await anext(work)
            await batch.publish(upper(batch))
        async with session.transform("raw.#", to="out", name="two", start=first, on_gap="deliver") as other:
            assert isinstance(await anext(other), gapless.Gap)
            item = await anext(other)
            assert isinstance(item, gapless.InputBatch)
            await item.publish(upper(item))

    assert outputs(network.broker) == [b"C", b"C"]


async def test_silence_is_stored_when_there_is_no_input(network: FakeNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a log would be kept for ever for a transform that has nothing to do."""
    monkeypatch.setattr(transform, "IDLE_SECONDS", 0.01)
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        work = await session.transform("raw.#", to="out", name="enrich")
        waiting = asyncio.ensure_future(work.__anext__())
        network.broker.log(b"other", topic="elsewhere")
        upto = network.silence()
        await until(lambda: network.broker.names["enrich"].tokens[-1:])
        await until(lambda: acknowledged(network.broker) == upto)
        waiting.cancel()

    assert network.broker.names["enrich"].tokens[-1].ticks == {PUBEND: upto}


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": None},
        {"name": "~x"},
        {"max_events": 0},
        {"max_wait": -1},
        {"on_gap": "x"},
        {"start": "x"},
    ],
)
async def test_wrong_arguments_are_refused_at_once(network: FakeNetwork, wrong: dict[str, object]) -> None:
    arguments = {"to": "out", "name": "enrich", **wrong}
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        with pytest.raises((gapless.GaplessError, ValueError)):
            session.transform("raw.#", **arguments)  # type: ignore[call-overload]
        assert network.broker.names == {}
