"""The disks of the simulated brokers: the storage `memory`, whose disk outlives a crash and can fail.

The plugin is reached by its name, as a node reaches its storage. Another storage gets under the simulator
as a `DirectoryDisk`, or as whatever else behaves like a `Disk`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from gapless.spi import Create

if TYPE_CHECKING:
    from gapless.spi import LogVolume, VolumeIdentity


class Disk(Protocol):
    """What a broker's volume lives on: it outlives the process, and loses what the power takes."""

    @property
    def written(self) -> int:
        """How many batches were written, synced or not."""

    @property
    def unsynced(self) -> int:
        """How many of them a loss of power would take."""

    def open(self, identity: VolumeIdentity) -> LogVolume:
        """The volume on it. Raises what a storage plugin raises."""

    def sync(self, volume: LogVolume, upto: int) -> None:
        """A sync that began when so many batches were written ends. Raises VolumeFailedError."""

    def kill(self) -> None:
        """The process is gone; what it wrote is not."""

    def cut_power(self, keep: int) -> None:
        """The process and the power are gone, and all unsynced batches but the first `keep`."""

    def fail(self, what: str, how: str) -> None:
        """What goes wrong next: "sync" or "write" (how: its batches are "kept" or "lost"), or "full".

        How it is full: "writes" fail, or "syncs too".
        """

    def heal(self) -> None:
        """Nothing goes wrong any more."""

    def copy(self) -> object:
        """What an operator keeps of it."""

    def restore(self, copy: object) -> None:
        """The copy takes the place of what is on it."""


def memory_disk() -> Disk:
    """A new, empty one."""
    return SimDisk(import_module("gapless_storage.memory").MemoryDisk(durable=True))


class SimDisk:
    """A disk in memory that stands for a durable one."""

    def __init__(self, disk: Any) -> None:
        self.disk = disk
        """The `MemoryDisk`, whose `faults` say what goes wrong."""

    @property
    def written(self) -> int:
        """How many batches were written, synced or not."""
        return cast("int", self.disk.written)

    @property
    def unsynced(self) -> int:
        """How many of them a loss of power would take."""
        return cast("int", self.disk.unsynced)

    def open(self, identity: VolumeIdentity) -> LogVolume:
        """The volume on it."""
        return cast("LogVolume", self.disk.open(identity))

    def sync(self, volume: Any, upto: int) -> None:
        """A sync ends."""
        volume.sync(upto)

    def kill(self) -> None:
        """The process is gone; the operating system has what it wrote."""
        self.disk.kill()

    def cut_power(self, keep: int) -> None:
        """The power is gone."""
        self.disk.crash(keep)

    def fail(self, what: str, how: str) -> None:
        """What goes wrong next."""
        faults = self.disk.faults
        if what == "full":
            faults.full = True
            faults.full_syncs = how == "syncs too"
        else:
            setattr(faults, what, how)

    def heal(self) -> None:
        """Nothing goes wrong any more."""
        faults = self.disk.faults
        faults.full = faults.full_syncs = False
        faults.sync = faults.write = ""

    def copy(self) -> object:
        """What an operator keeps of it."""
        return self.disk.copy()

    def restore(self, copy: object) -> None:
        """An old copy of the database; the fence beside it knows better."""
        self.disk.restore(copy, "database")


class DirectoryDisk:
    """A storage plugin that keeps its volume in a directory, as a simulated disk.

    The end of the process leaves the files as they are, the end of the power as they were at the last sync.
    Its own faults are not simulated: leave the kind "disk" out.
    """

    written = unsynced = 0

    def __init__(self, open_storage: Callable[..., LogVolume], directory: Path) -> None:
        """`directory` must not exist yet."""
        self._open_storage = open_storage
        self._files = directory / "volume"
        self._synced = directory / "synced"
        self._volume: LogVolume | None = None
        self._files.mkdir(parents=True)
        self._synced.mkdir()

    def open(self, identity: VolumeIdentity) -> LogVolume:
        """The volume in the directory."""
        path = str(self._files / "data")
        self._volume = self._open_storage(path=path, identity=identity, options={}, create=Create.WHERE_NOTHING_IS)
        return self._volume

    def sync(self, volume: LogVolume, upto: int) -> None:
        """A sync ends; what there is now will survive."""
        volume.sync()
        _put(self._files, self._synced)

    def kill(self) -> None:
        """The files stay as they are, whatever closing the volume would do to them."""
        held = self._files.with_name("held")
        _put(self._files, held)
        self._let_go()
        _put(held, self._files)

    def cut_power(self, keep: int) -> None:
        """The files are as they were at the last sync."""
        self._let_go()
        _put(self._synced, self._files)

    def fail(self, what: str, how: str) -> None:
        """Nothing goes wrong with it."""

    def heal(self) -> None:
        """Nothing went wrong with it."""

    def copy(self) -> object:
        """No copies are kept of it."""
        return None

    def restore(self, copy: object) -> None:
        """No copies were kept of it."""

    def _let_go(self) -> None:
        if self._volume is not None:
            self._volume.close()
            self._volume = None


def _put(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
