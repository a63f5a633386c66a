"""Room that a volume keeps aside on its disk: what it needs to get out of a full one.

To open a volume whose process was killed takes space: what its log holds goes to data files before the log may go.
So do subscriptions that acknowledge, and the giving back of what is released. On a disk that is full there would be
none of it, and no way out. So a file lies in the volume that holds nothing, and is deleted when space is short.

What the file lacks is not free: `RocksdbVolume.free_bytes` counts it as taken, so publishers wait until it is whole.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gapless import loggers
from gapless_storage._rocksdb.files import open_private

_LOGGER = loggers.logger("gapless.storage.rocksdb")
_CHUNK_BYTES = 1 << 20


class Reserve:
    """The file. One thread at a time changes it."""

    def __init__(self, directory: Path, size: int) -> None:
        """`size`: how many bytes it has when it is whole."""
        self._directory = directory
        self._path = directory / "reserve"
        self._size = size
        self._in_use = False

    @property
    def free_bytes(self) -> int:
        """What is free beyond what the reserve lacks."""
        return max(0, self._disk_free() - max(0, self._size - self._has()))

    def take(self) -> None:
        """Makes it whole. Raises OSError when there is no room, and leaves what there was."""
        has = self._has()
        if has > self._size:
            os.truncate(self._path, self._size)
        if has >= self._size:
            return
        try:
            with open(self._path, "ab", buffering=0, opener=open_private) as file:
                self._allocate(file.fileno(), has)
        except OSError:
            if has:
                os.truncate(self._path, has)
            else:
                self.give_up()
            raise

    def give_up(self) -> None:
        """Gives all of it back to the disk."""
        self._path.unlink(missing_ok=True)

    def give_up_if_needed(self) -> None:
        """Before the volume is opened: less room than that may not be enough to replay a log."""
        if self._has() and self._disk_free() < self._size:
            _LOGGER.warning("%s: little space is left, so the reserve is used to open the volume", self._directory)
            self.give_up()

    @contextmanager
    def used_for(self, needed: int) -> Iterator[bool]:
        """Within, space is given back, and that takes as much first as is needed. Gives whether there is so much."""
        self._in_use = True
        try:
            if self._disk_free() < 2 * needed + self._size // 4:
                self.give_up()
            yield self._disk_free() >= needed
        finally:
            self._in_use = False

    def tend(self) -> None:
        """Gives it up when hardly anything else is left, takes it back when it does not lead to that."""
        has, free = self._has(), self._disk_free()
        if self._in_use:
            return
        if has and free < self._size // 4:
            _LOGGER.warning("%s: %d bytes are left on its disk, so the reserve is used", self._directory, free)
            self.give_up()
        elif has != self._size and free + has >= self._size + self._size // 2:
            self.take()
            _LOGGER.debug("%s: a reserve of %d bytes is kept aside", self._directory, self._size)

    def _has(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0

    def _disk_free(self) -> int:
        return shutil.disk_usage(self._directory).free

    def _allocate(self, descriptor: int, has: int) -> None:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, has, self._size - has)
            return
        while has < self._size:  # a hole would keep nothing aside
            has += os.write(descriptor, bytes(min(_CHUNK_BYTES, self._size - has)))
