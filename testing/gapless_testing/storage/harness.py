"""What a storage plugin's author tells the suite: how to open a volume, and how to make it suffer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from gapless.spi import LogVolume, VolumeIdentity

IDENTITY = VolumeIdentity("test-network", "test-node")
"""Who the suite's volumes belong to."""


class StorageHarness:
    """One volume's place, and ways to treat it badly. `open` and `fresh` are a must.

    Override the others as far as your storage allows: what is not overridden is skipped. Set
    `outlives_close` to False if a volume that is closed and opened again is empty, and `chops_at_once` to True
    if what is chopped leaves nothing for `reclaim` to give back.
    """

    outlives_close = True
    chops_at_once = False

    def open(self, identity: VolumeIdentity = IDENTITY) -> LogVolume:
        """Opens the volume at this harness's place, making it the first time. Raises what the plugin raises."""
        raise NotImplementedError("override StorageHarness.open")

    def open_existing(self) -> LogVolume:
        """Opens the volume with `Create.NO`: it must be there already."""
        raise NotImplementedError

    def remove(self, volume: LogVolume) -> None:
        """Takes the files of an open volume away beneath it."""
        raise NotImplementedError

    def fresh(self) -> StorageHarness:
        """Another harness, with a place of its own where nothing was ever written."""
        raise NotImplementedError("override StorageHarness.fresh")

    def crash(self, volume: LogVolume) -> None:
        """Ends `volume` as a power cut would. What was not synced may be gone; what was, the next `open` finds."""
        raise NotImplementedError

    def fail_next_sync(self, volume: LogVolume) -> None:
        """Makes the volume's next `sync` fail, as a disk does that cannot write."""
        raise NotImplementedError

    def fill(self, volume: LogVolume) -> None:
        """Makes the disk full: the volume's next `write` or `sync` fails. The next `open` finds room again."""
        raise NotImplementedError

    def damage(self, volume: LogVolume, stream: str, index: int) -> LogVolume:
        """Spoils a record that was synced, where it is stored. Returns the volume, reopened if need be."""
        raise NotImplementedError


def need(harness: StorageHarness, *abilities: str) -> None:
    """Skips the test unless the harness overrides these methods."""
    for ability in abilities:
        if getattr(type(harness), ability) is getattr(StorageHarness, ability):
            pytest.skip(f"{type(harness).__name__} has no {ability}()")


def need_reopening(harness: StorageHarness) -> None:
    """Skips the test for storages whose volumes end with their closing."""
    if not harness.outlives_close:
        pytest.skip(f"a closed volume of {type(harness).__name__} is gone")


class HarnessFixtures:
    """The fixtures of every part of the suite."""

    @pytest.fixture
    def harness(self) -> StorageHarness:
        """What is tested. Override it."""
        raise NotImplementedError("override the fixture `harness` to return your StorageHarness")

    @pytest.fixture
    def volume(self, harness: StorageHarness) -> Iterator[LogVolume]:
        """A new volume."""
        with closing(harness.open()) as volume:
            yield volume


def indexes(records: object) -> list[int]:
    """The indexes of what a read returned."""
    assert isinstance(records, (list, tuple)), f"a read returns a list or tuple, not {type(records).__name__}"
    return [index for index, _ in records]


def lacks(part: object, protocol: type) -> list[str]:
    """What a part of a storage does not have of a protocol, whether of its own or by handing it on.

    `isinstance` is no judge: since Python 3.12 it does not see what `__getattr__` hands on.
    """
    names = dict.fromkeys([*vars(protocol), *protocol.__annotations__])
    return [name for name in names if not name.startswith("_") and not hasattr(part, name)]
