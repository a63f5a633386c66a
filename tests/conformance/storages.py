"""How the suite, and other tests, open our storages and treat them badly."""

from __future__ import annotations

import contextlib
import copy
import errno
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

from gapless.errors import VolumeFailedError, VolumeFullError
from gapless.spi import Create, LogVolume, VolumeIdentity
from gapless_storage._rocksdb import opening, probe, wal, watchdog
from gapless_storage._rocksdb.engine import Database
from gapless_storage._rocksdb.layout import Mark
from gapless_storage.memory import MemoryDisk, MemoryVolume
from gapless_storage.rocksdb import RocksdbVolume, open_storage
from gapless_testing.storage import IDENTITY, StorageHarness

SMALL_BUFFERS = {"write_buffer_bytes": 64 << 10}
"""So that data files, several logs and compactions occur in a short test."""


class MemoryHarness(StorageHarness):
    """A disk in memory."""

    keeps_files = False

    def __init__(self) -> None:
        self.disk = MemoryDisk()

    def open(self, identity: VolumeIdentity = IDENTITY) -> MemoryVolume:
        return self.disk.open(identity)

    def fresh(self) -> MemoryHarness:
        return MemoryHarness()

    def crash(self, volume: LogVolume) -> None:
        self.disk.crash()

    def fail_next_sync(self, volume: LogVolume) -> None:
        self.disk.faults.sync = "lost"

    def fill(self, volume: LogVolume) -> None:
        self.disk.faults.full = True
        close = volume.close

        def close_and_make_room() -> None:
            close()
            self.disk.faults.full = False

        volume.close = close_and_make_room  # type: ignore[method-assign]

    def damage(self, volume: LogVolume, stream: str, index: int, piece: bytes) -> LogVolume:
        self.disk.faults.unreadable.add((stream, index))
        return volume


class RocksdbHarness(StorageHarness):
    """A directory. A power cut is imitated by what a disk may be left with: see `crash`."""

    stores_records_changed = True  # compressed
    watched = True
    """Whether an opening inspects a database that was not closed in a process of its own, as a broker's does."""

    def __init__(self, directory: Path, options: dict[str, Any] | None = None) -> None:
        self.root = directory
        self.options = {"reserve_bytes": 1 << 20} | (options or {})
        self.directory = directory / "volume"
        self._crashes = 0
        self._others = 0

    def open(self, identity: VolumeIdentity = IDENTITY) -> RocksdbVolume:
        return self._open(identity, Create.YES)

    def open_existing(self) -> RocksdbVolume:
        return self._open(IDENTITY, Create.NO)

    def remove(self, volume: LogVolume) -> None:
        shutil.rmtree(self.directory)

    def _open(self, identity: VolumeIdentity, create: Create) -> RocksdbVolume:
        with nullcontext() if self.watched else patch.object(opening, "inspect_within", inspect_here):
            volume = open_storage(str(self.directory), identity, self.options, create)
        self.synced_sizes = log_sizes(self.directory)  # opening syncs
        engine = self.engine(volume)
        sync_log = engine.sync_log

        def noting_sync_log() -> None:
            sizes = log_sizes(self.directory)
            sync_log()
            self.synced_sizes = sizes

        engine.sync_log = noting_sync_log  # type: ignore[method-assign]
        return volume

    @staticmethod
    def engine(volume: LogVolume) -> Database:
        """What is below the volume."""
        assert isinstance(volume, RocksdbVolume)
        return volume._engine

    def fresh(self) -> RocksdbHarness:
        self._others += 1
        other = copy.copy(self)
        other.root = self.root / f"other-{self._others}"
        other.directory = other.root / "volume"
        return other

    def crash(self, volume: LogVolume) -> None:
        """Goes on with a copy in which each log ends where it ended at its last sync.

        RocksDB syncs logs by itself too, before it calls a data file its own: hence what data files hold
        is left in the logs.
        """
        self._crashes += 1
        after = self.root / f"after-crash-{self._crashes}"
        copy_at_rest(self.directory, after)
        flushed = probe.inspect(str(after / "rocksdb"), str(after))
        newest = max(Mark.decode(mark).counter if mark else 0 for mark in flushed)
        for log in (after / "rocksdb").glob("*.log"):
            ends = [end for mark, _, end in wal.marks(log) if mark is not None and mark.counter <= newest]
            with log.open("r+b") as file:
                file.truncate(max([self.synced_sizes.get(log.name, 0), *ends]))
        volume.close()
        self.directory = after

    def fail_next_sync(self, volume: LogVolume) -> None:
        def fail() -> None:
            raise VolumeFailedError("IO error: While fdatasync: 000004.log: Input/output error")

        self.engine(volume).sync_log = fail  # type: ignore[method-assign]

    def fill(self, volume: LogVolume) -> None:
        def fail(batch: object) -> None:
            raise VolumeFullError(f"IO error: No space left on device: {errno.ENOSPC}")

        self.engine(volume).write = fail  # type: ignore[method-assign]


class UncompressedRocksdbHarness(RocksdbHarness):
    """Finds a record in a data file, and small buffers make many of those; the fence follows the receipts."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, {**SMALL_BUFFERS, "compression": "none", "fence": "behind"})

    def damage(self, volume: LogVolume, stream: str, index: int, piece: bytes) -> LogVolume:
        """Closing flushes the record to a data file, in which a byte of it is flipped."""
        volume.close()
        for path in (self.directory / "rocksdb").glob("*.sst"):
            content = bytearray(path.read_bytes())
            if (place := content.find(piece)) >= 0:
                content[place] ^= 1
                path.write_bytes(content)
                return self.open()
        raise AssertionError(f"record {index} is in no data file")


def inspect_here(database: Path, _: float) -> watchdog.Flushed:
    """What is flushed, without a process that could be given up: a file that is damaged may hang this one."""
    return watchdog.Flushed(*probe.inspect(str(database), str(database.parent)))


def copy_at_rest(source: Path, target: Path) -> None:
    """Copies a database whose background work may be removing files: until a copy met no change."""
    while True:
        before = sorted(path.name for path in (source / "rocksdb").iterdir())
        with contextlib.suppress(shutil.Error):
            shutil.copytree(source, target)
            if before == sorted(path.name for path in (source / "rocksdb").iterdir()):
                return
        shutil.rmtree(target, ignore_errors=True)


def log_sizes(directory: Path) -> dict[str, int]:
    """The sizes of RocksDB's log files; one that RocksDB removes meanwhile is left out."""
    sizes = {}
    for path in (directory / "rocksdb").glob("*.log"):
        with contextlib.suppress(FileNotFoundError):
            sizes[path.name] = path.stat().st_size
    return sizes
