"""Group commit (protocol: how-a-write-becomes-durable; T44, INV7, INV12, S09, S10)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gapless.core.ports import Chop, Delete, Put, Set
from gapless.errors import VolumeFailedError, VolumeFullError
from gapless.node.commit import GroupCommit
from volumes import FakeVolume


class Rig:
    """A group commit and what it said."""

    def __init__(self, *, durable: bool = True, syncs_max: int = 2) -> None:
        self.volume = FakeVolume(durable=durable)
        self.released: list[list[Any]] = []
        self.failed: list[BaseException] = []
        self.commit = GroupCommit(self.volume, self.released.append, self.failed.append, syncs_max=syncs_max)

    def put(self, index: int, *, cookie: bool = True) -> None:
        self.commit.commit([Put("log", index, b"x")], [(0, index)] if cookie else [])

    @property
    def cookies(self) -> list[int]:
        return [cookie for group in self.released for _, cookie in group]


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0.005)


async def test_operations_are_one_write_in_their_order_and_the_cookie_waits_for_the_sync() -> None:
    rig = Rig()
    rig.volume.gate.clear()

    rig.commit.commit([Put("log", 5, b"x"), Set("t", b"k", b"v"), Delete("t", b"j"), Chop("log", 3)], [(0, "a")])

    assert rig.volume.calls == ["write put log 5, set t, delete t, chop log 3"]
    await turns()
    assert rig.released == []
    assert rig.commit.busy
    rig.volume.gate.set()
    await rig.commit.idle()
    assert rig.released == [[(0, "a")]]
    assert not rig.commit.busy


async def test_what_is_committed_while_syncs_run_gathers_into_one_group() -> None:
    rig = Rig()
    rig.volume.gate.clear()
    for index in range(1, 8):
        rig.put(index)
        await asyncio.sleep(0)
    await turns()
    rig.volume.gate.set()

    await rig.commit.idle()

    assert rig.cookies == [1, 2, 3, 4, 5, 6, 7]
    assert rig.volume.calls.count("sync") == 3
    assert rig.volume.syncing_most == 2
    assert len(rig.volume.streams["log"].records) == 7


@pytest.mark.parametrize("syncs_max", [1, 2, 3])
async def test_no_more_syncs_run_at_a_time_than_are_allowed(syncs_max: int) -> None:
    rig = Rig(syncs_max=syncs_max)
    for index in range(1, 200):
        rig.put(index)
        if index % 7 == 0:
            await asyncio.sleep(0.0001)

    await rig.commit.idle()

    assert rig.cookies == list(range(1, 200))
    assert rig.volume.syncing_most <= syncs_max


async def test_a_sync_that_ends_before_an_earlier_one_releases_nothing() -> None:
    rig = Rig()
    gates = [asyncio.Event(), asyncio.Event()]
    order: list[Any] = []

    class Threads:
        """Syncs that end when the test says so."""

        def sync(self, group: Any, answer: Any) -> None:
            order.append((group, answer))

        def close(self) -> None:
            pass

    rig.commit._threads = Threads()  # type: ignore[assignment]
    rig.put(1)
    rig.put(2)
    assert len(order) == len(gates)

    order[1][1](order[1][0], None)
    assert rig.released == []
    order[0][1](order[0][0], None)
    assert rig.released == [[(0, 1), (0, 2)]]


async def test_after_a_failed_sync_nothing_is_released_whatever_a_later_one_says() -> None:
    rig = Rig()
    rig.volume.gate.clear()
    rig.volume.sync_errors = [VolumeFailedError("EIO"), None]
    rig.put(1)
    rig.put(2)
    rig.put(3)

    rig.volume.gate.set()
    await rig.commit.idle()
    await turns()

    assert rig.released == []
    assert [str(error) for error in rig.failed] == ["EIO"]
    assert rig.volume.calls.count("sync") == 2
    with pytest.raises(AssertionError):
        rig.put(4)


async def test_what_was_durable_before_the_failure_stays_released() -> None:
    rig = Rig()
    rig.put(1)
    await rig.commit.idle()
    rig.volume.sync_errors = [VolumeFailedError("EIO")]
    rig.put(2)
    await rig.commit.idle()
    await turns()

    assert rig.cookies == [1]
    assert len(rig.failed) == 1


async def test_an_error_of_the_storage_that_is_not_one_of_ours_is_a_failure_too() -> None:
    rig = Rig()
    rig.volume.sync_errors = [RuntimeError("a bug in a plugin")]
    rig.put(1)

    await rig.commit.idle()
    await turns()

    assert rig.released == []
    assert [type(error) for error in rig.failed] == [RuntimeError]


async def test_a_failed_write_is_raised_and_releases_nothing() -> None:
    rig = Rig()
    rig.volume.write_error = VolumeFullError("no space left")

    with pytest.raises(VolumeFullError):
        rig.put(1)
    await turns()

    assert rig.volume.calls == []
    assert (rig.released, rig.failed) == ([], [])
    assert not rig.commit.busy


async def test_a_write_without_a_cookie_is_written_and_starts_no_sync() -> None:
    rig = Rig()
    rig.put(1, cookie=False)
    await turns()
    assert rig.volume.calls == ["write put log 1"]

    rig.put(2)
    await rig.commit.idle()

    assert rig.volume.calls == ["write put log 1", "write put log 2", "sync"]


async def test_a_cookie_without_a_write_waits_for_a_sync_of_what_is_there() -> None:
    rig = Rig()
    rig.commit.commit([], [(0, "all before")])
    await rig.commit.idle()

    assert rig.volume.calls == ["sync"]
    assert rig.released == [[(0, "all before")]]


async def test_what_lives_in_memory_is_released_without_a_thread_and_not_at_once() -> None:
    rig = Rig(durable=False)
    rig.put(1)
    assert rig.released == []

    await asyncio.sleep(0)

    assert rig.cookies == [1]
    assert rig.commit._threads is None


async def test_nothing_is_released_once_the_run_is_over() -> None:
    rig = Rig()
    rig.volume.gate.clear()
    rig.put(1)
    rig.commit.fail()
    rig.volume.gate.set()

    await rig.commit.idle()
    rig.commit.close()
    await turns()

    assert (rig.released, rig.failed) == ([], [])


async def test_the_loop_may_be_gone_when_a_sync_ends() -> None:
    rig = Rig()
    rig.volume.gate.clear()
    rig.put(1)
    threads = rig.commit._threads
    assert threads is not None

    class ClosedLoop:
        def call_soon_threadsafe(self, *_: Any) -> None:
            raise RuntimeError("Event loop is closed")

    threads._loop = ClosedLoop()  # type: ignore[assignment]
    rig.volume.gate.set()
    threads.close()
    for thread in threads._threads:
        await asyncio.to_thread(thread.join, 5)
        assert not thread.is_alive()
