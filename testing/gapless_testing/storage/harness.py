"""What a storage plugin's author tells the suite: how to open a volume, and how to make it suffer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from gapless.spi import LogVolume, VolumeIdentity

IDENTITY = VolumeIdentity("test-network", "test-node")
"""Who the suite's volumes belong to."""


class StorageHarness:
    """One volume's place, and ways to treat it badly. `open` and `fresh` are a must.

    Override the others as far as your storage allows: where there is nothing to go by, tests are skipped and say so.
    Power cuts and damage have a default for storages that keep files. A harness is made again in other processes:
    its class stands at the top of a module, and its fields are plain values and paths.
    """

    outlives_close = True
    """False if a volume that is closed and opened again is empty."""
    chops_at_once = False
    """True if what is chopped leaves nothing for `reclaim` to give back."""
    keeps_files = True
    """False if there are none that this machine's processes write: in memory, or in a server elsewhere."""
    stores_records_changed = False
    """True if no file holds a record's bytes as they were put: they are compressed or encrypted."""
    place: Path | None = None
    """The directory below which the volume's files are. None: below the test's `tmp_path`."""

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
        """Ends `volume` as a power cut would. What was not synced may be gone; what was, the next `open` finds.

        Not overridden, the volume is opened in a process of its own, under a shim that keeps what was synced.
        """
        raise NotImplementedError

    def fail_next_sync(self, volume: LogVolume) -> None:
        """Makes the volume's next `sync` fail, as a disk does that cannot write."""
        raise NotImplementedError

    def fill(self, volume: LogVolume) -> None:
        """Makes the disk full: the volume's next `write` or `sync` fails. The next `open` finds room again."""
        raise NotImplementedError

    def damage(self, volume: LogVolume, stream: str, index: int, piece: bytes) -> LogVolume:
        """Spoils `piece` of a record that was synced, where it is stored. Returns the volume, reopened if need be.

        No other record has these bytes. Not overridden, the volume is closed, and a bit of them is turned in each file
        in which they are found: override it if records are compressed or encrypted.
        """
        volume.close()
        spoilt = 0
        for path in files_below(self.place):
            content = bytearray(path.read_bytes())
            at = content.find(piece)
            while at >= 0:
                content[at + len(piece) // 2] ^= 1
                spoilt += 1
                at = content.find(piece, at + 1)
            path.write_bytes(content)
        if not spoilt:
            pytest.skip(
                f"{type(self).__name__} has no damage(), and no file below {self.place} holds a record as it was put"
            )
        return self.open()


def files_below(place: Path | None) -> list[Path]:
    """All files of a volume."""
    assert place is not None
    return sorted(path for path in place.rglob("*") if path.is_file() and not path.is_symlink())


def overrides(harness: StorageHarness, ability: str) -> bool:
    """Whether a harness has a method of its own."""
    return getattr(type(harness), ability) is not getattr(StorageHarness, ability)


def need(harness: StorageHarness, *abilities: str) -> None:
    """Skips the test unless the harness overrides these methods."""
    for ability in abilities:
        if not overrides(harness, ability):
            pytest.skip(f"{type(harness).__name__} has no {ability}()")


def need_files(harness: StorageHarness) -> None:
    """Skips the test for storages that keep no files, and so have nothing that another process could see."""
    if not harness.keeps_files:
        pytest.skip(f"{type(harness).__name__} keeps no files")


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

    @pytest.fixture(autouse=True)
    def _placed(self, harness: StorageHarness, tmp_path: Path) -> None:
        if harness.place is None:
            harness.place = tmp_path

    @pytest.fixture
    def volume(self, harness: StorageHarness) -> Iterator[LogVolume]:
        """A new volume."""
        with closing(harness.open()) as volume:
            yield volume


def same(found: Iterable[object], expected: Iterable[object], what: str) -> None:
    """Asserts that two sequences are the same, and says in a line what is missing, too much, or in another order."""
    came, wanted = list(found), list(expected)
    if came == wanted:
        return
    missing = [item for item in wanted if item not in came]
    surplus = [item for item in came if item not in wanted]
    parts = [f"missing {_some(missing)}"] * bool(missing) + [f"not expected {_some(surplus)}"] * bool(surplus)
    raise AssertionError(
        f"{what}: {len(came) - len(surplus)} of {len(wanted)} are there, "
        + ("; ".join(parts) or f"in another order, or twice: {_some(came)} instead of {_some(wanted)}")
    )


def _some(items: Sequence[object]) -> str:
    shown = ", ".join(_short(item) for item in items[:5])
    return shown if len(items) <= 5 else f"{shown}, … {_short(items[-1])} ({len(items)} in all)"


def _short(item: object) -> str:
    text = repr(item)
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text)} characters)"


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
