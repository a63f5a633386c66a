"""The fence: which batch was durable last, in a small file outside RocksDB, with a sync of its own.

RocksDB recovers what it finds, and cannot know what it should have found: a log that was cut between two
records, a deleted log or a MANIFEST with one flipped bit open as an older or an empty database. The fence
knows. Nothing is called durable before the fence says so; what opens behind its fence is not served.

A fence may also follow a receipt (`FenceFollower`): then what was receipted last may be missing without being missed,
on a disk that loses what it had synced.

The file has two slots of one sector each, which are written in turn: a torn write spoils the slot being
written, and the other still holds what was durable before.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from gapless.errors import StorageError, VolumeCorruptError, VolumeForeignError
from gapless_storage._rocksdb.files import replace_file, sync_file
from gapless_storage._rocksdb.layout import MARK_BYTES, Mark

_MAGIC = b"gapless fence 1\n"
_SLOT_BYTES = 4096
_FILE_BYTES = 2 * _SLOT_BYTES


class Fence:
    """An open fence. One thread at a time advances it; others may look meanwhile whether it is still ours."""

    def __init__(self, path: Path) -> None:
        """Raises VolumeCorruptError when the file is missing, or when no slot of it can be read."""
        self._path = path
        self._lock = threading.Lock()  # the file and its image change together
        try:
            self._descriptor = os.open(path, os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0))
        except FileNotFoundError as error:
            raise VolumeCorruptError(f"the fence {path} is missing, so nobody can tell what else is") from error
        try:
            self._image = bytearray(self._read())
            self._slot, newest = self._newest()
        except BaseException:
            self.close()
            raise
        self.mark = newest
        """Up to here everything was durable."""

    @staticmethod
    def create(path: Path, mark: Mark) -> None:
        """Makes the file, durably, with this mark in it."""
        replace_file(path, (_MAGIC + mark.encode()).ljust(_FILE_BYTES, b"\0"))

    def advance(self, mark: Mark) -> None:
        """Blocks until the file says `mark`. Never goes back.

        Raises OSError when it cannot be written, and VolumeForeignError when somebody else has written it:
        then the lock on the directory was lost, and a newer owner goes on from here.
        """
        assert (mark.generation, mark.counter) > (self.mark.generation, self.mark.counter)
        slot = 1 - self._slot
        encoded = _MAGIC + mark.encode()
        offset = slot * _SLOT_BYTES
        with self._lock:
            self._check_owner()
            os.lseek(self._descriptor, offset, os.SEEK_SET)
            written = os.write(self._descriptor, encoded)
            self._image[offset : offset + written] = encoded[:written]  # ours, whatever becomes of its sync
        if written != len(encoded):
            raise OSError(f"{self._path} was written in part")
        sync_file(self._descriptor)
        self._slot, self.mark = slot, mark

    def check_owner(self) -> None:
        """Raises VolumeForeignError when somebody else has written the file since we did. Waits for no sync."""
        with self._lock:
            self._check_owner()

    def _check_owner(self) -> None:
        if self._read() != self._image:
            raise VolumeForeignError(f"{self._path} was written by somebody else: this volume has a newer owner")

    def close(self) -> None:
        """Lets go of the file. Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self) -> bytes:
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        return os.read(self._descriptor, _FILE_BYTES + 1)

    def _newest(self) -> tuple[int, Mark]:
        found = [(mark, slot) for slot in (0, 1) if (mark := self._mark_in(slot)) is not None]
        if not found or len({mark.volume for mark, _ in found}) > 1:
            raise VolumeCorruptError(f"the fence {self._path} is garbled, so nobody can tell what is missing")
        mark, slot = max(found, key=lambda pair: (pair[0].generation, pair[0].counter))
        return slot, mark

    def _mark_in(self, slot: int) -> Mark | None:
        start = slot * _SLOT_BYTES
        encoded = bytes(self._image[start : start + len(_MAGIC) + MARK_BYTES])
        if not encoded.startswith(_MAGIC):
            return None
        try:
            return Mark.decode(encoded[len(_MAGIC) :])
        except ValueError:
            return None


FOLLOWING_SECONDS = 0.01
"""So long a fence that follows waits for more, so that one write covers all. With its sync it is within 20 ms."""


class FenceFollower:
    """The thread that advances a fence behind the receipts."""

    def __init__(self, advance: Callable[[], None]) -> None:
        """`advance`: blocks until the fence says what is synced. What it raises ends the thread."""
        self._advance = advance
        self._due = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gapless-fence", daemon=True)
        self._thread.start()

    def follow(self) -> None:
        """The log was synced: the fence is due."""
        if not self._due.is_set():  # it is most of the time, and to set it takes a lock
            self._due.set()

    def stop(self) -> None:
        """Ends the thread; the fence may not have followed yet."""
        self._stopped.set()
        self._due.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self._due.wait()
            if self._stopped.wait(FOLLOWING_SECONDS):
                return
            self._due.clear()
            if self._stopped.is_set():  # what was cleared may have been the call of `stop`
                return
            try:
                self._advance()
            except StorageError:  # noted by whoever raised it: the volume takes no more calls
                return
