"""SyncGroup commit (protocol: how-a-write-becomes-durable; T44, INV7, INV12, S09, S10)."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.gauges import value_of
from gapless.core.ports import Chop, Delete, Put, Set
from gapless.errors import VolumeFailedError, VolumeFullError
from gapless.node.commit import GroupCommit, SyncGroup
from gapless.node.gauges import COMMIT_SECONDS
from volumes import FakeVolume


class Rig:
    """A group commit, and what it said; syncs end when the test says so."""

    def __init__(self, *, syncs_max: int = 2) -> None:
        self.volume = FakeVolume()
        self.syncs: list[SyncGroup] = []
        """Begun, in order."""
        self.released: list[list[Any]] = []
        self.failed: list[BaseException] = []
        self.now = 0
        self.commit = GroupCommit(
            self.volume, self.syncs.append, self.released.append, self.failed.append, syncs_max=syncs_max
        )

    def put(self, index: int, *, cookie: bool = True) -> None:
        self.commit.commit([Put("log", index, b"x")], [(0, index)] if cookie else [], self.now)

    def end(self, number: int, error: BaseException | None = None) -> None:
        """The sync of that number, from 0 on, ends."""
        self.commit.on_synced(self.syncs[number], error, self.now)

    @property
    def cookies(self) -> list[int]:
        return [cookie for group in self.released for _, cookie in group]


def test_operations_are_one_write_in_their_order_and_the_cookie_waits_for_the_sync() -> None:
    rig = Rig()

    rig.commit.commit([Put("log", 5, b"x"), Set("t", b"k", b"v"), Delete("t", b"j"), Chop("log", 3)], [(0, "a")], 0)

    assert rig.volume.calls == ["write put log 5, set t, delete t, chop log 3"]
    assert rig.released == []
    assert rig.commit.busy
    rig.end(0)
    assert rig.released == [[(0, "a")]]
    assert not rig.commit.busy


def test_a_commit_takes_until_all_before_it_is_durable_too() -> None:
    rig = Rig()
    rig.put(1)
    rig.now = 20_000_000
    rig.put(2)
    rig.put(3)
    rig.put(4, cookie=False)

    rig.now = 500_000_000
    rig.end(1)
    assert value_of(rig.commit.seconds.gauges(), f"{COMMIT_SECONDS.name}_count") == 0
    rig.now = 1_000_000_000
    rig.end(0)
    rig.end(2)

    assert value_of(rig.commit.seconds.gauges(), f"{COMMIT_SECONDS.name}_count") == 3
    assert value_of(rig.commit.seconds.gauges(), f"{COMMIT_SECONDS.name}_sum") == pytest.approx(1.0 + 2 * 0.98)


def test_at_most_so_many_syncs_run_and_the_rest_gathers_into_one_group() -> None:
    rig = Rig()
    for index in range(1, 8):
        rig.put(index)
    assert [group.cookies for group in rig.syncs] == [[(0, 1)], [(0, 2)]]

    rig.end(0)
    assert rig.syncs[2].cookies == [(0, index) for index in range(3, 8)]
    rig.end(1)
    rig.end(2)

    assert rig.cookies == [1, 2, 3, 4, 5, 6, 7]
    assert not rig.commit.busy


@pytest.mark.parametrize("syncs_max", [1, 2, 3])
def test_no_more_syncs_run_at_a_time_than_are_allowed(syncs_max: int) -> None:
    rig = Rig(syncs_max=syncs_max)
    for index in range(1, 9):
        rig.put(index)

    assert len(rig.syncs) == syncs_max


def test_a_sync_that_ends_before_an_earlier_one_releases_nothing() -> None:
    rig = Rig()
    rig.put(1)
    rig.put(2)

    rig.end(1)
    assert rig.released == []
    rig.end(0)
    assert rig.released == [[(0, 1), (0, 2)]]


def test_after_a_failed_sync_nothing_is_released_or_begun_whatever_a_later_one_says() -> None:
    rig = Rig()
    for index in (1, 2, 3):
        rig.put(index)

    rig.end(0, VolumeFailedError("EIO"))
    rig.end(1)

    assert rig.released == []
    assert [str(error) for error in rig.failed] == ["EIO"]
    assert len(rig.syncs) == 2
    assert not rig.commit.busy
    with pytest.raises(AssertionError):
        rig.put(4)


def test_a_failure_is_told_once() -> None:
    rig = Rig()
    rig.put(1)
    rig.put(2)

    rig.end(0, VolumeFailedError("EIO"))
    rig.end(1, VolumeFailedError("EIO again"))

    assert [str(error) for error in rig.failed] == ["EIO"]


def test_what_was_durable_before_the_failure_stays_released() -> None:
    rig = Rig()
    rig.put(1)
    rig.end(0)
    rig.put(2)
    rig.end(1, VolumeFailedError("EIO"))

    assert rig.cookies == [1]
    assert len(rig.failed) == 1


def test_a_failed_write_is_raised_and_releases_nothing() -> None:
    rig = Rig()
    rig.volume.write_error = VolumeFullError("no space left")

    with pytest.raises(VolumeFullError):
        rig.put(1)

    assert rig.volume.calls == []
    assert (rig.released, rig.failed, rig.syncs) == ([], [], [])
    assert rig.commit.failed
    assert not rig.commit.busy


def test_a_write_without_a_cookie_is_written_and_starts_no_sync() -> None:
    rig = Rig()
    rig.put(1, cookie=False)
    assert rig.volume.calls == ["write put log 1"]
    assert rig.syncs == []

    rig.put(2)

    assert [group.cookies for group in rig.syncs] == [[(0, 2)]]


def test_a_cookie_without_a_write_waits_for_a_sync_of_what_is_there() -> None:
    rig = Rig()
    rig.commit.commit([], [(0, "all before")], 0)
    assert rig.volume.calls == []

    rig.end(0)

    assert rig.released == [[(0, "all before")]]
