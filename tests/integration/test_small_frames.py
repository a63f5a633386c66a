"""Frames smaller than a consumer's credit, and than an event in the log: nothing blocks, and nothing is skipped."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import gapless
from gapless.core.stream.ticks import Tick
from gapless.node.config import make_config
from gapless.node.node import Node


@contextlib.asynccontextmanager
async def broker(directory: Path, frame: int, event: int) -> AsyncIterator[tuple[gapless.Connection, gapless.Session]]:
    """A broker with such limits, and a session of it."""
    config = make_config(
        {
            "storage": {"path": str(directory / "volume")},
            "listen": [{"address": "127.0.0.1:0"}],
            "limits": {"max_frame_bytes": frame, "max_event_bytes": event},
        }
    )
    node = await Node.start(config)
    try:
        async with gapless.connect(node.url) as connection, connection.session() as session:
            yield connection, session
    finally:
        await node.stop()


async def in_range(
    connection: gapless.Connection, name: str, pubend: str, end: Tick
) -> list[gapless.Event | gapless.Gap]:
    """What a subscription is given when it reads everything from the beginning."""
    async with connection.read_range(name, pubend, 0, end, on_gap="deliver") as reader:
        return [item async for item in reader]


async def test_many_events_for_who_has_credit_for_more_than_a_frame(tmp_path: Path) -> None:
    bodies = [b"%02d" % number * 20_000 for number in range(60)]
    async with broker(tmp_path, 300_000, 100_000) as (connection, session):
        async with session.subscribe("t", name="away"):
            pass
        publisher = session.publisher("t")
        async with session.subscribe("t", name="there") as there:
            async for receipt in publisher.send_all(map(gapless.Message, bodies)):
                pubend, end = receipt.pubend, receipt.tick
            of_there = [await anext(there) for _ in bodies]
        async with session.subscribe("t", name="away") as away:
            of_away = [await anext(away) for _ in bodies]
        async with session.subscribe("t", name="late", start="earliest") as late:
            of_late = [await anext(late) for _ in bodies]
        read = await in_range(connection, "away", pubend, end)

    for events in (of_there, of_away, of_late, read):
        assert [event.body for event in events if isinstance(event, gapless.Event)] == bodies


async def test_many_events_are_published_in_batches_that_fit(tmp_path: Path) -> None:
    bodies = [b"%02d" % number * 1500 for number in range(40)]
    async with broker(tmp_path, 8192, 4096) as (_, session):
        publisher = session.publisher("t")
        async for _ in publisher.send_all(map(gapless.Message, bodies)):
            pass
        await asyncio.gather(*map(publisher.send, bodies))
        async with session.subscribe("t", name="all", start="earliest") as everything:
            events = [await anext(everything) for _ in range(80)]

    assert [event.body for event in events] == bodies * 2


async def test_an_event_that_is_too_large_since_the_limit_was_lowered_is_a_gap(tmp_path: Path) -> None:
    bodies = [b"a", b"x" * 500_000, b"b"]
    async with broker(tmp_path, 1 << 22, 1 << 20) as (_, session):
        async with session.subscribe("t", name="away"), session.subscribe("t", name="none", selector="n = 1"):
            pass
        publisher = session.publisher("t", name="p")
        receipts = [await publisher.send(body) for body in bodies]
    pubend = receipts[0].pubend
    _, large, last = (receipt.tick for receipt in receipts)
    async with broker(tmp_path, 100_000, 50_000) as (connection, session):
        async with session.subscribe("t", name="away", on_gap="deliver") as away:
            items = [await anext(away) for _ in range(3)]
        async with session.subscribe("t", name="none", selector="n = 1", silence=True) as none:
            while none.token.ticks[pubend] < last:
                assert isinstance(await anext(none), gapless.Silence)
        read = await in_range(connection, "away", pubend, last)

    for found in (items, read):
        first, gap, second = found
        assert isinstance(first, gapless.Event)
        assert isinstance(second, gapless.Event)
        assert (first.body, second.body) == (b"a", b"b")
        assert isinstance(gap, gapless.Gap)
        assert (gap.start, gap.reason) == (large - 1, "too large to deliver")
        assert large <= gap.end < last
