"""The disks of the simulated brokers: the storage `memory`, whose disk outlives a crash and can fail.

The plugin is reached by its name, as a node reaches its storage. Another storage gets under the simulator
as a `DirectoryDisk`, or as whatever else behaves like a `Disk`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from gapless.errors import RecordsDamagedError
from gapless.spi import Create

if TYPE_CHECKING:
    from gapless.spi import LogStream, LogVolume, VolumeIdentity


_PIECE = 1 << 24
"""So many bytes of a file are copied at a time."""
_COPIES_MAX = 1_000
"""So often a directory is copied in which something changes meanwhile."""


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

    def spoil(self, stream: str, index: int) -> None:
        """A durable record cannot be read any more, until it is given up."""

    @property
    def spoilt(self) -> bool:
        """Whether there is something that cannot be read."""

    def repair(self, identity: VolumeIdentity) -> Sequence[tuple[str, int, int]]:
        """Gives up what cannot be read, as `gapless repair` does: these streams, and of each the range (after, upto].

        Raises what a storage plugin raises.
        """

    def heal(self) -> None:
        """Nothing goes wrong any more; what cannot be read stays so."""

    def copy(self) -> object:
        """What an operator keeps of it."""

    def restore(self, copy: object) -> None:
        """The copy takes the place of what is on it."""

    def duplicate(self) -> Disk:
        """Another disk with the same on it, for another process."""


def memory_disk(*, durable: bool = True) -> Disk:
    """A new, empty one. `durable`: what its volumes say of themselves; it keeps what was synced in any case."""
    return SimDisk(import_module("gapless_storage.memory").MemoryDisk(durable=durable))


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

    def spoil(self, stream: str, index: int) -> None:
        """A record cannot be read any more."""
        self.disk.faults.unreadable.add((stream, index))

    @property
    def spoilt(self) -> bool:
        """Whether there is such a record."""
        return bool(self.disk.faults.unreadable)

    def repair(self, identity: VolumeIdentity) -> Sequence[tuple[str, int, int]]:
        """First the volume remembers what is lost; then that goes from the disk."""
        volume = self.open(identity)
        try:
            holes = [(name, *hole) for name in volume.stream_names() for hole in _holes(volume.stream(name))]
            for name, after, upto in holes:
                volume.stream(name).give_up(after, upto)
            volume.write()
            volume.sync()
            volume.excise()
        finally:
            volume.close()
        return holes

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

    def duplicate(self) -> Disk:
        """Another disk with the same on it."""
        return SimDisk(self.disk.copy())


class DirectoryDisk:
    """A storage plugin that keeps its volume in a directory, as a simulated disk.

    The end of the process leaves the files as they are, the end of the power as they were at the last sync.
    Its own faults are not simulated: leave the kind "disk" out.
    """

    written = unsynced = 0
    spoilt = False

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
        return cast("LogVolume", _Noticed(self._volume, lambda: _put(self._files, self._synced)))

    def sync(self, volume: LogVolume, upto: int) -> None:
        """A sync ends; what there is now will survive."""
        volume.sync()

    def kill(self) -> None:
        """The files stay as they are, whatever closing the volume would do to them."""
        held = self._files.with_name("held")
        _put(self._files, held)
        self.close()
        _put(held, self._files)

    def cut_power(self, keep: int) -> None:
        """The files are as they were at the last sync."""
        self.close()
        _put(self._synced, self._files)

    def fail(self, what: str, how: str) -> None:
        """Nothing goes wrong with it."""

    def spoil(self, stream: str, index: int) -> None:
        """Nor is any record damaged."""

    def repair(self, identity: VolumeIdentity) -> Sequence[tuple[str, int, int]]:
        """So there is nothing to be given up."""
        return ()

    def heal(self) -> None:
        """Nothing went wrong with it."""

    def copy(self) -> object:
        """No copies are kept of it."""
        return None

    def restore(self, copy: object) -> None:
        """No copies were kept of it."""

    def duplicate(self) -> Disk:
        """An empty one: of files that a process has open no copy is taken."""
        return memory_disk()

    def close(self) -> None:
        """Lets go of the volume; the files stay."""
        if self._volume is not None:
            self._volume.close()
            self._volume = None


class _Noticed:
    """A volume of which somebody hears when it is synced, by whomever: a start, a group commit, an orderly end."""

    def __init__(self, volume: LogVolume, on_synced: Callable[[], None]) -> None:
        self._volume = volume
        self._on_synced = on_synced

    def __getattr__(self, name: str) -> Any:
        return getattr(self._volume, name)

    def sync(self) -> None:
        self._volume.sync()
        self._on_synced()

    def close(self) -> None:
        """A volume that can syncs when it is closed."""
        self._volume.close()
        self._on_synced()


def _holes(stream: LogStream) -> Iterator[tuple[int, int]]:
    """The ranges (after, upto] that cannot be read, and were not given up."""
    after = stream.first
    while after < stream.last:
        try:
            after = stream.read(after, stream.last)[-1][0]
        except RecordsDamagedError as error:
            if not error.given_up:
                yield error.after, error.upto
            after = error.upto


def _put(source: Path, target: Path) -> None:
    """Puts a directory in another one's place, as it is at one moment: threads of a storage may be at work in it."""
    problem: Exception | None = None
    for _ in range(_COPIES_MAX):
        shutil.rmtree(target, ignore_errors=True)
        try:
            before = _state(source)
            shutil.copytree(source, target, copy_function=_copy)
            if _state(source) == before:
                return
        except (shutil.Error, FileNotFoundError) as error:
            problem = error
    raise OSError(f"{source} was never the same before and behind {_COPIES_MAX} attempts to copy it") from problem


def _state(directory: Path) -> dict[str, tuple[int, int, int]]:
    """What tells whether something in a directory has changed."""
    states = ((str(path), path.stat()) for path in directory.rglob("*"))
    return {path: (state.st_ino, state.st_size, state.st_mtime_ns) for path, state in states}


def _copy(source: str, target: str) -> None:
    """Copies a file without its holes: a storage may keep much room aside, and it is copied at each sync."""
    if not hasattr(os, "SEEK_DATA"):
        shutil.copy2(source, target)
        return
    with Path(source).open("rb", buffering=0) as old, Path(target).open("wb", buffering=0) as new:
        size = os.fstat(old.fileno()).st_size
        new.truncate(size)
        at = 0
        while at < size:
            try:
                begin = old.seek(at, os.SEEK_DATA)
            except OSError:  # there is nothing but a hole
                break
            end = old.seek(begin, os.SEEK_HOLE)
            old.seek(begin)
            new.seek(begin)
            at = begin + new.write(old.read(min(end - begin, _PIECE)))
    shutil.copystat(source, target)
