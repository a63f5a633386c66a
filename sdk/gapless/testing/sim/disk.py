"""The disks of the simulated brokers: the storage `memory`, whose disk outlives a crash and can fail.

A disk is reached by its plugin's name, as a node reaches its storage. Whoever wants another storage under
the simulator gives a `Disk` of his own.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

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
        """What goes wrong next: "sync" or "write" (how: its batches are "kept" or "lost"), or "full"."""

    def heal(self) -> None:
        """Nothing goes wrong any more."""

    def copy(self) -> object:
        """What an operator keeps of it."""

    def restore(self, copy: object) -> None:
        """The copy takes the place of what is on it."""


class MemoryDisks:
    """Makes the disks of a run."""

    def __init__(self) -> None:
        self._module: Any = import_module("gapless_storage.memory")

    def disk(self) -> Disk:
        """A new, empty one."""
        return SimDisk(self._module.MemoryDisk(durable=True))


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
        self.disk.crash(self.disk.unsynced)

    def cut_power(self, keep: int) -> None:
        """The power is gone."""
        self.disk.crash(keep)

    def fail(self, what: str, how: str) -> None:
        """What goes wrong next."""
        setattr(self.disk.faults, what, True if what == "full" else how)

    def heal(self) -> None:
        """Nothing goes wrong any more."""
        faults = self.disk.faults
        faults.full = False
        faults.sync = faults.write = ""

    def copy(self) -> object:
        """What an operator keeps of it."""
        return self.disk.copy()

    def restore(self, copy: object) -> None:
        """The copy takes its place."""
        self.disk.restore(copy)
