"""A gapless volume in one SQLite file. See the README for how it keeps the contract."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gapless.errors import ConfigurationError
from gapless.plugins import hookimpl
from gapless.spi import Create, LogVolume, VolumeIdentity
from gapless_sqlite_storage.volume import SqliteVolume


@hookimpl
def open_storage(path: str, identity: VolumeIdentity, options: Mapping[str, Any], create: Create) -> LogVolume:
    """The volume in the directory `path`, made if it is not there and may be. There are no options."""
    if options:
        raise ConfigurationError(f"the storage 'sqlite' has no option {min(options)!r}")
    return SqliteVolume(Path(path), identity, create)
