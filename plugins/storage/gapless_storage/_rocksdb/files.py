"""Files that survive a power cut, and a lock on a directory."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import threading
from pathlib import Path
from typing import ClassVar

from gapless import descriptors, loggers
from gapless.errors import (
    DescriptorsExhaustedError,
    StorageError,
    VolumeFailedError,
    VolumeFullError,
    VolumeLockedError,
)

if sys.platform != "win32":
    import fcntl


_LOGGER = loggers.logger("gapless.storage.rocksdb")

PRIVATE_DIRECTORY = 0o700
PRIVATE_FILE = 0o600

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def storage_error(error: OSError, what: str) -> StorageError:
    """What an error of the operating system means for the volume."""
    if error.errno in {errno.EMFILE, errno.ENFILE}:
        return DescriptorsExhaustedError(no_descriptors(f"{what}: {error}"))
    kind = VolumeFullError if error.errno in _FULL else VolumeFailedError
    return kind(f"{what}: {error}")


def no_descriptors(text: str) -> str:
    """What to do when no file can be opened any more. It is no failure of the disk."""
    return (
        f"no file descriptor is left to open a file with, of {descriptors.limit()} that this process may have: raise"
        f" that limit (ulimit -n), or have it open fewer files and connections ({text})"
    )


def sync_file(descriptor: int) -> None:
    """Blocks until the content of an open file is on disk. Releases the GIL meanwhile."""
    if sys.platform == "darwin":  # fsync there leaves it in the drive's cache
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    elif sys.platform == "win32":
        os.fsync(descriptor)
    else:
        os.fdatasync(descriptor)


def sync_directory(directory: Path) -> None:
    """Blocks until the names in a directory are on disk."""
    if sys.platform != "win32":  # which has no such call, and needs none
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def make_directory(directory: Path) -> None:
    """Makes a directory that only its owner may enter, and what is missing above it, durably.

    One that exists is no error.
    """
    if not directory.exists():
        _make_above(directory.parent)
        directory.mkdir(PRIVATE_DIRECTORY, exist_ok=True)
        sync_directory(directory.parent)


def _make_above(directory: Path) -> None:
    if not directory.exists():
        _make_above(directory.parent)
        directory.mkdir(exist_ok=True)
        sync_directory(directory.parent)


def make_private(directory: Path) -> None:
    """Takes a directory, and all that is in it, from everybody but its owner. Says so, also when it cannot.

    Records and secrets are in it. What RocksDB makes later has the modes that the process's umask leaves; the
    directory keeps others out all the same.
    """
    if sys.platform == "win32":  # which has no such modes
        return
    opened, was_open = 0, stat.S_IMODE(directory.stat().st_mode) & ~PRIVATE_DIRECTORY != 0
    for path in (directory, *directory.rglob("*")):
        try:
            mode = stat.S_IMODE(path.lstat().st_mode)
            if mode & ~PRIVATE_DIRECTORY and not path.is_symlink():
                path.chmod(mode & PRIVATE_DIRECTORY)
                opened += 1
        except FileNotFoundError:
            continue
        except OSError as error:
            _LOGGER.warning("%s is open to other users, and cannot be closed to them: %s", path, error)
            return
    if was_open:
        _LOGGER.warning("%s and %d files in it were open to other users, and are no longer", directory, opened)


def open_private(path: str, flags: int) -> int:
    """An opener: a file that is made is for its owner only."""
    return os.open(path, flags, PRIVATE_FILE)


def replace_file(path: Path, content: bytes) -> None:
    """Puts a file there whole: after a power cut it is the old one or the new one."""
    temporary = path.with_name(f"{path.name}.new")
    with open(temporary, "wb", opener=open_private) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_directory(path.parent)


class DirectoryLock:
    """Keeps others out of a directory for as long as this process lives, or until `release`.

    RocksDB has a lock too, but takes it late: by then it has rewritten a file of its owner. POSIX record
    locks are not inherited by a fork, which is wanted, and do not keep the same process out, so those
    directories that this process holds are remembered.
    """

    _held: ClassVar[set[Path]] = set()
    _held_guard: ClassVar = threading.Lock()

    def __init__(self, directory: Path) -> None:
        """Raises VolumeLockedError when somebody holds the directory."""
        self._directory = directory.resolve()
        with self._held_guard:
            if self._directory in self._held:
                raise VolumeLockedError(f"{directory} is in use by this very process: close that volume first")
            path = directory / "lock"
            self._file = open(path, "a+b", buffering=0, opener=open_private)  # noqa: SIM115 - see replace_file
            try:
                self._lock(directory)
            except BaseException:
                self._file.close()
                raise
            self._held.add(self._directory)

    def release(self) -> None:
        """Lets others in. Idempotent."""
        with self._held_guard:
            if not self._file.closed:
                self._held.discard(self._directory)
                self._file.close()

    def leave_to_parent(self) -> None:
        """This is a forked child: its parent holds the directory, and whoever asks here is told that."""
        DirectoryLock._held_guard = threading.Lock()  # a thread of the parent may hold it
        self._held.discard(self._directory)

    def _lock(self, directory: Path) -> None:
        if sys.platform == "win32":  # RocksDB's own lock has to do
            return
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.seek(0)
            holder = self._file.read(20).decode("ascii", "replace").strip() or "unknown"
            raise VolumeLockedError(f"{directory} is in use by another process (its id: {holder})") from error
        with contextlib.suppress(OSError):  # on a full disk only the process id is missing
            self._file.truncate(0)
            self._file.write(b"%d\n" % os.getpid())
