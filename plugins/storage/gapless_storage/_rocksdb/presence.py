"""Whether an open volume is still where it was opened.

A directory can be removed, replaced or unmounted beneath whoever has its files open. Writes and syncs go on well
then, into files that nobody will find again: so each sync asks, before anything is called durable.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

from gapless.errors import StorageError, VolumeAbsentError
from gapless_storage._rocksdb.files import storage_error
from gapless_storage._rocksdb.wal import log_files

_File: TypeAlias = "tuple[int, int]"
_Place: TypeAlias = "tuple[int, int, int]"

_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ESTALE, errno.ENODEV, errno.ENXIO}


class Presence:
    """What was there when the volume was opened. Any thread may ask."""

    def __init__(self, directory: Path, database: Path, files: Iterable[Path]) -> None:
        """`files`: those that stay the same for as long as the volume is open."""
        self._directory = directory
        self._database = database
        self._directories = str(directory), str(database)
        self._files = {path: _file(path) for path in files}
        self._newest_log = self._find_newest_log()
        self._seen: list[_Place] = []

    def check(self, *, thoroughly: bool) -> None:
        """Raises VolumeAbsentError when something is gone, or another one is in its place.

        Not `thoroughly`, no more is asked than whether a name was put into the directories or taken from them. A clock
        that is too coarse for two changes may hide the second one; who asks once a second asks thoroughly.
        """
        try:
            places = [(status.st_dev, status.st_ino, status.st_mtime_ns) for status in map(os.stat, self._directories)]
            if places == self._seen and not thoroughly:
                return
            for path, file in self._files.items():
                if _file(path) != file:
                    raise self._absence(f"another file is in the place of its {path.name}")
            self._check_log()
            self._seen = places
        except OSError as error:
            raise self._meaning(error) from error

    def _check_log(self) -> None:
        """RocksDB never goes back to an older log, and never removes its newest one."""
        # One that is made while the names are read may not be among them; the second time it is.
        newest = self._find_newest_log()
        if newest < self._newest_log:
            newest = self._find_newest_log()
        if newest < self._newest_log:
            raise self._absence("its newest log is gone")
        self._newest_log = newest

    def _find_newest_log(self) -> int:
        logs = log_files(self._database)
        return int(logs[-1].stem) if logs else 0

    def _meaning(self, error: OSError) -> StorageError:
        if error.errno in _GONE:
            return self._absence(f"{error.strerror}: {error.filename}")
        return storage_error(error, f"{self._directory} cannot be looked at")

    def _absence(self, why: str) -> VolumeAbsentError:
        return VolumeAbsentError(
            f"the volume in {self._directory} was removed, replaced or unmounted beneath the broker ({why}): nothing "
            "is receipted any more. Bring it back, and start the broker again"
        )


def _file(path: Path) -> _File:
    status = path.stat()
    return status.st_dev, status.st_ino
