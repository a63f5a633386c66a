"""One bit of a data file is another one: what of it the clients of a real broker on RocksDB see."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from typer.testing import CliRunner

import gapless
from gapless.cli.app import app
from integration.nodes_in_process import running_node

PUBENDS: dict[str, Any] = {"pubends": [{"name": name, "topics": [f"{name}.#"]} for name in "ab"]}
COUNT = 600
EVENT_BYTES = 300
QUIET = 1.5
"""Seconds without an event after which a consumer has all it gets."""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where a broker makes its volume."""
    return tmp_path / "volume"


async def fill(directory: Path, topic: str, phb: dict[str, Any]) -> list[int]:
    """Publishes to a topic in a broker's life of its own, so that its pubend has a data file of its own."""
    async with (
        running_node(directory, phb=phb) as node,
        gapless.connect(node.url, client_id="c") as connection,
        connection.session() as session,
    ):
        await session.subscribe(topic, name=f"first of {topic}", start="earliest")
        publisher = session.publisher(topic, name=f"publisher of {topic}")
        ticks: list[int] = []
        for start in range(0, COUNT, 20):
            messages = [gapless.Message(bytes(EVENT_BYTES), {"i": start + i}) for i in range(20)]
            ticks += [receipt.tick for receipt in await publisher.send_batch(messages)]
        async with session.subscribe(topic, name=f"second of {topic}", start="earliest") as subscription:
            while (await anext(subscription)).tick != ticks[COUNT // 2 - 1]:
                pass
            await subscription.acknowledge(subscription.token)
    return ticks


async def consume(url: str, name: str, topic: str) -> list[Any]:
    """All events and gaps of a subscription until nothing comes any more; nothing is acknowledged."""
    got: list[Any] = []
    async with gapless.connect(url, client_id="c") as connection, connection.session() as session:
        async with session.subscribe(topic, name=name, on_gap="deliver") as subscription:
            with suppress(TimeoutError, asyncio.TimeoutError):
                while True:
                    got.append(await asyncio.wait_for(anext(subscription), QUIET))
    return got


def flip(path: Path, *places: float) -> None:
    """Turns one bit at each of these shares of a file."""
    content = bytearray(path.read_bytes())
    for place in places:
        content[int(len(content) * place)] ^= 4
    path.write_bytes(content)


def data_files(directory: Path) -> list[Path]:
    """The data files, largest first."""
    return sorted((directory / "rocksdb").glob("*.sst"), key=lambda path: -path.stat().st_size)


async def damaged(directory: Path, *places: float, phb: dict[str, Any] = PUBENDS) -> tuple[list[int], list[int]]:
    """A volume with two pubends, of which the first one's log has a bit turned. Returns the ticks of both."""
    ticks_a = await fill(directory, "a.x", phb)
    before = set(data_files(directory))
    ticks_b = await fill(directory, "b.x", phb)
    flip(next(path for path in data_files(directory) if path in before), *places)
    return ticks_a, ticks_b


@pytest.mark.timeout(60)
async def test_a_damaged_log_costs_the_other_pubends_nothing(directory: Path) -> None:
    ticks_a, ticks_b = await damaged(directory, 0.5)

    async with running_node(directory, phb=PUBENDS) as node:
        got_b = await consume(node.url, "first of b.x", "b.x")
        got_a = await consume(node.url, "first of a.x", "a.x")
        async with gapless.connect(node.url, client_id="c") as connection, connection.session() as session:
            await session.publisher("b.x", name="publisher of b.x").send(b"goes on")
            with pytest.raises(gapless.PublishRejectedError, match="gapless repair"):
                await session.publisher("a.x").send(b"does not")
            listed = {info.pubend.split("@")[0]: info for info in await connection.pubends()}

    assert [event.tick for event in got_b] == ticks_b
    assert 0 < len(got_a) < len(ticks_a)
    assert [event.tick for event in got_a] == ticks_a[: len(got_a)], "nothing is skipped, and no gap is told"
    assert not listed["b"].damaged
    [(start, end, why)] = listed["a"].damaged
    assert got_a[-1].tick <= start < end <= ticks_a[-1]
    assert ".sst" in why
    assert "gapless repair" in listed["a"].refusal


@pytest.mark.timeout(60)
async def test_who_stands_behind_the_damage_is_served(directory: Path) -> None:
    ticks, _ = await damaged(directory, 0.3)

    async with running_node(directory, phb=PUBENDS) as node:
        waiting, behind = await asyncio.gather(
            consume(node.url, "first of a.x", "a.x"), consume(node.url, "second of a.x", "a.x")
        )

    assert 0 < len(waiting) < COUNT // 2
    assert [event.tick for event in behind] == ticks[COUNT // 2 :]


@pytest.mark.timeout(60)
async def test_merging_data_files_into_a_damaged_one_does_not_stop_the_others_for_good(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """RocksDB takes no write of anybody once it has met the block: the broker opens it anew, and merges no more.

    Nobody has read the block before: the publishers' checkpoint stands behind it.
    """
    phb = PUBENDS | {"checkpoint_bytes": 1 << 10}
    await damaged(directory, 0.3, phb=phb)
    storage = {"path": str(directory), "write_buffer_bytes": 64 << 10}

    async with (
        running_node(directory, phb=phb, storage=storage) as node,
        gapless.connect(node.url, client_id="c") as connection,
        connection.session() as session,
    ):
        publisher = session.publisher("b.x", name="publisher of b.x")
        receipts = []
        for _ in range(100):
            receipts += await publisher.send_batch([gapless.Message(bytes(EVENT_BYTES)) for _ in range(100)])

    assert len(receipts) == 10_000
    assert "not merged any more" in caplog.text
    assert "the storage has failed" in caplog.text
    assert "serves again" in caplog.text


def command(*arguments: str) -> tuple[int, str]:
    """What a command of `gapless` ends with, and what it prints."""
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.output


@pytest.mark.timeout(120)
async def test_after_a_repair_there_is_one_gap_with_its_own_reason_and_all_else(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ticks, ticks_b = await damaged(directory, 0.3)
    where = ("--path", str(directory))

    status, said = await asyncio.to_thread(command, "scrub", *where, "--json")
    assert status == 1
    [hole] = json.loads(said)["holes"]
    assert ".sst" in hole["reason"]
    status, said = await asyncio.to_thread(command, "repair", *where)
    assert (status, "nothing was changed" in said) == (1, True)
    assert "events of pubend a@" in said
    status, said = await asyncio.to_thread(command, "repair", *where, "--yes")
    assert (status, "given up: events of pubend a@" in said) == (0, True)
    status, said = await asyncio.to_thread(command, "repair", *where, "--yes")
    assert (status, "nothing to repair" in said) == (0, True)
    assert await asyncio.to_thread(command, "scrub", *where) == (0, ANY)

    caplog.clear()
    async with running_node(directory, phb=PUBENDS) as node:
        got = await consume(node.url, "first of a.x", "a.x")
        behind = await consume(node.url, "second of a.x", "a.x")
        got_b = await consume(node.url, "first of b.x", "b.x")
        ranges = await read_range(node.url, "first of a.x", ticks)
        async with gapless.connect(node.url, client_id="c") as connection, connection.session() as session:
            receipt = await session.publisher("a.x", name="publisher of a.x").send(b"goes on")

    gone = [tick for tick in ticks if hole["after"] < tick <= hole["upto"]]
    for items in (got, ranges):
        [gap] = [item for item in items if isinstance(item, gapless.Gap)]
        assert gap.reason == "damaged"
        events = [item.tick for item in items if not isinstance(item, gapless.Gap)]
        lost = [tick for tick in ticks if tick not in events]
        assert set(lost) <= set(gone)
        assert len(lost) < 60, "no more than what could not be read"
        assert all(gap.start < tick <= gap.end for tick in lost)
        assert events == [tick for tick in ticks if tick not in lost]
        assert items.index(gap) == len([tick for tick in events if tick < gap.end])
    assert [event.tick for event in behind] == ticks[COUNT // 2 :]
    assert [item.tick for item in got_b if not isinstance(item, gapless.Gap)] == ticks_b
    assert "cannot be read" not in caplog.text
    assert receipt.tick > ticks[-1]


async def read_range(url: str, name: str, ticks: list[int]) -> list[Any]:
    """All that a subscription's range has."""
    async with gapless.connect(url, client_id="c") as connection:
        pubend = next(info.pubend for info in await connection.pubends() if info.pubend.startswith("a@"))
        async with connection.read_range(name, pubend, ticks[0] - 1, ticks[-1], on_gap="deliver") as reader:
            return [item async for item in reader]
