"""Groups of commits without a loop (protocol: how-a-write-becomes-durable; T44)."""

from __future__ import annotations

import pytest

from gapless.core.ports import Put
from gapless.errors import VolumeFailedError
from gapless.node.groups import Groups
from volumes import FakeVolume


def committed(groups: Groups, index: int) -> None:
    groups.commit([Put("log", index, b"x")], [(0, index)])


def test_at_most_so_many_syncs_run_and_the_rest_gathers() -> None:
    groups = Groups(FakeVolume(), syncs_max=2)
    begun = []
    for index in range(1, 6):
        committed(groups, index)
        begun.append(groups.next())

    first, second = begun[:2]
    assert begun[2:] == [None, None, None]
    assert first is not None
    assert second is not None
    assert groups.on_synced(first, None) == [(0, 1)]
    last = groups.next()
    assert last is not None
    assert last.cookies == [(0, 3), (0, 4), (0, 5)]


def test_a_sync_that_overtakes_releases_nothing_until_the_earlier_one_has_ended() -> None:
    groups = Groups(FakeVolume())
    committed(groups, 1)
    first = groups.next()
    committed(groups, 2)
    second = groups.next()
    assert first is not None
    assert second is not None

    assert groups.on_synced(second, None) == []
    assert groups.on_synced(first, None) == [(0, 1), (0, 2)]
    assert not groups.busy


def test_after_a_failure_nothing_is_released_and_nothing_begins() -> None:
    groups = Groups(FakeVolume())
    committed(groups, 1)
    first = groups.next()
    committed(groups, 2)
    second = groups.next()
    committed(groups, 3)
    assert first is not None
    assert second is not None

    assert groups.on_synced(first, VolumeFailedError("EIO")) == []
    assert groups.on_synced(second, None) == []
    assert groups.failed
    assert groups.next() is None
    assert not groups.busy


def test_a_write_that_fails_fails_the_groups() -> None:
    volume = FakeVolume()
    volume.write_error = VolumeFailedError("EIO")
    groups = Groups(volume)

    with pytest.raises(VolumeFailedError):
        committed(groups, 1)
    assert groups.failed
