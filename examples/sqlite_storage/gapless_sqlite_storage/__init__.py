"""A storage plugin for gapless that keeps each volume in a SQLite file: `storage = "sqlite"`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gapless.errors import ConfigurationError
from gapless.plugins import hookimpl
from gapless.spi import VolumeIdentity
from gapless_sqlite_storage.volume import SqliteVolume

__all__ = ["SqliteVolume", "open_storage"]


@hookimpl
def open_storage(path: str, identity: VolumeIdentity, options: Mapping[str, Any]) -> SqliteVolume:
    """The volume in the file `path`, created if it is not there.

    Raises ConfigurationError, VolumeLockedError, VolumeForeignError, VolumeCorruptError.
    """
    if options:
        raise ConfigurationError(f"storage option {min(options)!r} is unknown: the SQLite storage has none")
    if not path:
        raise ConfigurationError("the SQLite storage needs a path: a file of its own")
    return SqliteVolume(Path(path).absolute(), identity)
