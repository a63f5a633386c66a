"""Many subscriptions of one connection: what waits for all of them is bounded, and nobody is cut off for it."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest
from typing_extensions import Never

import gapless

SUBSCRIPTIONS = 20
EVENTS = 160
BODY = b"x" * 50_000
"""All events are twice what a subscription grants, and what all grant is more than a client may let wait."""


async def test_a_client_that_stands_still_while_many_subscriptions_catch_up(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Found by a benchmark: it was disconnected, and connected anew, again and again."""
    caplog.set_level(logging.WARNING, "gapless.client")
    async with gapless.connect(url) as connection, connection.session() as session:
        publisher = session.publisher("t")
        async for _ in publisher.send_all(gapless.Message(BODY, {"n": number}) for number in range(EVENTS)):
            pass

        async def consume(name: str) -> list[object]:
            async with session.subscribe("t", name=name, start="earliest") as subscription:
                return [(await anext(subscription)).properties["n"] for _ in range(EVENTS)]

        consumers = [asyncio.create_task(consume(f"s{number}")) for number in range(SUBSCRIPTIONS)]
        await asyncio.sleep(0.01)  # they have asked
        time.sleep(3)  # noqa: ASYNC251 - the application computes, and nothing is read
        consumed = await asyncio.wait_for(asyncio.gather(*consumers), 50)

    assert consumed == [list(range(EVENTS))] * SUBSCRIPTIONS
    assert caplog.messages == []


async def test_large_events_for_many_subscriptions_at_once(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """One event for all of them is more than a client may let wait: nobody was ever sent any."""
    caplog.set_level(logging.WARNING, "gapless.client")
    bodies = [bytes([number]) * 1_000_000 for number in range(4)]
    async with gapless.connect(url) as connection, connection.session() as session:
        subscriptions = [await session.subscribe("t", name=f"s{number}") for number in range(60)]

        async def consume(subscription: gapless.Subscription[gapless.Event, Never]) -> list[bytes]:
            return [(await anext(subscription)).body for _ in bodies]

        consumers = [asyncio.create_task(consume(subscription)) for subscription in subscriptions]
        for body in bodies:
            await session.publisher("t").send(body)
        consumed = await asyncio.wait_for(asyncio.gather(*consumers), 50)

    assert consumed == [bodies] * len(subscriptions)
    assert caplog.messages == []


async def test_many_publishers_that_publish_in_bulk(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Each is within its window, and all of them together are more than a transport lets wait: nobody got through."""
    caplog.set_level(logging.WARNING, "gapless.client")
    async with gapless.connect(url) as connection, connection.session() as session:

        async def publish(number: int) -> list[int]:
            publisher = session.publisher(f"t{number}")
            receipts = [r async for r in publisher.send_all(gapless.Message(BODY, {"n": n}) for n in range(EVENTS))]
            return [receipt.tick for receipt in receipts]

        ticks = await asyncio.wait_for(asyncio.gather(*map(publish, range(SUBSCRIPTIONS))), 50)

    assert len({tick for each in ticks for tick in each}) == EVENTS * SUBSCRIPTIONS
    assert caplog.messages == []


async def test_many_producers_that_publish_with_keys(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "gapless.client")
    messages = [gapless.Message(BODY) for _ in range(40)]
    async with gapless.connect(url) as connection:
        publications = [
            connection.publish(producer=f"p{number}", epoch=1, index=0, messages=messages, topic=f"t{number}")
            for number in range(80)
        ]
        receipts = await asyncio.wait_for(asyncio.gather(*publications), 50)

    assert [receipt.published for receipt in receipts] == [40] * 80
    assert caplog.messages == []


async def test_a_client_that_stands_still_while_it_reads_many_ranges(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "gapless.client")
    async with gapless.connect(url) as connection, connection.session() as session:
        async with session.subscribe("t", name="s"):
            pass
        async for receipt in session.publisher("t").send_all(gapless.Message(BODY, {"n": n}) for n in range(EVENTS)):
            pubend, end = receipt.pubend, receipt.tick

        async def read() -> list[object]:
            async with connection.read_range("s", pubend, 0, end) as reader:
                return [event.properties["n"] async for event in reader]

        readers = [asyncio.create_task(read()) for _ in range(SUBSCRIPTIONS)]
        await asyncio.sleep(0.01)  # they have asked
        time.sleep(3)  # noqa: ASYNC251 - the application computes, and nothing is read
        ranges = await asyncio.wait_for(asyncio.gather(*readers), 50)

    assert ranges == [list(range(EVENTS))] * SUBSCRIPTIONS
    assert caplog.messages == []
