"""A disk that is full, a small one of its own (S11, S12): nobody is stuck, nothing lost.

Needs leave to mount a file system, as CI and containers with CAP_SYS_ADMIN have it; elsewhere these tests are skipped.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

import gapless
import gapless.sync
from integration.broker_process import BrokerProcess, bounded, until
from integration.small_disk import small_disk

pytestmark = pytest.mark.timeout(150)

MEBIBYTE = 1 << 20
DISK = 96 * MEBIBYTE
STORAGE = {"write_buffer_bytes": MEBIBYTE, "reserve_bytes": 12 * MEBIBYTE}
LITTLE = {"min_free_bytes": 0}
ENOUGH = {"min_free_bytes": 16 * MEBIBYTE}
BODY = 50_000
QUIET = 4.0
"""Seconds without a receipt after which publishers are said to wait: it looks every second, and steps take as long."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Where a small disk is mounted."""
    place = tmp_path / "disk"
    with small_disk(place, DISK):
        yield place


@asynccontextmanager
async def broker_on(disk: Path, directory: Path, node: dict[str, int], **sections: Any) -> AsyncIterator[BrokerProcess]:
    """A broker whose volume is on the small disk."""
    broker = BrokerProcess(directory, node=node, **sections)
    broker.volume = disk / "volume"
    broker.sections["storage"] = {"path": str(broker.volume), **STORAGE}
    async with broker:
        yield broker


class Filler:
    """Publishes until it has to wait, and notes what was receipted."""

    def __init__(self, publisher: gapless.Publisher) -> None:
        self.publisher = publisher
        self.sent: list[bytes] = []
        self.receipts: list[gapless.Receipt] = []
        self._waiting: list[asyncio.Future[gapless.Receipt]] = []

    async def fill(self, most: int, patience: float = QUIET) -> bool:
        """Publishes up to `most` bytes. Returns whether it had to wait; what waits then is still on its way."""
        for _ in range(0, most, BODY):
            self.send()
            if len(self._waiting) >= 8 and not await self.settle(patience):
                return True
        return not await self.settle(patience)

    def send(self) -> None:
        body = len(self.sent).to_bytes(8, "big") + os.urandom(BODY - 8)
        self.sent.append(body)
        self._waiting.append(self.publisher.submit(gapless.Message(body)))

    async def settle(self, patience: float) -> bool:
        """Waits until all are receipted. Returns whether they are."""
        if self._waiting:
            await asyncio.wait(self._waiting, timeout=patience)
        while self._waiting and self._waiting[0].done():
            self.receipts.append(self._waiting.pop(0).result())
        return not self._waiting


async def consume(url: str, count: int) -> list[gapless.Event]:
    """The next events of the durable subscription, acknowledged."""
    async with gapless.connect(url) as connection, connection.session() as session:
        async with session.subscribe("t", name="s", start="earliest", in_use="takeover") as subscription:
            events = [await bounded(subscription.__anext__()) for _ in range(count)]
            await subscription.acknowledge()
            for _ in range(200):  # a broker that is killed or fails meanwhile is told again
                [known] = [info for info in await bounded(connection.subscriptions()) if info.name == "s"]
                if not events or known.acknowledged.ticks.get(events[-1].pubend, 0) >= events[-1].tick:
                    break
                await asyncio.sleep(0.1)
    return events


def agree(events: Sequence[gapless.Event], filler: Filler) -> bool:
    """Whether every event was received once, in order, as it was receipted."""
    assert [event.body for event in events] == filler.sent[: len(events)]
    assert [event.tick for event in events] == [receipt.tick for receipt in filler.receipts[: len(events)]]
    return True


@pytest.mark.parametrize("node", [LITTLE, ENOUGH], ids=["nothing kept free", "some kept free"])
@pytest.mark.parametrize("killed", [False, pytest.param(True, marks=pytest.mark.long)], ids=["", "killed"])
async def test_a_disk_that_subscriptions_fill_is_emptied_by_them(
    disk: Path, tmp_path: Path, node: dict[str, int], killed: bool
) -> None:
    """Fill it, kill the broker, start it, acknowledge, go on: by itself, without a receipt or an event too many."""
    async with broker_on(disk, tmp_path, node) as broker:
        async with gapless.connect(broker.url) as connection, connection.session() as session:
            await session.subscribe("t", name="s", start="earliest")
            filler = Filler(session.publisher("t", name="p"))
            waits = await filler.fill(2 * DISK)
            why = filler.publisher.waiting
            filled = len(filler.receipts)
            if killed:
                await broker.restart()
            events = await consume(broker.url, filled)
            goes_on = await filler.settle(30)
            waits_again = await filler.fill(DISK // 8)
        events += await consume(broker.url, len(filler.receipts) - filled)

    assert waits
    assert filled * BODY > DISK // 4
    assert killed or "disk is full" in why
    assert goes_on
    assert not waits_again
    assert len(events) == len(filler.sent)
    assert agree(events, filler)
    assert "a bug" not in broker.log


async def test_what_nobody_is_owed_gives_way_to_publishers(disk: Path, tmp_path: Path) -> None:
    """min_retain keeps an hour or a GiB for `earliest`: of a disk that is smaller than that, what there is room for."""
    async with broker_on(disk, tmp_path, ENOUGH) as broker:
        async with gapless.connect(broker.url) as connection, connection.session() as session:
            filler = Filler(session.publisher("t", name="p"))
            async with session.subscribe("t", name="s") as subscription:
                seen = 0
                waited = 0.0
                while len(filler.sent) * BODY < 3 * DISK:
                    filler.send()
                    began = monotonic()
                    assert await filler.settle(20), filler.publisher.waiting
                    waited = max(waited, monotonic() - began)
                    await bounded(subscription.__anext__())
                    seen += 1
                    if seen % 50 == 0:
                        await subscription.acknowledge()
                await subscription.acknowledge()
        earliest = await first_of(broker.url)

    assert seen == len(filler.sent)
    assert waited < 15
    assert filler.sent[0] != earliest  # something had to go
    assert earliest in filler.sent


async def first_of(url: str) -> bytes:
    """The earliest event that there still is."""
    async with gapless.connect(url) as connection, connection.session() as session:
        async with session.subscribe("t", start="earliest") as subscription:
            return (await bounded(subscription.__anext__())).body


async def test_what_somebody_is_owed_never_gives_way(disk: Path, tmp_path: Path) -> None:
    """Of two subscriptions one stays away: all of its events are there when it comes, and no gap."""
    async with broker_on(disk, tmp_path, ENOUGH) as broker:
        async with gapless.connect(broker.url) as connection, connection.session() as session:
            await session.subscribe("t", name="s", start="earliest")
            filler = Filler(session.publisher("t", name="p"))
            async with session.subscribe("t", name="diligent", start="earliest") as diligent:
                waits = await filler.fill(2 * DISK)
                for _ in filler.receipts:
                    await bounded(diligent.__anext__())
                await diligent.acknowledge()
                still_waits = not await filler.settle(QUIET)
            events = await consume(broker.url, len(filler.receipts))

    assert waits
    assert still_waits
    assert agree(events, filler)


async def test_another_program_fills_the_disk_and_makes_room_again(disk: Path, tmp_path: Path) -> None:
    """Not a byte is left but those kept aside: it starts, hands out and takes acknowledgements; publishers wait."""
    async with broker_on(disk, tmp_path, ENOUGH) as broker:
        async with gapless.connect(broker.url) as connection, connection.session() as session:
            await session.subscribe("t", name="s", start="earliest")
            filler = Filler(session.publisher("t", name="p"))
            assert not await filler.fill(MEBIBYTE)
            await broker.kill()
            free = shutil.disk_usage(disk).free
            with (disk / "others").open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, free)
            full = shutil.disk_usage(disk).free
            await broker.start()
            events = await consume(broker.url, len(filler.receipts))
            waits = await filler.fill(10 * BODY)
            await broker.restart()
            await until(lambda: "the reserve is used to open the volume" in broker.log, "the reserve")
            (disk / "others").unlink()
            goes_on = await filler.settle(30)
        events += await consume(broker.url, len(filler.receipts) - len(events))
        await until((broker.volume / "reserve").exists, "a reserve again")

    assert full == 0
    assert waits
    assert goes_on
    assert len(events) == len(filler.sent)
    assert agree(events, filler)


async def test_a_send_that_waits_says_why_when_its_time_is_over(disk: Path, tmp_path: Path) -> None:
    """It may be logged yet: the call ends with the error of its time, and leaving tells that nobody knows."""
    async with broker_on(disk, tmp_path, {"min_free_bytes": 2 * DISK}) as broker:

        def publish() -> tuple[str, str]:
            with gapless.sync.connect(broker.url) as connection:
                session = connection.session()
                publisher = session.publisher("t", name="p")
                with pytest.raises(TimeoutError) as over:
                    publisher.send(b"waits", timeout=3)
                waiting = publisher.waiting
                with pytest.raises(gapless.PublishUncertainError, match="closed before the answer"):
                    session.close()
                return str(over.value), waiting

        said, waiting = await asyncio.to_thread(publish)

    assert waiting == "the broker's disk is full: nothing can be published until there is room"
    assert said == f"not done within 3 s: {waiting}. It goes on by itself"


async def test_a_volume_that_has_no_room_for_its_reserve_is_not_made(disk: Path, tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.sections["storage"] = {"path": str(disk / "volume"), "reserve_bytes": 2 * DISK}

    with pytest.raises(AssertionError, match="the broker did not start"):
        await broker.start()

    assert "has no room for the reserve of a new volume: make some, or set storage.reserve_bytes" in broker.log
    assert "Traceback" not in broker.log
