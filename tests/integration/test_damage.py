"""One bit of a data file is another one: what of it the clients of a real broker on RocksDB see."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import gapless
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
