"""The storage in memory: for tests, examples and the simulator. Fast, and honest about what it is.

The data lives in a `MemoryDisk`, which outlives the volume that is open on it; see there what may happen to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gapless.errors import ConfigurationError
from gapless.plugins import hookimpl
from gapless.spi import VolumeIdentity
from gapless_storage.memory_disk import DiskFaults, MemoryDisk, MemoryStream, MemoryTable, MemoryVolume

__all__ = ["DiskFaults", "MemoryDisk", "MemoryStream", "MemoryTable", "MemoryVolume", "disk", "forget", "open_storage"]

_disks: dict[str, MemoryDisk] = {}


def disk(name: str) -> MemoryDisk:
    """The disk of that name in this process, made if there is none. It lives until `forget`."""
    return _disks.setdefault(name, MemoryDisk())


def forget(name: str) -> None:
    """Drops the disk of that name and all that is on it. An unknown name is no error."""
    _disks.pop(name, None)


@hookimpl
def open_storage(path: str, identity: VolumeIdentity, options: Mapping[str, Any]) -> MemoryVolume:
    """The volume in memory named `path`, which outlives its closing; "": a private one, which does not.

    What is in memory is new in every process: it is made without having to be allowed.

    Raises ConfigurationError (it has no options), VolumeLockedError, VolumeForeignError.
    """
    if options:
        raise ConfigurationError(f"storage option {min(options)!r} is unknown: the memory storage has none")
    return (disk(path) if path else MemoryDisk()).open(identity)
