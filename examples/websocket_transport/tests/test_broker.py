"""A broker that listens for WebSockets, and a client that comes through the front door."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

import gapless

TOML = """
[storage]
plugin = "memory"

[[listen]]
transport = "ws"
address = "127.0.0.1:0"
handshake_timeout = 2.0
"""
GAPLESS = Path(sys.executable).with_name("gapless")
SECONDS_MAX = 60


@pytest.mark.asyncio
async def test_events_go_over_a_websocket_and_none_is_lost(tmp_path: Path) -> None:
    """`gapless broker` with a `[[listen]]` of this transport, and `gapless+ws://HOST:PORT`."""
    (tmp_path / "gapless.toml").write_text(TOML, "utf-8")
    bodies = [b"%d" % number * (60_000 if number % 10 == 0 else 1) for number in range(100)]
    command = [str(GAPLESS), "broker", "--config", "gapless.toml", "--create"]
    broker = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, stdout=asyncio.subprocess.PIPE)
    try:
        assert broker.stdout is not None
        line = (await asyncio.wait_for(broker.stdout.readline(), SECONDS_MAX)).decode()
        address = line.partition("://")[2].partition(";")[0]

        async with gapless.connect(f"gapless+ws://{address}", client_id="desk") as connection:
            came = await asyncio.wait_for(publish_and_receive(connection, bodies), SECONDS_MAX)

        assert came == bodies
    finally:
        broker.terminate()
        await asyncio.wait_for(broker.wait(), SECONDS_MAX)
    assert broker.returncode == 0


async def publish_and_receive(connection: gapless.Connection, bodies: list[bytes]) -> list[bytes]:
    """What a subscription receives of what a publisher sends, both on one connection."""
    came: list[bytes] = []
    async with connection.session() as session, session.subscribe("letters", name="all") as subscription:
        publisher = session.publisher("letters", name="post")
        receipts = await asyncio.gather(*map(publisher.send, bodies))
        assert len({receipt.tick for receipt in receipts}) == len(bodies)
        async for event in subscription:
            came.append(event.body)
            if len(came) == len(bodies):
                return came
    return came
