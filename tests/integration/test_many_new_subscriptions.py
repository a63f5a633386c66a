"""Many new subscriptions from the earliest at once: each gets its events, and what is live goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import gapless
from integration.nodes_in_process import running_node

pytestmark = pytest.mark.timeout(120)

EVENTS = 6_000
NEW = 60


async def test_new_subscriptions_read_a_long_log_side_by_side(tmp_path: Path) -> None:
    async with (
        running_node(tmp_path / "volume") as node,
        gapless.connect(node.url, client_id="many") as connection,
        connection.session() as session,
    ):
        await connection.attach("keeps", "long", start="earliest")
        publisher = session.publisher("long")
        for first in range(0, EVENTS, 500):
            await publisher.send_batch(
                [gapless.Message(b"%d" % number, {"k": number % NEW}) for number in range(first, first + 500)]
            )

        async def read(key: int) -> list[int]:
            name, selector = f"new{key}", f"k = {key}"
            bodies: list[int] = []
            async with session.subscribe("long", name=name, selector=selector, start="earliest") as subscription:
                while len(bodies) < EVENTS // NEW:
                    event = await subscription.__anext__()
                    assert isinstance(event, gapless.Event)
                    bodies.append(int(event.body))
            return bodies

        async with session.subscribe("now", start="latest") as live:
            reading = asyncio.gather(*(read(key) for key in range(NEW)))
            now = session.publisher("now")
            while not reading.done():
                await now.send(b"live")
                assert (await asyncio.wait_for(live.__anext__(), 10)).body == b"live"
        assert await reading == [list(range(key, EVENTS, NEW)) for key in range(NEW)]
