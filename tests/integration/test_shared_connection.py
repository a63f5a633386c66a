"""Many subscriptions of one connection: what waits for all of them is bounded, and nobody is cut off for it."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

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
