"""A wall clock that steps by hours, within a run of the broker and across its restarts (C01)."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless.core.stream.ticks import SECOND, wall_at
from gapless.node.config import make_config
from gapless.node.node import Node
from gapless.node.shell import system_clock
from integration.broker_process import CLI

pytestmark = pytest.mark.timeout(150)

HOURS_MS = 2 * 3_600_000
SECTIONS: dict[str, Any] = {
    "phb": {
        "release_seconds": 0.1,
        "silence_seconds": 0.1,
        "pubends": [{"name": "default", "max_retain_seconds": 3600, "min_retain_seconds": 1}],
    },
    "shb": {"checkpoint_seconds": 0.05, "catchup_bytes": 0},
}


class StepClock:
    """The system's clocks; the wall clock is off by so much."""

    def __init__(self, off_ms: int = 0) -> None:
        self.off_ms = off_ms

    def __call__(self) -> tuple[int, int]:
        now, wall = system_clock()
        return now, wall + self.off_ms


@asynccontextmanager
async def node_at(directory: Path, clock: StepClock, sections: dict[str, Any]) -> AsyncIterator[Node]:
    """A node on RocksDB, on any port of loopback, that reads this clock."""
    settings = {"storage": {"path": str(directory)}, "listen": [{"address": "127.0.0.1:0"}], **sections}
    node = await Node.start(make_config(settings), clock=clock)
    try:
        yield node
    finally:
        await node.stop()


async def publish(url: str, count: int) -> list[int]:
    """Publishes some events; returns their ticks."""
    async with gapless.connect(url, client_id="k") as connection, connection.session() as session:
        publisher = session.publisher("t", name="p")
        return [(await publisher.send(b"%d" % number)).tick for number in range(count)]


async def subscribe(url: str) -> None:
    """A durable subscription that consumes nothing yet."""
    async with gapless.connect(url, client_id="k") as connection, connection.session() as session:
        async with session.subscribe("t", name="k", start="earliest"):
            pass


async def consumed(url: str, upto: int) -> list[object]:
    """What the subscription gets up to a tick: bodies, and gaps."""
    async with gapless.connect(url, client_id="k") as connection, connection.session() as session:
        found: list[object] = []
        async with session.subscribe("t", name="k", on_gap="deliver") as subscription:
            async for item in subscription:
                found.append(item.body if isinstance(item, gapless.Event) else item)
                if isinstance(item, gapless.Event) and item.tick >= upto:
                    break
        return found


async def until_lost(url: str) -> None:
    """Until something was given up."""
    async with gapless.connect(url) as connection:
        for _ in range(200):
            if any(info.lost for info in await connection.pubends()):
                return
            await asyncio.sleep(0.05)
    raise AssertionError("nothing was given up")


async def until_decided(url: str, seconds: float) -> None:
    """Until its pubend has gone on for so long: what it releases it has released by then."""
    async with gapless.connect(url) as connection:
        (info,) = await connection.pubends()
        for _ in range(400):
            (later,) = await connection.pubends()
            if later.stable >= info.stable + int(seconds * SECOND):
                return
            await asyncio.sleep(0.05)
    raise AssertionError("the pubend does not go on")


async def test_a_start_with_the_clock_two_hours_ahead_releases_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And neither does the next one, which follows at once, nor the one with the right clock again."""
    caplog.set_level(logging.WARNING, "gapless")
    async with node_at(tmp_path / "v", StepClock(), SECTIONS) as node:
        await subscribe(node.url)
        await publish(node.url, 10)

    for _ in range(2):
        async with node_at(tmp_path / "v", StepClock(HOURS_MS), SECTIONS) as node:
            await publish(node.url, 1)
            await until_decided(node.url, 1)
    assert caplog.text.count("was down for so long, or the clock is wrong") == 2

    async with node_at(tmp_path / "v", StepClock(), SECTIONS) as node:
        before = system_clock()[1]
        (last,) = await publish(node.url, 1)
        await until_decided(node.url, 1)
        found = await consumed(node.url, last)

    assert found == [b"%d" % number for number in range(10)] + [b"0"] * 3
    assert wall_at(last) > before + HOURS_MS - 60_000
    assert re.search(r"events are stamped (2:00|1:59):\d\d ahead of the wall clock", caplog.text)


async def test_a_clock_that_steps_within_a_run_releases_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = StepClock()
    async with node_at(tmp_path / "v", clock, SECTIONS) as node:
        await subscribe(node.url)
        await publish(node.url, 10)
        clock.off_ms = HOURS_MS
        await until_decided(node.url, 1)
        before = system_clock()[1]
        (last,) = await publish(node.url, 1)
        after = system_clock()[1]
        found = await consumed(node.url, last)

    assert found == [b"%d" % number for number in range(10)] + [b"0"]
    assert before - 5_000 < wall_at(last) < after + 5_000
    assert "leapt more than 60 s ahead and is not followed" in caplog.text


async def test_who_was_down_for_long_releases_in_the_end(tmp_path: Path) -> None:
    """The very same as a clock that leaps, but that it stays so: it is believed after a while."""
    sections = {**SECTIONS, "phb": {**SECTIONS["phb"], "clock_doubt_seconds": 1}}
    async with node_at(tmp_path / "v", StepClock(), sections) as node:
        await subscribe(node.url)
        await publish(node.url, 10)

    async with node_at(tmp_path / "v", StepClock(HOURS_MS), sections) as node:
        (last,) = await publish(node.url, 1)
        await until_lost(node.url)
        found = await consumed(node.url, last)

    (*gaps, body) = found
    assert gaps
    assert all(isinstance(gap, gapless.Gap) for gap in gaps)
    assert body == b"0"


@pytest.mark.parametrize(("off_ms", "says"), [(HOURS_MS, "ahead of"), (-HOURS_MS, "behind")])
async def test_doctor_says_that_stamps_are_off(tmp_path: Path, off_ms: int, says: str) -> None:
    async with node_at(tmp_path / "v", StepClock(off_ms), SECTIONS) as node:
        await publish(node.url, 1)
        await until_decided(node.url, 0.2)
        command = [sys.executable, *CLI, "doctor", "--url", node.url, "--json"]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, cwd=tmp_path)
        out, _ = await process.communicate()

    assert process.returncode == 1
    (finding,) = [finding for finding in json.loads(out)["findings"] if "stamps" in finding]
    assert finding.startswith("default@")
    assert f"2 h {says} this machine's clock" in finding
