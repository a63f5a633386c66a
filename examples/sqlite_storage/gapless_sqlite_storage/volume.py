"""`gapless.spi.LogVolume` on SQLite."""

from __future__ import annotations

import os
import shutil
import sqlite3
import zlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

from gapless.errors import (
    RecordsDamagedError,
    StorageError,
    VolumeAbsentError,
    VolumeCorruptError,
    VolumeFailedError,
    VolumeForeignError,
    VolumeFullError,
    VolumeLockedError,
)
from gapless.spi import Create, GivenUp, StorageCapabilities, VolumeIdentity

SCHEMA = """
    CREATE TABLE IF NOT EXISTS identity (network TEXT NOT NULL, node TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS streams
        (name TEXT PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL, size INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS records
        (stream TEXT, position INTEGER, checksum INTEGER NOT NULL, record BLOB NOT NULL,
         PRIMARY KEY (stream, position)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS pairs
        (name TEXT, key BLOB, value BLOB NOT NULL, PRIMARY KEY (name, key)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS given_up (stream TEXT NOT NULL, after INTEGER NOT NULL, upto INTEGER NOT NULL);
"""
FILE = "volume.sqlite"
HIGHEST = (1 << 63) - 1


class SqliteStream:
    """A log stream: rows of the table `records`."""

    def __init__(self, volume: SqliteVolume, name: str) -> None:
        self.name = name
        self._volume = volume
        row = volume.query("SELECT first, last, size FROM streams WHERE name = ?", name)
        self._first: int
        self._last: int
        self._size: int
        self._first, self._last, self._size = row[0] if row else (0, 0, 0)
        self._staged_last: int = self._last
        self._given_up = GivenUp(name, volume.query("SELECT after, upto FROM given_up WHERE stream = ?", name))

    @property
    def first(self) -> int:
        """The chop point."""
        return self._first

    @property
    def last(self) -> int:
        """The highest index ever put."""
        return self._staged_last

    @property
    def size(self) -> int:
        """Bytes of the records above the chop point."""
        return self._size

    def put(self, index: int, record: bytes) -> None:
        """Stages a record."""
        if not self._staged_last < index <= HIGHEST:
            raise ValueError(f"index {index} is not between {self._staged_last} and 2**63")
        self._staged_last = index
        self._volume.stage(
            "INSERT INTO records VALUES (?, ?, ?, ?)", self.name, index, zlib.crc32(record), bytes(record)
        )
        self._volume.stage(_NOTE_PUT, self.name, index, len(record), index, len(record))
        self._volume.changed[self.name] = self

    def read(self, after: int, upto: int, max_bytes: int = 1 << 20) -> Sequence[tuple[int, bytes]]:
        """The records above `after`, up to the first at or beyond `upto`."""
        if after >= upto:
            return []
        return self._given_up.read(max(after, self._first), upto, partial(self._read, max_bytes=max_bytes))

    @property
    def given_up(self) -> Sequence[tuple[int, int]]:
        """What an operator has given up."""
        return self._given_up.above(self._first)

    def give_up(self, after: int, upto: int) -> None:
        """Stages that these records are lost."""
        self._volume.stage("INSERT INTO given_up VALUES (?, ?, ?)", self.name, after, upto)
        self._given_up.add(after, upto)

    def _read(self, after: int, upto: int, max_bytes: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        size, garbled_upto = 0, 0
        with closing(self._volume.rows(_READ, self.name, after)) as rows:
            for index, checksum, record in rows:
                if zlib.crc32(record) != checksum:  # SQLite's own pages have none
                    if found:
                        break
                    garbled_upto = index
                    continue
                if garbled_upto:
                    raise self._damaged(after, index - 1)
                found.append((index, record))
                size += len(record)
                if index >= upto or size >= max_bytes:
                    break
        if garbled_upto:
            raise self._damaged(after, self._last)
        return found

    def _damaged(self, after: int, upto: int) -> RecordsDamagedError:
        text = f"{self.name}: the records between {after} and {upto} are garbled"
        return RecordsDamagedError(text, after, upto, given_up=False)

    def chop(self, upto: int) -> None:
        """Stages a removal."""
        upto = min(upto, self._staged_last)
        if upto > self._first:
            self._volume.stage(_NOTE_CHOP, self.name, upto, upto, self.name, upto)
            self._volume.stage("DELETE FROM records WHERE stream = ? AND position <= ?", self.name, upto)
            self._volume.changed[self.name] = self

    def written(self) -> None:
        """What was staged has been applied."""
        [(self._first, self._last, self._size)] = self._volume.query(
            "SELECT first, last, size FROM streams WHERE name = ?", self.name
        )


_READ = "SELECT position, checksum, record FROM records WHERE stream = ? AND position > ? ORDER BY position"
_REMOVE = "DELETE FROM records WHERE stream = ? AND position > ? AND position <= ?"
_NOTE_PUT = """
    INSERT INTO streams VALUES (?, 0, ?, ?)
    ON CONFLICT (name) DO UPDATE SET last = max(last, ?), size = size + ?
"""
_NOTE_CHOP = """
    INSERT INTO streams VALUES (?, ?, 0, 0)
    ON CONFLICT (name) DO UPDATE SET first = max(first, ?), size = size - (
        SELECT coalesce(sum(length(record)), 0) FROM records WHERE stream = ? AND position <= ?)
"""


class SqliteTable:
    """A table: rows of the table `pairs`."""

    def __init__(self, volume: SqliteVolume, name: str) -> None:
        self.name = name
        self._volume = volume

    def get(self, key: bytes) -> bytes | None:
        """The value written under a key."""
        rows = self._volume.query("SELECT value FROM pairs WHERE name = ? AND key = ?", self.name, key)
        return rows[0][0] if rows else None

    def put(self, key: bytes, value: bytes) -> None:
        """Stages a value."""
        self._volume.stage("INSERT OR REPLACE INTO pairs VALUES (?, ?, ?)", self.name, bytes(key), bytes(value))

    def delete(self, key: bytes) -> None:
        """Stages a removal."""
        self._volume.stage("DELETE FROM pairs WHERE name = ? AND key = ?", self.name, bytes(key))

    def scan(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """All written pairs with this prefix, as of the call."""
        rows = self._volume.query(
            "SELECT key, value FROM pairs WHERE name = ? AND key >= ? ORDER BY key", self.name, prefix
        )
        return iter([(key, value) for key, value in rows if key.startswith(prefix)])


class SqliteVolume:
    """Everything of one broker in one file."""

    capabilities = StorageCapabilities(durable=True)
    reclaimable = 0
    """SQLite uses the pages of what was removed again; the file does not shrink."""

    def __init__(self, directory: Path, identity: VolumeIdentity, create: Create) -> None:
        """Opens the volume, or makes it. Raises what `gapless.errors` says of volumes that cannot be opened."""
        self._directory = directory
        self._check_place(create)
        self._failure: StorageError | None = None
        self._staged: list[tuple[str, tuple[object, ...]]] = []
        self._streams: dict[str, SqliteStream] = {}
        self._tables: dict[str, SqliteTable] = {}
        self.changed: dict[str, SqliteStream] = {}
        """Streams of which something is staged."""
        self._database = self._open()
        try:
            _sync_directory(self._directory)  # the log's name: SQLite has just made the file, at each opening anew
            self._file = self._identify()
            self.identity, self.created = self._claim(identity)
        except BaseException:
            self._database.close()
            raise

    # Opening.

    def _check_place(self, create: Create) -> None:
        place = self._directory
        used = place.is_file() or (place.is_dir() and any(place.iterdir()))
        if used and not (place / FILE).exists():
            raise VolumeForeignError(f"{place} is not empty, and is no volume of this plugin")
        allowed = create is Create.YES or (create is Create.WHERE_NOTHING_IS and not place.exists())
        if not (used or allowed):
            raise VolumeAbsentError(f"there is no volume in {place}: mount its disk, or run `gapless broker --create`")
        missing = [directory for directory in (place, *place.parents) if not directory.exists()]
        place.mkdir(parents=True, exist_ok=True)
        for directory in missing:
            _sync_directory(directory.parent)  # or a power cut may take the directory, and all that is in it

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._directory / FILE, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            database.execute("PRAGMA locking_mode = EXCLUSIVE")
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            database.executescript(f"BEGIN IMMEDIATE; {SCHEMA} COMMIT;")
        except sqlite3.Error as error:
            database.close()
            if "locked" in str(error):
                raise VolumeLockedError(f"{self._directory} is in use by another broker") from error
            raise _classified(error) from error
        return database

    def _claim(self, wanted: VolumeIdentity) -> tuple[VolumeIdentity, bool]:
        rows = self.query("SELECT network, node FROM identity")
        if not rows:
            self.stage("INSERT INTO identity VALUES (?, ?)", wanted.network, wanted.node)
            self.write()
            self.sync()
            return wanted, True
        found = VolumeIdentity(*rows[0])
        if wanted.network not in ("", found.network) or wanted.node not in ("", found.node):
            raise VolumeForeignError(f"{self._directory} belongs to {found}, not to {wanted}")
        self.sync()  # a process that was killed may have written more: what is shown from here on has to stay
        return found, False

    # What the plugin's own parts use.

    def query(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """All rows of a question."""
        try:
            return self._database.execute(statement, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise _classified(error) from error

    def rows(self, statement: str, *values: object) -> Generator[tuple[Any, ...], None, None]:
        """The rows of a question, one by one."""
        try:
            yield from self._database.execute(statement, values)
        except sqlite3.DatabaseError as error:
            raise _classified(error) from error

    def stage(self, statement: str, *values: object) -> None:
        """Something for the next `write`."""
        self._staged.append((statement, values))

    # The volume.

    def stream_names(self) -> Sequence[str]:
        """All streams."""
        return [name for (name,) in self.query("SELECT name FROM streams ORDER BY name")]

    def table_names(self) -> Sequence[str]:
        """All tables."""
        return [name for (name,) in self.query("SELECT DISTINCT name FROM pairs ORDER BY name")]

    @property
    def damage(self) -> str:
        """Nothing is noted: a garbled record disturbs nobody but who reads it."""
        return ""

    def excise(self) -> str:
        """Removes what was given up, and closes the volume."""
        for stream in map(self.stream, self.stream_names()):
            after = stream.first
            while after < stream.last:
                try:
                    after = stream.read(after, stream.last)[-1][0]
                except RecordsDamagedError as error:
                    if not error.given_up:
                        raise
                    after = error.upto
            for low, high in stream.given_up:
                self.stage(_REMOVE, stream.name, low, high)
        self.write()
        self.close()
        return ""

    def stream(self, name: str) -> SqliteStream:
        """The stream of that name."""
        if name not in self._streams:
            self._streams[name] = SqliteStream(self, name)
        return self._streams[name]

    def table(self, name: str) -> SqliteTable:
        """The table of that name."""
        if name not in self._tables:
            self._tables[name] = SqliteTable(self, name)
        return self._tables[name]

    def write(self) -> None:
        """Applies what is staged as one transaction."""
        self._check()
        staged, self._staged = self._staged, []
        changed, self.changed = self.changed, {}
        if not staged:
            return
        try:
            self._database.execute("BEGIN IMMEDIATE")
            for statement, values in staged:
                self._database.execute(statement, values)
            self._database.execute("COMMIT")
        except sqlite3.Error as error:
            if self._database.in_transaction:
                self._database.rollback()
            raise self._failed(_classified(error)) from error
        for stream in changed.values():
            stream.written()

    def sync(self) -> None:
        """Everything written is on disk when this returns."""
        self._check()
        try:
            self._sync_log()
        except OSError as error:
            raise self._failed(VolumeFailedError(f"cannot sync {self._directory}: {error}")) from error
        self.tend()

    def tend(self) -> None:
        """Looks whether the file is still where it was opened."""
        self._check()
        if self._identify() != self._file:
            raise self._failed(VolumeFailedError("its file is not there"))

    def _identify(self) -> tuple[int, int] | None:
        try:
            found = (self._directory / FILE).stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _sync_log(self) -> None:
        descriptor = os.open(self._directory / f"{FILE}-wal", os.O_RDONLY)
        try:
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def reclaim(self) -> int:
        """There is nothing to give back."""
        return 0

    @property
    def free_bytes(self) -> int:
        """Bytes left on the disk."""
        return shutil.disk_usage(self._directory).free

    def close(self) -> None:
        """Syncs if it can, and lets go of the file."""
        if self._failure is None:
            with suppress(StorageError):
                self.sync()
        self._failure = self._failure or VolumeFailedError("the volume is closed")
        self._database.close()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _failed(self, error: StorageError) -> StorageError:
        """Why nothing more can be done: that the file is gone says more than what did not work without it."""
        self._failure = error if isinstance(error, VolumeFailedError) else VolumeFailedError(str(error))
        if self._identify() != self._file:
            self._failure = VolumeAbsentError(f"{self._directory / FILE} was removed or replaced")
        return self._failure


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _classified(error: sqlite3.Error) -> StorageError:
    text = str(error)
    if "full" in text:
        return VolumeFullError(text)
    if "malformed" in text or "not a database" in text:
        return VolumeCorruptError(text)
    return VolumeFailedError(text)
