"""What a node does when its disk or its code fails, on RocksDB and TCP (INV7, INV12, S09, S11, P12)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless.errors import StorageError, VolumeFailedError, VolumeFullError
from gapless_phb.core.broker import PublisherHostingBroker
from gapless_storage.rocksdb import RocksdbVolume
from integration.nodes_in_process import running_node

COUNT = 300


class Breaker:
    """Makes every n-th call of a method fail, a number of times."""

    def __init__(self, every: int, times: int, fail: Callable[[Any], Exception]) -> None:
        self.every = every
        self.left = times
        self.calls = 0
        self.fail = fail

    def put_into(self, monkeypatch: pytest.MonkeyPatch, owner: type, method: str) -> None:
        whole = getattr(owner, method)

        def broken(volume: Any, *arguments: Any) -> Any:
            self.calls += 1
            if self.left and self.calls % self.every == 0:
                self.left -= 1
                raise self.fail(volume)
            return whole(volume, *arguments)

        monkeypatch.setattr(owner, method, broken)


def storage_failure(error: StorageError) -> Callable[[Any], Exception]:
    """What the volume itself does when its database fails: it takes no more writes."""
    return lambda volume: volume._fail(error)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("method", "error"),
    [
        ("_sync_log", VolumeFailedError("fdatasync: Input/output error")),
        ("_sync_fence", VolumeFailedError("fence: Input/output error")),
        ("write", VolumeFullError("No space left on device")),
    ],
    ids=["log", "fence", "write"],
)
async def test_a_failing_disk_costs_nothing_that_was_acknowledged_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any, method: str, error: StorageError
) -> None:
    async with (
        running_node(tmp_path / "volume") as node,
        gapless.connect(node.url) as connection,
        connection.session() as session,
        session.subscribe("t", name="s") as subscription,
    ):
        breaker = Breaker(20, 2, storage_failure(error))
        breaker.put_into(monkeypatch, RocksdbVolume, method)
        publisher = session.publisher("t", name="loader")
        receipts = [await publisher.send(b"%d" % number) for number in range(COUNT)]
        events = [event async for event in take(subscription, COUNT)]

    assert breaker.left == 0
    assert [int(event.body) for event in events] == list(range(COUNT))
    assert [event.tick for event in events] == [receipt.tick for receipt in receipts]
    failures = [record for record in caplog.records if "the storage has failed" in record.getMessage()]
    assert len(failures) >= 2
    assert not [record for record in caplog.records if record.levelno >= logging.CRITICAL]


async def take(subscription: Any, count: int) -> Any:
    async for event in subscription:
        yield event
        count -= 1
        if not count:
            return


@pytest.mark.timeout(60)
async def test_a_bug_in_a_core_is_a_restart_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    breaker = Breaker(100, 2, lambda _: RuntimeError("a bug"))
    breaker.put_into(monkeypatch, PublisherHostingBroker, "_on_submit")
    async with (
        running_node(tmp_path / "volume") as node,
        gapless.connect(node.url) as connection,
        connection.session() as session,
        session.subscribe("t", name="s") as subscription,
    ):
        publisher = session.publisher("t", name="loader")
        for number in range(COUNT):
            await publisher.send(b"%d" % number)
        events = [event async for event in take(subscription, COUNT)]

    assert breaker.left == 0
    assert [int(event.body) for event in events] == list(range(COUNT))
    assert "a bug: an exception in a core" in caplog.text


async def test_publishers_wait_while_the_disk_is_nearly_full_and_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free: int | None = 10
    monkeypatch.setattr(RocksdbVolume, "free_bytes", property(lambda _: free))
    monkeypatch.setattr("gapless.node.upkeep.INTERVAL", 0.05)
    async with (
        running_node(tmp_path / "volume", node={"min_free_bytes": 1000}) as node,
        gapless.connect(node.url) as connection,
        connection.session() as session,
        session.subscribe("t", name="s") as subscription,
    ):
        publisher = session.publisher("t", name="loader")
        sending = asyncio.ensure_future(publisher.send(b"x"))
        done, _ = await asyncio.wait([sending], timeout=0.5)
        assert not done
        free = 5000
        receipt = await sending
        events = [event async for event in take(subscription, 1)]

    assert [event.tick for event in events] == [receipt.tick]
