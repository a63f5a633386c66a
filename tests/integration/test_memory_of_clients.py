"""Clients that do not read cost a broker a bounded memory together, and others nothing (protocol: credit)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import gapless
from gapless.core.wire.messages import InUse, StartAt, Subscribe
from integration.nodes_in_process import running_node
from integration.raw_client import RawClient

pytestmark = pytest.mark.timeout(120)

BUDGET = 8 << 20
SESSIONS = 30
EVENT = 400_000


async def test_sessions_that_catch_up_and_do_not_read_share_one_budget(tmp_path: Path) -> None:
    async with (
        running_node(tmp_path / "volume", shb={"memory_bytes": BUDGET}) as node,
        gapless.connect(node.url, client_id="b") as connection,
        connection.session() as session,
        AsyncExitStack() as stack,
    ):

        async def held() -> float:
            status = await connection.status()
            holders = ("links", "readers", "pages")
            return sum(status.value("gapless_shb_memory_bytes", holder=holder) for holder in holders)

        await connection.attach("keeps", "big", start="earliest")
        publisher = session.publisher("big")
        bodies = [os.urandom(EVENT) for _ in range(20)]
        for body in bodies:
            await publisher.send(body)
        for number in range(SESSIONS):
            raw = await stack.enter_async_context(RawClient(node.url.removeprefix("gapless://")))
            await raw.shake_hands(f"raw{number}")
            raw._reader._transport.pause_reading()  # type: ignore[attr-defined]
            await raw.say(
                Subscribe(1, None, ("big",), "", StartAt.EARLIEST, 0, None, 0, 0, b"", [], InUse.ERROR, 10**6, 1 << 40)
            )
        most = 0.0
        for _ in range(20):
            most = max(most, await held())
            await asyncio.sleep(0.05)
        assert BUDGET // 2 < most <= BUDGET + (4 << 20), "and what a turn of the pubend's answers brings"

        async with session.subscribe("small", start="latest") as subscription:
            small = session.publisher("small")
            for number in range(20):
                await small.send(b"%d" % number)
                assert (await asyncio.wait_for(subscription.__anext__(), 5)).body == b"%d" % number

        await stack.aclose()
        async with session.subscribe("big", start="earliest") as subscription:
            for body in bodies:
                event = await asyncio.wait_for(subscription.__anext__(), 30)
                assert isinstance(event, gapless.Event)
                assert event.body == body
        await until_holds_little(held)


async def until_holds_little(held: Callable[[], Awaitable[float]]) -> None:
    """Waits until hardly anything is held any more."""
    for _ in range(100):
        if await held() < 1 << 20:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{await held()} bytes are still held")
