"""`Session.publisher`, as an application calls it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import gapless
from gapless.client.pipeline import PORTION_FIRST
from gapless.client.receipts import Recovery
from gapless.core.stream.ticks import STEP
from gapless.core.wire import messages as m
from unit.gapless.client.conftest import ADDRESS, is_connected
from unit.gapless.client.fake_broker import BASE, PUBEND, logged
from unit.gapless.client.fake_network import FakeNetwork


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


async def test_sends_of_one_turn_of_the_loop_share_a_batch(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        publisher = session.publisher("t")
        receipts = await asyncio.gather(*(publisher.send(b"%d" % i) for i in range(100)))

    assert [receipt.tick for receipt in receipts] == [BASE + STEP * (i + 1) for i in range(100)]
    assert [batch.events.count for batch in network.broker.messages(m.Publish)] == [100]
    assert logged(network.broker) == [b"%d" % i for i in range(100)]


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
    assert logged(network.broker) == [b"0", b"1", b"2"]


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

        assert logged(network.broker) == [b"a", b"b"]


async def test_a_send_cancelled_before_its_turn_is_sent_too(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        publisher = session.publisher("t")
        sending = asyncio.create_task(publisher.send(b"a"))
        await asyncio.sleep(0)
        sending.cancel()
        await publisher.flush()

        assert logged(network.broker) == [b"a"]


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


async def test_an_error_that_came_in_the_turn_of_the_cancellation_is_raised_by_flush(network: FakeNetwork) -> None:
    network.broker.rejects = b"bad"
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        publisher = session.publisher("t")
        await publisher.recover()
        for send in (publisher.send(b"bad"), publisher.send_batch([gapless.Message(b"bad")])):
            network.stalled = True
            sending = asyncio.ensure_future(send)
            await asyncio.sleep(0.01)
            network.flow()  # the error is there, and its caller has not been woken yet
            assert not sending.done()
            sending.cancel()
            await asyncio.wait([sending])
            assert sending.cancelled()

            with pytest.raises(gapless.PublishRejectedError):
                await publisher.flush()
        await publisher.flush()


async def test_what_a_run_that_ended_early_was_not_told_is_raised_by_flush(network: FakeNetwork) -> None:
    network.broker.rejects = b"bad"
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        publisher = session.publisher("t")
        bodies = [b"good"] * PORTION_FIRST + [b"bad"] * 1000
        run = publisher.send_all(gapless.Message(body) for body in bodies)
        await anext(run)
        await asyncio.sleep(0.05)
        await run.aclose()

        with pytest.raises(gapless.PublishRejectedError):
            await publisher.flush()
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
        assert not is_connected(connection)

        assert (await sending).tick == BASE + 2 * STEP
        assert is_connected(connection)
        assert logged(network.broker) == [b"a", b"b"]


async def test_recover_tells_how_much_a_name_ever_logged(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        first = session.publisher("t", name="p")
        assert (await first.recover()).sequence == 0
        await first.send_batch([gapless.Message(b"a"), gapless.Message(b"b")])
        assert (await first.recover()).sequence == 2
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        assert (await session.publisher("t", name="p").recover()).sequence == 2
        assert (await session.publisher("t").recover()).sequence == 0


async def test_a_newer_rival_ends_the_older(network: FakeNetwork) -> None:
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


async def test_a_full_disk_is_said_once(network: FakeNetwork, caplog: pytest.LogCaptureFixture) -> None:
    network.broker.full_disk = True
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        sending = asyncio.create_task(session.publisher("t", name="p").send(b"a"))
        await asyncio.sleep(0.5)
        network.broker.full_disk = False
        await sending

    said = [record for record in caplog.records if "the disk is full" in record.getMessage()]
    assert [record.name for record in said] == ["gapless.client"]


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

    assert len(logged(network.broker)) == 2


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


# ------------------------------------------------------------------------------------- tokens with batches


def position(tick: int, sid: int = 1) -> gapless.CheckpointToken:
    return gapless.CheckpointToken("net", {"in@1": tick}, sid, 1)


async def test_a_token_is_stored_with_its_batch_and_recovered(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        publisher = session.publisher("t", name="enrich")
        assert (await publisher.recover()).token is None
        assert len(await publisher.send_batch([gapless.Message(b"a")], token=position(1))) == 1
        assert await publisher.send_batch((), token=position(2)) == []
        assert (await publisher.recover()).token == position(2)
        with pytest.raises(gapless.StaleTokenError):
            await publisher.send_batch([gapless.Message(b"b")], token=position(1))
        assert (await session.publisher("t", name="enrich").recover()) == Recovery(1, (position(2),))
    assert logged(network.broker) == [b"a"]


async def test_tokens_of_several_subscriptions(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        publisher = session.publisher("t", name="enrich")
        await publisher.send_batch([gapless.Message(b"a")], token=[position(1), position(5, sid=2), position(3)])
        recovery = await publisher.recover()

    assert recovery.tokens == (position(5, sid=2), position(3))
    with pytest.raises(gapless.ConfigurationError, match="tokens"):
        _ = recovery.token


@pytest.mark.parametrize("token", ["gl1.x", ["gl1.x"], {"p@1": 5}])
async def test_what_is_no_token_is_refused_at_once(network: FakeNetwork, token: Any) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        with pytest.raises(gapless.InvalidTokenError):
            await session.publisher("t").send_batch([gapless.Message(b"a")], token=token)
    assert logged(network.broker) == []
