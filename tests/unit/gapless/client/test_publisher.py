"""`Session.publisher`: design.md 4."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timezone
from enum import IntEnum
from typing import Any

import pytest

import gapless
from gapless.core import messages as m
from gapless.core.ticks import STEP
from unit.gapless.client.conftest import ADDRESS
from unit.gapless.client.fake_broker import BASE, PUBEND
from unit.gapless.client.fake_network import FakeNetwork


def logged(network: FakeNetwork) -> list[bytes]:
    stream = network.broker.streams[PUBEND]
    return [event[len(event) - n :] for event, n in zip(stream.events, stream.body_lengths, strict=True)]


async def test_a_receipt_says_where_the_event_is_logged(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        receipt = await session.publisher("t").send(b"x", properties={"a": 1})

    assert receipt == gapless.Receipt(PUBEND, BASE + STEP, True)
    match receipt:
        case gapless.Receipt(pubend, tick, durable):
            assert (pubend, tick, durable) == (PUBEND, BASE + STEP, True)
    assert network.broker.streams[PUBEND].headers[0].properties == {"a": 1}


async def test_in_memory_a_receipt_is_not_durable(network: FakeNetwork) -> None:
    network.broker.durable = False
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        assert (await session.publisher("t").send(b"x")).durable is False


async def test_a_topic_of_the_message_goes_before_the_publishers(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        publisher = session.publisher("t")
        await publisher.send(b"x", topic="other.topic")
        await session.publisher().send(b"x", topic="third")
        with pytest.raises(gapless.InvalidTopicError, match="no topic of its own"):
            await session.publisher().send(b"x")

    assert [header.topic for header in network.broker.streams[PUBEND].headers] == ["other.topic", "third"]


async def test_headers_arrive_as_they_were_sent(network: FakeNetwork) -> None:
    at = datetime(2030, 1, 2, 3, 4, 5, 678000, tzinfo=timezone.utc)
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async with session.subscribe("t") as subscription:
            await session.publisher("t").send(
                b"x", priority=7, expiration=at, correlation_id="c", reply_to="r", type="y"
            )
            event = await anext(subscription)

    assert (event.priority, event.expiration, event.correlation_id) == (7, at, "c")
    assert (event.reply_to, event.type, event.body) == ("r", "y", b"x")


async def test_sends_of_one_turn_of_the_loop_share_a_batch(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        publisher = session.publisher("t")
        receipts = await asyncio.gather(*(publisher.send(b"%d" % i) for i in range(100)))

    assert [receipt.tick for receipt in receipts] == [BASE + STEP * (i + 1) for i in range(100)]
    assert [batch.events.count for batch in network.broker.messages(m.Publish)] == [100]
    assert logged(network) == [b"%d" % i for i in range(100)]


async def test_a_batch_that_forms_by_itself_has_one_topic(network: FakeNetwork) -> None:
    """A refusal of one topic must not take events of another with it."""
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        publisher = session.publisher("t")
        topics = ["a", "a", "b", "a"]
        await asyncio.gather(*(publisher.send(b"x", topic=topic) for topic in topics))

    assert [batch.events.count for batch in network.broker.messages(m.Publish)] == [2, 1, 1]


async def test_send_batch_is_one_append(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        publisher = session.publisher("t")
        first = asyncio.create_task(publisher.send(b"0"))
        await asyncio.sleep(0)
        receipts = await publisher.send_batch([gapless.Message(b"1", {"a": 1}), gapless.Message(b"2")])
        assert await publisher.send_batch([]) == []
        await first

    assert [receipt.tick for receipt in receipts] == [BASE + 2 * STEP, BASE + 3 * STEP]
    assert [batch.events.count for batch in network.broker.messages(m.Publish)] == [1, 2]
    assert logged(network) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("kind", ["list", "iterator", "async"])
async def test_send_all_yields_receipts_in_order(network: FakeNetwork, kind: str) -> None:
    messages = [gapless.Message(b"%d" % i) for i in range(5000)]

    async def slowly() -> AsyncIterator[gapless.Message]:
        for i, message in enumerate(messages):
            if i % 700 == 0:
                await asyncio.sleep(0.001)
            yield message

    source: Any = {"list": messages, "iterator": iter(messages), "async": slowly()}[kind]
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        ticks = [receipt.tick async for receipt in session.publisher("t").send_all(source)]

    assert ticks == network.broker.streams[PUBEND].ticks
    assert logged(network) == [message.body for message in messages]
    assert max(batch.events.count for batch in network.broker.messages(m.Publish)) == 512


async def test_send_all_sends_the_first_event_at_once(network: FakeNetwork) -> None:
    """Receipts come while the source has nothing more to give."""
    more = asyncio.Event()

    async def source() -> AsyncIterator[gapless.Message]:
        yield gapless.Message(b"first")
        await more.wait()
        yield gapless.Message(b"second")

    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        receipts = session.publisher("t").send_all(source())
        assert (await anext(receipts)).tick == BASE + STEP
        more.set()
        assert (await anext(receipts)).tick == BASE + 2 * STEP
        with pytest.raises(StopAsyncIteration):
            await anext(receipts)


async def test_send_all_reads_no_more_than_there_is_room_for(network: FakeNetwork) -> None:
    read = 0

    def source() -> Iterator[gapless.Message]:
        nonlocal read
        while True:
            read += 1
            yield gapless.Message(b"x" * 100)

    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        receipts = session.publisher("t").send_all(source())
        await anext(receipts)
        network.broker.full_disk = True
        taking = asyncio.create_task(_count(receipts))
        await asyncio.sleep(0.05)
        limit = network.broker.window_batches * 512
        assert 0 < read <= 2 * limit
        before = read
        await asyncio.sleep(0.05)
        assert read == before
        taking.cancel()
        network.broker.full_disk = False


async def _count(receipts: AsyncIterator[gapless.Receipt]) -> int:
    return sum([1 async for _ in receipts])


@pytest.mark.parametrize("awaited", [False, True])
async def test_send_all_raises_in_the_place_of_the_first_missing_receipt(
    network: FakeNetwork, awaited: bool
) -> None:
    messages = [gapless.Message(b"a"), gapless.Message(b"b"), gapless.Message("no bytes"), gapless.Message(b"c")]

    async def source() -> AsyncIterator[gapless.Message]:
        for message in messages:
            yield message

    seen = []
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        with pytest.raises(gapless.InvalidMessageError):
            async for receipt in session.publisher("t").send_all(source() if awaited else messages):
                seen.append(receipt)

    assert len(seen) == 2
    assert logged(network) == [b"a", b"b"]


async def test_send_all_left_early_is_published_all_the_same(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        publisher = session.publisher("t")
        messages = (gapless.Message(b"%d" % i) for i in range(1000))
        async for _ in publisher.send_all(messages):
            break
        await publisher.flush()

        assert len(logged(network)) >= 512
        assert logged(network) == [b"%d" % i for i in range(len(logged(network)))]


async def test_the_source_of_send_all_is_closed_with_it(network: FakeNetwork) -> None:
    closed = asyncio.Event()

    async def source() -> AsyncIterator[gapless.Message]:
        try:
            while True:
                yield gapless.Message(b"x")
                await asyncio.sleep(0)
        finally:
            closed.set()

    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        receipts = session.publisher("t").send_all(source())
        await anext(receipts)
        await receipts.aclose()

    assert closed.is_set()


async def test_an_error_of_the_source_is_raised_behind_what_it_gave(network: FakeNetwork) -> None:
    def source() -> Iterator[gapless.Message]:
        yield gapless.Message(b"a")
        raise KeyError("mine")

    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        receipts = session.publisher("t").send_all(source())
        await anext(receipts)
        with pytest.raises(KeyError, match="mine"):
            await anext(receipts)


async def test_a_cancelled_send_goes_on_and_flush_waits_for_it(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        publisher = session.publisher("t")
        await publisher.send(b"a")
        network.stalled = True
        sending = asyncio.create_task(publisher.send(b"b"))
        await asyncio.sleep(0.01)
        sending.cancel()
        flushing = asyncio.create_task(publisher.flush())
        await asyncio.sleep(0.01)
        assert not flushing.done()
        network.flow()
        await flushing

        assert logged(network) == [b"a", b"b"]


async def test_a_send_cancelled_before_its_turn_is_sent_too(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        publisher = session.publisher("t")
        sending = asyncio.create_task(publisher.send(b"a"))
        await asyncio.sleep(0)
        sending.cancel()
        await publisher.flush()

        assert logged(network) == [b"a"]


async def test_flush_raises_what_nobody_else_hears(network: FakeNetwork) -> None:
    network.broker.rejects = b"bad"
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        publisher = session.publisher("t")
        network.stalled = True
        sending = asyncio.create_task(publisher.send(b"bad"))
        await asyncio.sleep(0.01)
        sending.cancel()
        network.flow()
        with pytest.raises(gapless.PublishRejectedError):
            await publisher.flush()
        await publisher.flush()

        with pytest.raises(gapless.PublishRejectedError):
            await publisher.send(b"bad")
        await publisher.flush()


async def test_publishing_outlives_a_reconnect(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        publisher = session.publisher("t", name="p")
        await publisher.send(b"a")
        network.stalled = True
        sending = asyncio.create_task(publisher.send(b"b"))
        await asyncio.sleep(0.01)
        network.cut()
        network.kept.clear()
        network.stalled = False
        assert not connection.connected

        assert (await sending).tick == BASE + 2 * STEP
        assert connection.connected
        assert logged(network) == [b"a", b"b"]


async def test_recover_tells_how_much_a_name_ever_logged(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        first = session.publisher("t", name="p")
        assert (await first.recover()).sequence == 0
        await first.send_batch([gapless.Message(b"a"), gapless.Message(b"b")])
        assert (await first.recover()).sequence == 2
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        assert (await session.publisher("t", name="p").recover()).sequence == 2
        assert (await session.publisher("t").recover()).sequence == 0


async def test_a_newer_twin_ends_the_older(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        older = session.publisher("t", name="p")
        await older.send(b"a")
        newer = session.publisher("t", name="p")
        await newer.send(b"b")

        with pytest.raises(gapless.PublisherFencedError):
            await older.send(b"c")
        with pytest.raises(gapless.PublisherFencedError):
            await older.send(b"d")
        with pytest.raises(gapless.PublisherFencedError):
            await older.recover()
        with pytest.raises(gapless.PublisherFencedError):
            async for _ in older.send_all([gapless.Message(b"e")]):
                pass


async def test_closed_before_the_answer_is_uncertain(network: FakeNetwork) -> None:
    connection = await gapless.connect(ADDRESS)
    publisher = connection.session().publisher("t", name="p")
    await publisher.recover()
    network.stalled = True
    sending = asyncio.create_task(publisher.send(b"a"))
    await asyncio.sleep(0.01)
    network.cut()
    network.unreachable = True
    await connection.close()

    with pytest.raises(gapless.PublishUncertainError):
        await sending
    with pytest.raises(gapless.ConnectionClosedError):
        await publisher.send(b"b")


async def test_what_nobody_waits_for_is_raised_by_close(network: FakeNetwork) -> None:
    connection = await gapless.connect(ADDRESS)
    publisher = connection.session().publisher("t", name="p")
    await publisher.recover()
    network.stalled = True
    sending = asyncio.create_task(publisher.send(b"a"))
    await asyncio.sleep(0.01)
    sending.cancel()
    network.cut()
    network.unreachable = True

    with pytest.raises(gapless.PublishUncertainError):
        await connection.close()
    await connection.close()


async def test_leaving_well_waits_for_receipts(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        publisher = session.publisher("t")
        sending = asyncio.create_task(publisher.send(b"a"))
        await asyncio.sleep(0)

    assert (await sending).tick == BASE + STEP


async def test_leaving_does_not_wait_for_a_disk_that_is_full(network: FakeNetwork) -> None:
    network.broker.full_disk = True
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        sending = asyncio.create_task(session.publisher("t").send(b"a"))
        await asyncio.sleep(0.01)

    with pytest.raises(gapless.PublishUncertainError):
        await sending


async def test_a_full_disk_is_said_once(network: FakeNetwork, caplog: pytest.LogCaptureFixture) -> None:
    network.broker.full_disk = True
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        sending = asyncio.create_task(session.publisher("t", name="p").send(b"a"))
        await asyncio.sleep(0.5)
        network.broker.full_disk = False
        await sending

    said = [record for record in caplog.records if "the disk is full" in record.getMessage()]
    assert [record.name for record in said] == ["gapless.client"]


class Colour(IntEnum):
    RED = 3


class Text(str):
    __slots__ = ()


async def test_properties_are_bool_int_float_and_str(network: FakeNetwork) -> None:
    given = {
        "bool": True,
        "least": -(2**63),
        "most": 2**63 - 1,
        "float": 1.5,
        "text": "é",
        "absent": None,
        "enum": Colour.RED,
        "subclass": Text("x"),
        "any name, with spaces": 1,
    }
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        await session.publisher("t").send(b"", properties=given)

    (header,) = network.broker.streams[PUBEND].headers
    expected = {**given, "enum": 3, "subclass": "x"}
    del expected["absent"]
    assert header.properties == expected
    assert {name: type(value) for name, value in header.properties.items()}["bool"] is bool


@pytest.mark.parametrize(
    "properties",
    [
        {"a": 2**63},
        {"a": -(2**63) - 1},
        {"a": float("nan")},
        {"a": float("inf")},
        {"a": b"bytes"},
        {"a": [1]},
        {"a": "\ud800"},
        {1: "a"},
        {"": "a"},
        ["a"],
    ],
    ids=str,
)
async def test_a_wrong_property_is_refused_before_anything_is_sent(network: FakeNetwork, properties: Any) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        publisher = session.publisher("t")
        with pytest.raises(gapless.InvalidMessageError):
            await publisher.send(b"x", properties=properties)
        with pytest.raises(gapless.InvalidMessageError):
            await publisher.send_batch([gapless.Message(b"fine"), gapless.Message(b"x", properties)])

    assert network.broker.messages(m.Publish) == []


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"body": "text"}, "encode it first"),
        ({"body": 5}, "bytes-like, not int"),
        ({"body": None}, "bytes-like, not NoneType"),
        ({"body": b"", "priority": 10}, "0 to 9"),
        ({"body": b"", "priority": "high"}, "0 to 9"),
        ({"body": b"", "expiration": datetime(2030, 1, 1)}, "time zone"),  # noqa: DTZ001
        ({"body": b"", "expiration": 5}, "time zone"),
        ({"body": b"", "correlation_id": 5}, "correlation_id is a str"),
        ({"body": b"", "type": b"x"}, "type is a str"),
    ],
)
async def test_a_wrong_message_is_refused(network: FakeNetwork, arguments: Any, error: str) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        with pytest.raises(gapless.InvalidMessageError, match=error):
            await session.publisher("t").send(**arguments)


@pytest.mark.parametrize("topic", ["", "a..b", "a.*", "#", "x" * 256, 5])
async def test_a_wrong_topic_is_refused(network: FakeNetwork, topic: Any) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        with pytest.raises(gapless.InvalidTopicError):
            session.publisher(topic)
        with pytest.raises(gapless.InvalidTopicError):
            await session.publisher("t").send(b"", topic=topic)
        if topic != 5:
            with pytest.raises(gapless.InvalidTopicError):
                await session.publisher("t").send(b"", reply_to=topic or ".")


@pytest.mark.parametrize("body", [bytearray(b"xy"), memoryview(b"xy"), b"xy"])
async def test_a_body_is_anything_like_bytes(network: FakeNetwork, body: Any) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        await session.publisher("t").send(body)

    assert logged(network) == [b"xy"]


async def test_an_oversized_event_is_refused_and_nothing_is_lost(network: FakeNetwork) -> None:
    network.broker.event_bytes = 1000
    network.broker.frame_bytes = 3000
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        publisher = session.publisher("t")
        await publisher.send(b"x" * 900)
        with pytest.raises(gapless.InvalidMessageError, match="at most 1000"):
            await publisher.send(b"x" * 1000)
        with pytest.raises(gapless.InvalidMessageError, match="send_all"):
            await publisher.send_batch([gapless.Message(b"x" * 900)] * 4)
        await publisher.send(b"y")

    assert len(logged(network)) == 2


@pytest.mark.parametrize("name", ["", "x" * 256, "a\nb", 5])
async def test_a_wrong_name_is_refused(network: FakeNetwork, name: Any) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        with pytest.raises(gapless.ConfigurationError):
            session.publisher("t", name=name)


async def test_a_publisher_may_be_closed_by_itself(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async with session.publisher("t") as publisher:
            sending = asyncio.create_task(publisher.send(b"a"))
            await asyncio.sleep(0)
        await sending
        with pytest.raises(gapless.ConnectionClosedError, match="is closed"):
            await publisher.send(b"b")
        with pytest.raises(ZeroDivisionError):
            async with session.publisher("t"):
                raise ZeroDivisionError
