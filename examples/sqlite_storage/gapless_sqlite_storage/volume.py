"""A volume in a SQLite file.

`write` applies a batch inside a transaction that stays open: whoever reads through the same connection
sees it, and a crash takes it away. `sync` commits, with `synchronous=FULL`, so that SQLite syncs its
write-ahead log before it returns. A batch is never half there, because a failing one ends the volume.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import threading
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from gapless.errors import (
    ConfigurationError,
    StorageError,
    VolumeCorruptError,
    VolumeFailedError,
    VolumeForeignError,
    VolumeFullError,
    VolumeLockedError,
)
from gapless.spi import StorageCapabilities, VolumeIdentity

_INDEX_MAX = 2**63 - 1
_APPLICATION_ID = 0x67617073  # in the file's header: tells our files from other people's
_SCHEMA = """
CREATE TABLE identity (network TEXT, node TEXT);
CREATE TABLE streams (id INTEGER PRIMARY KEY, name TEXT UNIQUE, first INTEGER, last INTEGER);
CREATE TABLE records (stream INTEGER, position INTEGER, checksum INTEGER, record BLOB,
                      PRIMARY KEY (stream, position)) WITHOUT ROWID;
CREATE TABLE rows (name TEXT, key BLOB, value BLOB, PRIMARY KEY (name, key)) WITHOUT ROWID;
"""

Statement = tuple[str, tuple[object, ...]]


class SqliteVolume:
    """A volume in a SQLite file; see `gapless.spi.LogVolume`."""

    capabilities = StorageCapabilities(durable=True)

    def __init__(self, path: Path, identity: VolumeIdentity) -> None:
        """Raises ConfigurationError, VolumeLockedError, VolumeForeignError, VolumeCorruptError."""
        self._path = path
        self._lock = threading.Lock()  # one connection for all threads: a write waits for a running sync
        self._staged: list[Statement] = []
        self._streams: dict[str, SqliteStream] = {}
        self._tables: dict[str, SqliteTable] = {}
        self._failure: StorageError | None = None
        self._closed = False
        self._connection = _connect(path)
        try:
            self.created, self.identity = _claim(self._connection, path, identity)
        except BaseException:
            self._connection.close()
            raise

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
        """Applies all that is staged, in the open transaction. Raises VolumeFailedError, VolumeFullError."""
        with self._working("writing"):
            if self._staged and not self._connection.in_transaction:
                self._connection.execute("BEGIN IMMEDIATE")
            for statement, values in self._staged:
                self._connection.execute(statement, values)
            self._staged.clear()
        for stream in self._streams.values():
            stream.first = stream.chopped

    def sync(self) -> None:
        """Commits. Raises VolumeFailedError, VolumeFullError."""
        with self._working("syncing"):
            if self._connection.in_transaction:
                self._commit()

    def reclaim(self) -> int:
        """Removes the chopped records for good; returns their bytes. Writes wait meanwhile."""
        with self._working("reclaiming"):
            if self._connection.in_transaction:
                self._commit()  # the chops: what they remove must not come back without them
            freed = self._chopped_bytes()
            self._connection.execute(f"DELETE FROM records WHERE {_IS_CHOPPED}")
            self._connection.execute("PRAGMA incremental_vacuum").fetchall()
        return freed

    @property
    def reclaimable(self) -> int:
        """The bytes of chopped records."""
        with self._lock:
            return self._chopped_bytes()

    @property
    def free_bytes(self) -> int:
        """Bytes left on the disk."""
        return shutil.disk_usage(self._path.parent).free

    def close(self) -> None:
        """Commits if it can, and lets go of the file."""
        with contextlib.suppress(StorageError):  # nobody was told that this was durable
            self.sync()
        with self._lock:
            self._closed = True
            self._connection.close()  # rolls back what is not committed

    # --------------------------------------------------------------------- for streams and tables

    def stage(self, statement: str, *values: object) -> None:
        """Adds a statement to the next batch."""
        self._staged.append((statement, values))

    def select(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        """What is written. Raises VolumeCorruptError when it cannot be read."""
        with self._lock:
            if self._closed:
                raise VolumeFailedError(f"{self._path} is closed")
            try:
                return self._connection.execute(statement, values).fetchall()
            except sqlite3.DatabaseError as error:
                raise VolumeCorruptError(f"{self._path}: {error}") from error

    @contextlib.contextmanager
    def _working(self, what: str) -> Iterator[None]:
        """Nobody else is at the connection, and a failure is the last thing that happens to it."""
        with self._lock:
            if self._closed:
                raise VolumeFailedError(f"{self._path} is closed")
            if self._failure is not None:
                raise type(self._failure)(f"{self._path} has failed before: {self._failure}")
            try:
                yield
            except sqlite3.Error as error:
                full = "is full" in str(error)
                self._failure = (VolumeFullError if full else VolumeFailedError)(f"{what} failed: {error}")
                raise self._failure from error

    def _commit(self) -> None:
        self._connection.execute("COMMIT")

    def _chopped_bytes(self) -> int:
        query = f"SELECT COALESCE(SUM(LENGTH(record)), 0) FROM records WHERE {_IS_CHOPPED}"
        return int(self._connection.execute(query).fetchone()[0])


_IS_CHOPPED = "position <= (SELECT first FROM streams WHERE id = stream)"


class SqliteStream:
    """A stream; see `gapless.spi.LogStream`."""

    def __init__(self, volume: SqliteVolume, name: str) -> None:
        self.name = name
        self._volume = volume
        volume.stage("INSERT OR IGNORE INTO streams (name, first, last) VALUES (?, 0, 0)", name)
        known = volume.select("SELECT first, last FROM streams WHERE name = ?", name)
        self.first, self.last = (int(str(value)) for value in known[0]) if known else (0, 0)
        self.chopped = self.first  # what `first` is after the next write

    @property
    def size(self) -> int:
        """The bytes of the records above the chop point."""
        query = f"SELECT COALESCE(SUM(LENGTH(record)), 0) FROM records WHERE {_THIS} AND position > ?"
        return int(str(self._volume.select(query, self.name, self.first)[0][0]))

    def put(self, index: int, record: bytes) -> None:
        """Stages a record. Raises ValueError if the index does not increase or is out of bounds."""
        if not self.last < index <= _INDEX_MAX:
            raise ValueError(f"{self.name}: index {index} is not in ({self.last}, {_INDEX_MAX}]")
        self._volume.stage(
            "INSERT INTO records SELECT id, ?, ?, ? FROM streams WHERE name = ?",
            index,
            zlib.crc32(record),
            record,
            self.name,
        )
        self._volume.stage("UPDATE streams SET last = ? WHERE name = ?", index, self.name)
        self.last = index

    def read(self, after: int, upto: int, max_bytes: int = 1 << 20) -> Sequence[tuple[int, bytes]]:
        """The written records that overlap (after, upto], in order; at least one, else up to `max_bytes`."""
        found: list[tuple[int, bytes]] = []
        after = max(after, self.first) if after < upto else _INDEX_MAX
        while max_bytes > 0 or not found:
            next_one = self._volume.select(_NEXT_RECORD, self.name, after)
            if not next_one:
                break
            ((after, checksum, record),) = next_one  # type: ignore[assignment]
            assert isinstance(record, bytes)
            if zlib.crc32(record) != checksum:
                raise VolumeCorruptError(f"{self.name}: record {after} is garbled")
            found.append((after, record))
            max_bytes -= len(record)
            if after >= upto:
                break
        return found

    def chop(self, upto: int) -> None:
        """Stages the removal of all records with an index <= `upto`."""
        upto = min(upto, self.last)
        if upto > self.chopped:
            self._volume.stage("UPDATE streams SET first = ? WHERE name = ?", upto, self.name)
            self.chopped = upto


_THIS = "stream = (SELECT id FROM streams WHERE name = ?)"
_NEXT_RECORD = f"""SELECT position, checksum, record FROM records WHERE {_THIS} AND position > ?
                   ORDER BY position LIMIT 1"""


class SqliteTable:
    """A table; see `gapless.spi.Table`."""

    def __init__(self, volume: SqliteVolume, name: str) -> None:
        self.name = name
        self._volume = volume

    def get(self, key: bytes) -> bytes | None:
        """The value written under `key`, or None."""
        found = self._volume.select("SELECT value FROM rows WHERE name = ? AND key = ?", self.name, key)
        return bytes(found[0][0]) if found else None  # type: ignore[call-overload,no-any-return]

    def put(self, key: bytes, value: bytes) -> None:
        """Stages `value` under `key`."""
        self._volume.stage("INSERT OR REPLACE INTO rows VALUES (?, ?, ?)", self.name, key, value)

    def delete(self, key: bytes) -> None:
        """Stages the removal of `key`."""
        self._volume.stage("DELETE FROM rows WHERE name = ? AND key = ?", self.name, key)

    def scan(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """All written pairs whose key starts with `prefix`, in key order, as of the call."""
        query = "SELECT key, value FROM rows WHERE name = ? AND key >= ? ORDER BY key"
        rows = self._volume.select(query, self.name, prefix)
        return iter([(key, value) for key, value in rows if key.startswith(prefix)])  # type: ignore[attr-defined]


# ------------------------------------------------------------------------------------------- opening


def _connect(path: Path) -> sqlite3.Connection:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    except (OSError, sqlite3.Error) as error:
        raise ConfigurationError(f"no volume can be kept in {path}: {error}") from error


def _claim(
    connection: sqlite3.Connection, path: Path, wanted: VolumeIdentity
) -> tuple[bool, VolumeIdentity]:
    """Locks the file and makes the tables in an empty one. Whether it did, and whose the volume is."""
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN EXCLUSIVE")
        empty = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0] == 0
        if empty:
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)
            connection.execute("INSERT INTO identity VALUES (?, ?)", (wanted.network, wanted.node))
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        elif connection.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID:
            raise VolumeForeignError(f"{path} is a SQLite file, but not a gapless volume")
        has = VolumeIdentity(*connection.execute("SELECT network, node FROM identity").fetchone())
        connection.execute("COMMIT")
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise VolumeLockedError(f"{path} is in use") from error
        raise VolumeFailedError(f"{path} cannot be opened: {error}") from error
    except sqlite3.DatabaseError as error:
        if "not a database" in str(error):
            raise VolumeForeignError(f"{path} is not a SQLite file") from error
        raise VolumeCorruptError(f"{path} cannot be opened: {error}") from error
    if wanted.network not in ("", has.network) or wanted.node not in ("", has.node):
        raise VolumeForeignError(f"{path} belongs to {has}, not to {wanted}")
    return empty, has
