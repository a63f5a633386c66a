"""A small storage in one file, right as it stands, and wrong in one way when it is told to be.

The memory storage has no file that a sync could miss and no process that could be killed; this one has. Every batch
is a frame of a journal, and all of it is in memory too. What is wrong with it is a name in `FAULTS`.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import threading
import zlib
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import msgspec

from gapless.errors import (
    StorageError,
    VolumeAbsentError,
    VolumeCorruptError,
    VolumeFailedError,
    VolumeForeignError,
    VolumeFullError,
    VolumeLockedError,
)
from gapless.spi import StorageCapabilities, VolumeIdentity
from gapless_storage.memory import MemoryDisk, MemoryStream, MemoryTable
from gapless_testing.storage import IDENTITY, StorageHarness

MAGIC = b"journal\n"
_FRAME = struct.Struct("<III")

FAULTS = {
    "no sync": "sync() does nothing",
    "every second sync": "of two syncs one does nothing",
    "sync of another file": "sync() syncs the lock file",
    "half a sync": "the newest batch is still in a buffer when sync() returns",
    "two transactions": "the rows of a batch are written behind its records, as a batch of their own",
    "index of 32 bits": "indexes lose their upper bits on disk",
    "size since opening": "sizes begin at 0 with each opening",
    "dirty rows": "rows are written by sync(), which then calls those clean that were changed beside it",
    "write waits": "write() and sync() share a lock",
    "lock in the process": "a second process is not refused",
    "lock file": "what is locked stays locked after kill -9",
    "no close of the lock": "the lock is let go of before the last batch is synced",
    "record of 16 MiB": "records are cut off at 16 MiB",
    "key of 511 bytes": "keys are cut off at 511 bytes",
    "name of 255 bytes": "names are cut off at 255 bytes",
    "engine's error": "a damaged file raises what struct and msgspec raise",
    "garbage is new": "a file that is no journal is taken for an empty one, and begun anew",
    "checksum of 64 bytes": "the checksum of a record covers its first 64 bytes",
    "no checksum": "records have none",
    "directory not synced": "the names of new files are not synced",
    "chop in memory": "a chop is forgotten when the volume is closed",
    "last of what is there": "after an opening, `last` is that of the records that are left",
    "torn tail stays": "an opening leaves a torn frame where it is, and appends behind it",
    "opening not synced": "an opening shows what may be lost yet",
    "close not synced": "close() does not sync",
    "given up in memory": "what was given up is forgotten when the volume is closed",
    "deletes are lost": "rows that were deleted come back when the volume is opened",
    "empty is nothing": "a row with an empty value is not there after an opening",
    "puts before deletes": "an opening does the deletes of a batch last",
    "reclaim in place": "reclaim() writes the journal anew over itself, and does not sync it",
    "reclaim by rename": "reclaim() writes another journal and renames it, and does not sync it",
    "reclaim drops": "reclaim() drops what is staged",
    "identity is not kept": "an opening takes every identity",
    "sync error swallowed": "sync() takes EIO for a warning",
    "failure forgotten": "a sync after one that failed may go well",
    "write error swallowed": "a batch that could not be written is shown, and no error raised",
    "full is failed": "a full disk is no VolumeFullError",
}


class JournalStream:
    """A stream in memory that notes what is staged."""

    def __init__(self, volume: JournalVolume, inner: MemoryStream) -> None:
        self._volume = volume
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def size(self) -> int:
        """Of the records above the chop point."""
        return self._inner.size - (
            self._volume.sizes.get(self.name, 0) if self._volume.is_("size since opening") else 0
        )

    def put(self, index: int, record: bytes) -> None:
        """Stages a record."""
        self._inner.put(index, record)
        self._volume.staged.append(["put", self.name, index, record])

    def chop(self, upto: int) -> None:
        """Stages a chop."""
        if upto > self.first:
            self._inner.chop(upto)
            if not self._volume.is_("chop in memory"):
                self._volume.staged.append(["chop", self.name, min(upto, self.last)])

    def give_up(self, after: int, upto: int) -> None:
        """Stages that records are given up."""
        self._inner.give_up(after, upto)
        if not self._volume.is_("given up in memory"):
            self._volume.staged.append(["give_up", self.name, after, upto])


class JournalTable:
    """A table in memory that notes what is staged."""

    def __init__(self, volume: JournalVolume, inner: MemoryTable) -> None:
        self._volume = volume
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put(self, key: bytes, value: bytes) -> None:
        """Stages a row."""
        self._inner.put(key, value)
        self._volume.staged.append(["set", self.name, key, value])

    def delete(self, key: bytes) -> None:
        """Stages a removal."""
        self._inner.delete(key)
        if not self._volume.is_("deletes are lost"):
            self._volume.staged.append(["delete", self.name, key])


_open_places: set[Path] = set()


class JournalVolume:
    """A volume in a directory; see `gapless.spi.LogVolume`."""

    capabilities = StorageCapabilities(durable=True)
    reclaimable = 0
    free_bytes = None

    def __init__(self, directory: Path, identity: VolumeIdentity, fault: str, *, create: bool = True) -> None:
        assert fault == "" or fault in FAULTS
        self._fault = fault
        self._path = directory / "journal"
        if not create and not self._path.exists():
            raise VolumeAbsentError(f"there is no volume in {directory}")
        directory.mkdir(parents=True, exist_ok=True)
        self.created = not self._path.exists() or not self._path.stat().st_size
        self._lock(directory)
        self._disk = MemoryDisk()
        self.staged: list[list[Any]] = []
        self.sizes: dict[str, int] = {}
        self._dirty: dict[tuple[str, bytes], list[Any]] = {}
        self._buffer = b""
        self._syncs = 0
        self._both = threading.Lock()
        self._in_use = threading.RLock()  # a sync uses the file; who closes it waits
        self._failure: StorageError | None = None
        self._streams: dict[str, JournalStream] = {}
        self._tables: dict[str, JournalTable] = {}
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            self.identity = self._begin(identity) if self.created else self._replay(identity)
        except BaseException:
            self._unlock()
            raise
        status = os.fstat(self._file)
        self._inode = status.st_dev, status.st_ino
        if self._fault != "opening not synced":
            os.fsync(self._file)
        if self._fault != "directory not synced":
            for place in (directory, directory.parent):
                descriptor = os.open(place, os.O_RDONLY)
                os.fsync(descriptor)
                os.close(descriptor)

    def is_(self, fault: str) -> bool:
        """Whether this is what is wrong with it."""
        return self._fault == fault

    # Opening.

    def _lock(self, directory: Path) -> None:
        self._lock_path = directory / "lock"
        self._lock_file = os.open(self._lock_path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if self._fault == "lock in the process":
                if directory in _open_places:
                    raise BlockingIOError
                _open_places.add(directory)
            elif self._fault == "lock file":
                os.close(os.open(directory / "locked", os.O_CREAT | os.O_EXCL))
            else:
                fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, FileExistsError) as error:
            os.close(self._lock_file)
            raise VolumeLockedError(f"{directory} is in use") from error

    def _unlock(self) -> None:
        _open_places.discard(self._path.parent)
        with suppress(OSError):
            os.close(self._lock_file)
        (self._path.parent / "locked").unlink(missing_ok=True)

    def _begin(self, identity: VolumeIdentity) -> VolumeIdentity:
        self._inner = self._disk.open(identity)
        os.write(self._file, MAGIC + self._frame([["identity", identity.network, identity.node]]))
        return identity

    def _replay(self, wanted: VolumeIdentity) -> VolumeIdentity:
        content = self._path.read_bytes()
        if not content.startswith(MAGIC):
            if self._fault == "garbage is new":
                os.ftruncate(self._file, 0)
                self.created = True
                return self._begin(wanted)
            raise VolumeForeignError(f"{self._path} is no journal")
        self._inner = self._disk.open(wanted)
        self._owner = wanted
        at = len(MAGIC)
        while (end := self._replay_frame(content, at)) is not None:
            at = end
        if self._fault != "torn tail stays":
            os.ftruncate(self._file, at)
        os.lseek(self._file, 0, os.SEEK_END)
        owner = self._owner
        if self._fault != "identity is not kept" and (
            wanted.network not in ("", owner.network) or wanted.node not in ("", owner.node)
        ):
            raise VolumeForeignError(f"{self._path} belongs to {owner}")
        for name in self._inner.stream_names():
            self.sizes[name] = self._inner.stream(name).size
            if self._fault == "last of what is there" and not self._inner.stream(name).read(0, 1 << 62):
                self._inner.stream(name).last = 0
        return owner

    def _replay_frame(self, content: bytes, at: int) -> int | None:
        """Where it ends, or None if there is no whole one."""
        try:
            head_bytes, body_bytes, checksum = _FRAME.unpack_from(content, at)
            head_at = at + _FRAME.size
            body_at = head_at + head_bytes
            end = body_at + body_bytes
            head = content[head_at:body_at]
            if self._fault == "engine's error":
                operations = msgspec.msgpack.decode(head)
            elif end > len(content) or not head_bytes:
                return None
            elif zlib.crc32(head) != checksum:
                if end == len(content):
                    return None
                raise VolumeCorruptError(f"a batch in {self._path} is garbled")
            else:
                operations = msgspec.msgpack.decode(head)
        except (struct.error, msgspec.DecodeError):
            if self._fault == "engine's error" and at < len(content):
                raise
            return None
        if self._fault == "puts before deletes":
            operations.sort(key=lambda operation: operation[0] == "delete")
        for operation in operations:
            body_at = self._apply(operation, content, body_at)
        self._inner.write()
        return int(end)

    def _apply(self, operation: list[Any], content: bytes, body_at: int) -> int:
        kind, name, *rest = operation
        if kind == "identity":
            self._owner = VolumeIdentity(name, rest[0])
        elif kind == "put":
            index, size, checksum = rest
            record = content[body_at : body_at + size]
            if self._checksum(record) != checksum:
                self._disk.faults.unreadable.add((name, index))
            with suppress(ValueError):  # what is on disk may be nonsense
                self._inner.stream(name).put(index, record)
            return body_at + int(size)
        elif kind == "chop":
            self._inner.stream(name).chop(*rest)
        elif kind == "give_up":
            self._inner.stream(name).give_up(*rest)
        elif kind == "set" and not (self._fault == "empty is nothing" and not rest[1]):
            self._inner.table(name).put(*rest)
        elif kind == "delete":
            self._inner.table(name).delete(*rest)
        return body_at

    # What it holds.

    def stream(self, name: str) -> JournalStream:
        """The stream of that name."""
        return self._streams.setdefault(name, JournalStream(self, self._inner.stream(name)))

    def table(self, name: str) -> JournalTable:
        """The table of that name."""
        return self._tables.setdefault(name, JournalTable(self, self._inner.table(name)))

    def stream_names(self) -> Sequence[str]:
        """All streams."""
        return self._inner.stream_names()

    def table_names(self) -> Sequence[str]:
        """All tables."""
        return self._inner.table_names()

    # Writing.

    def write(self) -> None:
        """Appends a frame."""
        self._check()
        staged = self.staged.copy()
        self.staged.clear()
        if not staged:
            return
        if self._fault == "dirty rows":
            self._dirty |= {(part[1], part[2]): part for part in staged if part[0] in ("set", "delete")}
            staged = [part for part in staged if part[0] not in ("set", "delete")]
        groups = [staged]
        if self._fault == "two transactions":
            rows = [part for part in staged if part[0] in ("set", "delete")]
            groups = [group for group in ([part for part in staged if part not in rows], rows) if group]
        if self._fault == "write waits":
            with self._both:
                self._append(groups)
        else:
            self._append(groups)
        self._inner.write()

    def _append(self, groups: list[list[list[Any]]]) -> None:
        for group in groups:
            frame = self._frame(group)
            if self._fault == "half a sync":
                frame, self._buffer = self._buffer, frame  # close() writes it
            try:
                left = memoryview(frame)
                while left:
                    left = left[os.write(self._file, left) :]
            except OSError as error:
                if self._fault == "write error swallowed":
                    continue
                kind = VolumeFailedError if self._fault == "full is failed" else VolumeFullError
                raise self._fail(kind(str(error))) from error

    def _frame(self, operations: list[list[Any]]) -> bytes:
        heads, bodies = [], []
        for kind, name, *rest in operations:
            kept = name[:255] if self._fault == "name of 255 bytes" else name
            head = [kind, kept, *rest]
            if kind == "put":
                index, record = rest
                if self._fault == "record of 16 MiB":
                    record = record[: 16 << 20]
                head = [kind, kept, self._index(index), len(record), self._checksum(record)]
                bodies.append(record)
            elif kind == "chop":
                head[2] = self._index(head[2])
            elif kind in ("set", "delete") and self._fault == "key of 511 bytes":
                head[2] = head[2][:511]
            heads.append(head)
        head_bytes, body = msgspec.msgpack.encode(heads), b"".join(bodies)
        return _FRAME.pack(len(head_bytes), len(body), zlib.crc32(head_bytes)) + head_bytes + body

    def _index(self, index: int) -> int:
        return index & 0xFFFFFFFF if self._fault == "index of 32 bits" else index

    def _checksum(self, record: bytes) -> int:
        if self._fault == "no checksum":
            return 0
        return zlib.crc32(record[:64] if self._fault == "checksum of 64 bytes" else record)

    def sync(self) -> None:
        """Syncs the journal."""
        self._check()
        self._syncs += 1
        dirty = list(self._dirty.values())
        if dirty:
            os.write(self._file, self._frame(dirty))
        with self._in_use:
            self._check()
            try:
                self._sync_file()
            except OSError as error:
                if self._fault == "sync error swallowed":
                    return
                failure = VolumeFailedError(str(error))
                raise failure if self._fault == "failure forgotten" else self._fail(failure) from error
            self._dirty.clear()
            self.tend()

    def _sync_file(self) -> None:
        if self._fault == "no sync" or (self._fault == "every second sync" and self._syncs % 2 == 0):
            return
        with self._both if self._fault == "write waits" else nullcontext():
            os.fdatasync(self._lock_file if self._fault == "sync of another file" else self._file)

    def tend(self) -> None:
        """Looks whether the journal is still there."""
        self._check()
        try:
            status = self._path.stat()
            is_there = (status.st_dev, status.st_ino) == self._inode
        except OSError:
            is_there = False
        if not is_there:
            raise self._fail(VolumeAbsentError(f"{self._path} is gone"))

    def reclaim(self) -> int:
        """There is nothing to give back."""
        self._check()
        if self._fault == "reclaim drops":
            self.staged.clear()
        if self._fault in ("reclaim in place", "reclaim by rename"):
            content = self._path.read_bytes()
            target = self._path if self._fault == "reclaim in place" else self._path.with_name("journal.new")
            target.write_bytes(content)
            target.rename(self._path)
            os.close(self._file)
            self._file = os.open(self._path, os.O_RDWR | os.O_APPEND)
            status = os.fstat(self._file)
            self._inode = status.st_dev, status.st_ino
        return 0

    @property
    def damage(self) -> str:
        """What cannot be read."""
        return self._inner.damage

    def excise(self) -> str:
        """Writes all that can be read anew."""
        self.sync()
        lost = self._disk.faults.unreadable.copy()
        self._inner.excise()  # refuses what was not given up
        self._inner = self._disk.open(self.identity)
        operations: list[list[Any]] = [["identity", self.identity.network, self.identity.node]]
        for name in self.stream_names():
            stream = self._inner.stream(name)
            records = stream.read(0, stream.last, 1 << 60) if not stream.given_up else self._rest(name, lost)
            operations += [["put", name, index, record] for index, record in records]
            operations += [["chop", name, stream.first], *(["give_up", name, *part] for part in stream.given_up)]
        for name in self.table_names():
            operations += [["set", name, key, value] for key, value in self._inner.table(name).scan()]
        draft = self._path.with_name("journal.new")
        draft.write_bytes(MAGIC + self._frame(operations))
        draft.replace(self._path)
        self._fail(VolumeFailedError("the volume is closed"))
        self.close()
        return ""

    def _rest(self, name: str, lost: set[tuple[str, int]]) -> list[tuple[int, bytes]]:
        """The records of a stream in which something was given up; what is lost is left empty."""
        log = self._disk._content.logs[name]
        return [(index, b"" if (name, index) in lost else record) for index, record in log.read(0, log.last, 1 << 60)]

    def close(self) -> None:
        """Syncs if it can, and lets go of the files."""
        if self._fault == "no close of the lock":
            self._unlock()
        if self._failure is None:
            os.write(self._file, self._buffer)
            with suppress(StorageError):
                if self._fault != "close not synced":
                    self.sync()
        with self._in_use:
            if self._failure is None:
                self._fail(VolumeFailedError("the volume is closed"))
        self._unlock()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _fail(self, error: StorageError) -> StorageError:
        with self._in_use:
            if self._failure is None:
                os.close(self._file)
            self._failure = error if not isinstance(error, VolumeFullError) else VolumeFailedError(str(error))
        return error


class JournalHarness(StorageHarness):
    """A directory, and what is wrong with what is in it."""

    chops_at_once = True

    def __init__(self, root: Path, fault: str = "") -> None:
        self.root = root
        self.fault = fault
        self._others = 0

    def open(self, identity: VolumeIdentity = IDENTITY) -> JournalVolume:
        return JournalVolume(self.root / "volume", identity, self.fault)

    def open_existing(self) -> JournalVolume:
        return JournalVolume(self.root / "volume", IDENTITY, self.fault, create=False)

    def remove(self, volume: object) -> None:
        shutil.rmtree(self.root / "volume")

    def fresh(self) -> JournalHarness:
        self._others += 1
        return JournalHarness(self.root / f"other-{self._others}", self.fault)
