"""Applications against a real broker: what the public names promise, over TCP, on RocksDB and in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

import gapless
from gapless.core.stream.ticks import seconds_between
from gapless_spark.pipelines.report import broker_report
from integration.nodes_in_process import running_node


@pytest.fixture(params=["memory", "rocksdb"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """Where a fresh broker listens."""
    async with running_node(None if request.param == "memory" else tmp_path / "volume") as node:
        yield node.url


async def take(subscription: AsyncIterable[gapless.Event], count: int) -> list[gapless.Event]:
    """The next events."""
    events: list[gapless.Event] = []
    async for event in subscription:
        events.append(event)
        if len(events) == count:
            return events
    raise AssertionError("the subscription ended")


async def publish(session: gapless.Session, numbers: range, topic: str = "t") -> list[gapless.Receipt]:
    """Publishes a numbered event each."""
    publisher = session.publisher(topic)
    return [await publisher.send(b"%d" % n, properties={"n": n}) for n in numbers]


async def test_a_subscriber_gets_what_its_selector_selects_in_order(url: str) -> None:
    async with gapless.connect(url) as connection, connection.session() as session:
        async with session.subscribe("t", name="s", selector="n > 3 AND n <> 5") as subscription:
            receipts = await publish(session, range(9))
            events = await take(subscription, 4)

    assert [event.properties["n"] for event in events] == [4, 6, 7, 8]
    assert [event.tick for event in events] == [receipts[n].tick for n in (4, 6, 7, 8)]
    assert events[0].body == b"4"
    assert events[0].topic == "t"
    assert events[0].pubend == receipts[0].pubend


async def test_a_durable_subscriber_comes_back_with_its_token(url: str) -> None:
    """Away while events are published; then everything from its token on, and nothing twice."""
    async with gapless.connect(url) as connection, connection.session() as session:
        async with session.subscribe("t", name="s") as subscription:
            await publish(session, range(10))
            seen = await take(subscription, 4)
            token = subscription.token
        await publish(session, range(10, 20))
        async with session.subscribe("t", name="s", start=gapless.CheckpointToken.parse(str(token))) as subscription:
            seen += await take(subscription, 16)

    assert [event.properties["n"] for event in seen] == list(range(20))


async def test_without_a_token_it_goes_on_where_it_acknowledged(url: str) -> None:
    async with gapless.connect(url) as connection, connection.session() as session:
        async with session.subscribe("t", name="s") as subscription:
            await publish(session, range(6))
            await take(subscription, 3)
            await subscription.acknowledge(subscription.token)
            await take(subscription, 2)
        async with session.subscribe("t", name="s") as subscription:
            assert [event.properties["n"] for event in await take(subscription, 3)] == [3, 4, 5]


async def test_auto_acknowledges_what_was_asked_past(url: str) -> None:
    async with gapless.connect(url) as connection:
        async with connection.session(ack_mode=gapless.AckMode.AUTO) as session:
            async with session.subscribe("t", name="s") as subscription:
                await publish(session, range(6))
                await take(subscription, 3)
            async with session.subscribe("t", name="s") as subscription:
                assert (await take(subscription, 1))[0].properties["n"] == 3


async def test_leaving_by_an_exception_acknowledges_nothing(url: str) -> None:
    async with gapless.connect(url) as connection:
        async with connection.session(ack_mode=gapless.AckMode.AUTO) as session:
            with pytest.raises(RuntimeError, match="handler"):
                async with session.subscribe("t", name="s") as subscription:
                    await publish(session, range(3))
                    async for _ in subscription:
                        raise RuntimeError("handler")
            async with session.subscribe("t", name="s") as subscription:
                assert (await take(subscription, 1))[0].properties["n"] == 0


async def test_the_very_first_event_reaches_who_subscribed_before_its_topic_existed(url: str) -> None:
    """With a wildcard, before anything was ever published."""
    async with gapless.connect(url) as connection, connection.session() as session:
        async with (
            session.subscribe("flights.*.late", name="one") as one,
            session.subscribe("flights.#", name="all") as everything,
        ):
            await publish(session, range(1), "flights.jfk.late")
            await publish(session, range(1, 2), "flights")

            assert [event.topic for event in await take(one, 1)] == ["flights.jfk.late"]
            assert [event.topic for event in await take(everything, 2)] == ["flights.jfk.late", "flights"]


async def test_earliest_and_a_time_find_what_is_still_there(url: str) -> None:
    async with gapless.connect(url) as connection, connection.session() as session:
        await publish(session, range(5))
        await asyncio.sleep(0.05)
        between = datetime.now(timezone.utc)
        await asyncio.sleep(0.05)
        await publish(session, range(5, 8))
        async with session.subscribe("t", name="all", start="earliest") as subscription:
            assert [event.properties["n"] for event in await take(subscription, 8)] == list(range(8))
        async with session.subscribe("t", name="late", start=between) as subscription:
            assert [event.properties["n"] for event in await take(subscription, 3)] == [5, 6, 7]


async def test_a_token_places_a_new_subscription(url: str) -> None:
    """A token is a position, whatever the filter."""
    async with gapless.connect(url) as connection, connection.session() as session:
        async with session.subscribe("t", name="s") as subscription:
            await publish(session, range(6))
            await take(subscription, 2)
            token = subscription.token
        async with session.subscribe("t", name="other", selector="n > 3", start=token) as subscription:
            assert [event.properties["n"] for event in await take(subscription, 2)] == [4, 5]


async def test_silence_moves_the_token_although_nothing_matched(url: str) -> None:
    async with gapless.connect(url) as connection, connection.session() as session:
        async with session.subscribe("t", name="s", selector="n = 99", silence=True) as subscription:
            before = subscription.token
            receipts = await publish(session, range(3))
            async for message in subscription:
                assert isinstance(message, gapless.Silence)
                if message.end >= receipts[-1].tick:
                    break

            assert before <= subscription.token
            assert subscription.token.ticks[receipts[-1].pubend] >= receipts[-1].tick


async def test_batches_carry_their_token(url: str) -> None:
    async with gapless.connect(url) as connection, connection.session() as session:
        async with session.subscribe("t", name="s") as subscription:
            publisher = session.publisher("t")
            receipts = await publisher.send_batch([gapless.Message(b"x", {"n": n}) for n in range(100)])
            got: list[int] = []
            async for batch in subscription.batches(max_events=30):
                assert isinstance(batch, gapless.Batch)
                assert len(batch) <= 30
                got += [event.properties["n"] for event in batch]  # type: ignore[misc]
                assert batch.token.ticks[batch[-1].pubend] == batch[-1].tick
                if len(got) == 100:
                    break

    assert got == list(range(100))
    assert [receipt.tick for receipt in receipts] == sorted({receipt.tick for receipt in receipts})


async def test_send_all_gives_a_receipt_for_each_in_order(url: str) -> None:
    async with gapless.connect(url) as connection, connection.session() as session:
        publisher = session.publisher("t", name="loader")
        messages = (gapless.Message(b"x" * 100, {"n": n}) for n in range(5000))
        receipts = [receipt async for receipt in publisher.send_all(messages)]

        assert len(receipts) == 5000
        assert [receipt.tick for receipt in receipts] == sorted({receipt.tick for receipt in receipts})
        assert (await publisher.recover()).sequence == 5000


async def test_a_named_publisher_goes_on_counting(url: str) -> None:
    """`recover` tells a loader that crashed where to go on."""
    for expected in (0, 7, 14):
        async with gapless.connect(url) as connection, connection.session() as session:
            publisher = session.publisher("t", name="loader")
            assert (await publisher.recover()).sequence == expected
            for n in range(7):
                await publisher.send(b"%d" % n)


async def test_a_newer_rival_fences_a_publisher(url: str) -> None:
    async with gapless.connect(url) as first, first.session() as session, gapless.connect(url) as second:
        old = session.publisher("t", name="loader")
        await old.send(b"1")
        async with second.session() as other:
            new = other.publisher("t", name="loader")
            assert (await new.recover()).sequence == 1
            await new.send(b"2")
            with pytest.raises(gapless.PublisherFencedError):
                await old.send(b"3")
            assert (await new.recover()).sequence == 2


async def test_a_second_consumer_is_refused_or_takes_over(url: str) -> None:
    async with gapless.connect(url) as one, one.session() as session, gapless.connect(url) as two:
        async with two.session() as other, session.subscribe("t", name="s") as subscription:
            with pytest.raises(gapless.SubscriptionInUseError):
                await other.subscribe("t", name="s", in_use="error")
            async with other.subscribe("t", name="s", in_use="takeover") as taken:
                with pytest.raises(gapless.SubscriptionTakenOverError):
                    await take(subscription, 1)
                await publish(session, range(1))
                assert len(await take(taken, 1)) == 1


async def test_listings_say_who_is_there_and_how_far(url: str) -> None:
    async with gapless.connect(url, client_id="desk") as connection, connection.session() as session:
        async with session.subscribe("t", name="s", selector="n >= 0") as subscription:
            receipts = await publish(session, range(4))
            await take(subscription, 4)
        [info] = await connection.subscriptions()
        [pubend] = await connection.pubends()

        assert (info.client_id, info.name, info.selector, info.connected) == ("desk", "s", "n >= 0", False)
        assert info.lag_events == 4
        assert pubend.pubend == receipts[0].pubend
        await connection.unsubscribe("s")
        assert await connection.subscriptions() == []
        with pytest.raises(gapless.SubscriptionNotFoundError):
            await connection.unsubscribe("s")


async def test_a_lag_says_whether_all_that_is_due_was_counted(url: str) -> None:
    """What was there before a subscription is due to it, and is counted when somebody consumes it."""
    async with gapless.connect(url, client_id="desk") as connection, connection.session() as session:
        await publish(session, range(100))
        await connection.attach("past", "t", start="earliest")
        await connection.attach("present", "t")
        await publish(session, range(100, 110))

        past, present = sorted(await connection.subscriptions(), key=lambda info: info.name)
        assert present.lag_events == 10
        assert past.lag_events <= 110
        assert past.lag_complete == (past.lag_events == 110)

        async with session.subscribe("t", name="past") as subscription:
            taken = await take(subscription, 105)
            await subscription.acknowledge(subscription.token)
            assert [event.properties["n"] for event in taken] == list(range(105))
        for _ in range(100):  # the acknowledgement is on its way
            past = next(info for info in await connection.subscriptions() if info.name == "past")
            if past.lag_complete:
                break
            await asyncio.sleep(0.1)
        assert (past.lag_events, past.lag_complete) == (5, True)


async def test_who_is_stuck_at_its_first_event_is_not_listed_without_a_lag(url: str) -> None:
    """From the earliest: while it takes nothing more, when it has gone, and when it has all and acknowledges none."""
    async with gapless.connect(url) as connection, connection.session() as session:
        receipts = await publish(session, range(200))
        async with session.subscribe("t", name="stuck", start="earliest") as subscription:
            await take(subscription, 1)
            for _ in range(100):  # its reader is on its way
                [connected] = await connection.subscriptions()
                if connected.lag_complete:
                    break
                await asyncio.sleep(0.1)
        [gone] = await connection.subscriptions()
        async with session.subscribe("t", name="stuck") as subscription:
            await take(subscription, 200)
            [taken] = await connection.subscriptions()
            await publish(session, range(200, 205))
            await take(subscription, 5)
            [followed] = await connection.subscriptions()
        reported = await asyncio.to_thread(broker_report, url)

    assert [each.lag_events for each in (connected, gone, taken, followed)] == [200, 200, 200, 205]
    assert all(each.lag_complete for each in (connected, gone, taken, followed))
    assert (sum(each.lag_events or 0 for each in reported), all(each.complete for each in reported)) == (205, True)
    apart = seconds_between(receipts[0].tick, receipts[-1].tick)
    assert all(each.lag_seconds >= int(apart * 1000) / 1000 for each in (connected, gone, taken, followed))


async def test_unsubscribing_ends_the_iteration_with_the_reason(url: str) -> None:
    async with gapless.connect(url) as connection, connection.session() as session:
        async with session.subscribe("t", name="s") as subscription:
            await connection.unsubscribe("s")
            with pytest.raises(gapless.SubscriptionNotFoundError):
                await take(subscription, 1)


async def test_draining_ends_the_iteration_and_acknowledging_still_works(url: str) -> None:
    async with gapless.connect(url) as connection, connection.session() as session:
        async with session.subscribe("t", name="s") as subscription:
            await publish(session, range(3))
            seen = []
            async for event in subscription:
                seen.append(event)
                if len(seen) == 2:
                    subscription.drain()
            await subscription.acknowledge(subscription.token)
        async with session.subscribe("t", name="s") as subscription:
            rest = await take(subscription, 3 - len(seen)) if len(seen) < 3 else []

    assert [event.properties["n"] for event in [*seen, *rest]] == [0, 1, 2]


async def test_a_subscription_that_is_not_durable_leaves_nothing(url: str) -> None:
    async with gapless.connect(url) as connection, connection.session() as session:
        async with session.subscribe("t") as subscription:
            await publish(session, range(3))
            assert len(await take(subscription, 3)) == 3
        assert await connection.subscriptions() == []


async def test_a_slow_consumer_misses_nothing(url: str) -> None:
    """More is published than its credit covers: it is served from the log, in order, once."""
    async with gapless.connect(url) as connection, connection.session() as session:
        async with session.subscribe("t", name="slow") as subscription:
            publisher = session.publisher("t")
            count = 30_000
            async for _ in publisher.send_all(gapless.Message(b"x" * 200, {"n": n}) for n in range(count)):
                pass
            await asyncio.sleep(0.5)
            got: list[object] = []
            async for batch in subscription.batches():
                assert isinstance(batch, gapless.Batch)
                got += [event.properties["n"] for event in batch]
                if len(got) >= count:
                    break

    assert got == list(range(count))


@pytest.mark.parametrize(
    ("selector", "position"), [("n =", 3), ("n > 'a'", None), ("n > ", 4), ("(n = 1", 6), ("n ! 1", 2)]
)
async def test_a_malformed_selector_shows_where(url: str, selector: str, position: int | None) -> None:
    async with gapless.connect(url) as connection, connection.session() as session:
        with pytest.raises(gapless.InvalidSelectorError) as raised:
            await session.subscribe("t", name="s", selector=selector)
        assert await connection.subscriptions() == []

    assert position is None or raised.value.position == position


async def test_bad_messages_are_refused_before_anything_is_sent(url: str) -> None:
    async with gapless.connect(url) as connection, connection.session() as session:
        publisher = session.publisher("t", name="p")
        for body, properties in (
            ("text", None),
            (b"x" * (1 << 21), None),
            (b"", {"n": [1]}),
            (b"", {"n": float("nan")}),
            (b"", {"n": 1 << 63}),
            (b"", {1: 2}),
        ):
            with pytest.raises(gapless.InvalidMessageError):
                await publisher.send(body, properties=properties)  # type: ignore[arg-type]
        for topic in ("a.*", "a..b", "", "x" * 256, "#"):
            with pytest.raises(gapless.InvalidTopicError):
                await session.publisher(topic).send(b"")
        assert (await publisher.recover()).sequence == 0


async def test_bad_tokens_are_refused_and_nothing_changes(url: str) -> None:
    async with gapless.connect(url) as connection, connection.session() as session:
        async with session.subscribe("t", name="s") as subscription:
            await publish(session, range(3))
            await take(subscription, 1)
            token = subscription.token
        text = str(token)
        for garbled in ("", "garbage", text[:-3], text[:-1] + ("A" if text[-1] != "A" else "B"), "x" * 5000):
            with pytest.raises(gapless.InvalidTokenError):
                gapless.CheckpointToken.parse(garbled)
        async with session.subscribe("t", name="other") as other:
            foreign = other.token
        with pytest.raises(gapless.TokenMismatchError):
            await session.subscribe("t", name="s", start=foreign)
        async with session.subscribe("t", name="s", start=token) as subscription:
            assert (await take(subscription, 1))[0].properties["n"] == 1


async def test_a_token_of_another_network_is_refused(url: str) -> None:
    async with running_node() as elsewhere, gapless.connect(elsewhere.url) as other, other.session() as session:
        async with session.subscribe("t", name="s") as subscription:
            await publish(session, range(1))
            await take(subscription, 1)
            token = subscription.token
    async with gapless.connect(url) as connection, connection.session() as session:
        with pytest.raises(gapless.TokenMismatchError):
            await session.subscribe("t", name="s", start=token)
        assert await connection.subscriptions() == []


async def test_several_addresses_are_tried(url: str) -> None:
    address = url.partition("://")[2]
    async with gapless.connect(f"gapless://127.0.0.1:1,{address}") as connection, connection.session() as session:
        assert (await publish(session, range(1)))[0].tick > 0


async def test_an_expired_event_is_silence(url: str) -> None:
    async with gapless.connect(url) as connection, connection.session() as session:
        async with session.subscribe("t", name="s") as subscription:
            publisher = session.publisher("t")
            with pytest.warns(UserWarning, match="expired before it was sent"):
                await publisher.send(b"old", expiration=datetime.now(timezone.utc) - timedelta(seconds=1))
            await publisher.send(b"new")
            assert [event.body for event in await take(subscription, 1)] == [b"new"]
