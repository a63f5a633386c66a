"""RocksDB through rocksdict, with its traps closed. Beside the probe, nothing else imports rocksdict.

What is closed here, all measured on rocksdict 0.3.29:

* always raw mode: the other one unpickles what it reads;
* an iterator that ends may have met a corrupt block: its `status` is asked, every time;
* no bounds on iterators: the upper one is a dangling pointer, the lower one sets the upper one;
* no `items`, `keys` or `values`: they hide the status; no snapshots: they do not isolate iteration;
* an inverted `delete_range` poisons the database until it is reopened: begin < end is asserted;
* dropping the object of a column family flushes that family: it is fetched once and kept;
* a database with a live iterator or handle does not close, and then keeps its lock: an iterator never
  leaves the function that made it, not even in the traceback of an error;
* errors are bare `Exception`s: they are told apart by RocksDB's status text;
* after a failed write `flush_wal` may succeed: the volume, not RocksDB, remembers the failure;
* `write` holds the GIL, `flush_wal` and `flush` release it: nothing is ever written with `sync`.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from rocksdict import (
    ColumnFamily,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    RdictIter,
    WriteBatch,
)

from gapless import descriptors
from gapless.errors import (
    DescriptorsExhaustedError,
    StorageError,
    VolumeCorruptError,
    VolumeFailedError,
    VolumeFullError,
    VolumeLockedError,
)
from gapless_storage._rocksdb.files import no_descriptors
from gapless_storage._rocksdb.keys import LOG_FAMILY, LOG_MARK_KEY, MARK_KEY
from gapless_storage._rocksdb.layout import RECORD_KEY, Mark

Result = TypeVar("Result")

COMPRESSIONS = {
    "none": DBCompressionType.none,
    "lz4": DBCompressionType.lz4,
    "zstd": DBCompressionType.zstd,
}

_NO_DESCRIPTORS = "Too many open files"
_FULL = ("No space left on device", "Disk quota exceeded", "File too large")
_FAILING = ("Input/output error", "Read-only file system", "Too many open files", "Cannot allocate memory")
_DAMAGED = ("Corruption", "Input/output error", "No such file or directory")
_COMPACTION_BUFFERS = 64
"""With room for so many write buffers nobody asks how much a compaction may take: it is far less."""
_BACKGROUND_ERRORS = "rocksdb.background-errors"
_PENDING_FLUSH = "rocksdb.mem-table-flush-pending"
_PENDING_FLUSH_POLLS_MAX = 100
_PENDING_FLUSH_POLL_SECONDS = 0.0002


@dataclass(frozen=True, slots=True)
class Tuning:
    """What of RocksDB's options can be chosen."""

    write_buffer_bytes: int
    compression: str
    compacts: bool = True
    """Whether it compacts by itself from the beginning; see `Database.compact_within`."""

    @property
    def compaction_bytes(self) -> int:
        """With so much room it may always compact by itself."""
        return _COMPACTION_BUFFERS * self.write_buffer_bytes


def _options(tuning: Tuning, *, create: bool, compacting: bool) -> Options:
    options = Options(raw_mode=True)
    options.set_disable_auto_compactions(not (compacting and tuning.compacts))
    options.create_if_missing(create)
    options.create_missing_column_families(create)
    options.set_error_if_exists(create)
    # The log has been checked, and cut where it may be: now RocksDB has to agree that it is whole.
    options.set_wal_recovery_mode(DBRecoveryMode.absolute_consistency())
    options.set_write_buffer_size(tuning.write_buffer_bytes)
    options.set_max_write_buffer_number(4)  # a write does not wait for one slow flush
    options.set_max_total_wal_size(4 * tuning.write_buffer_bytes)  # else an idle family pins the log
    options.set_level_zero_slowdown_writes_trigger(40)  # a stalled write would hold the GIL, and the loop
    options.set_level_zero_stop_writes_trigger(80)
    options.set_target_file_size_base(tuning.write_buffer_bytes)
    options.set_max_bytes_for_level_base(8 * tuning.write_buffer_bytes)
    options.set_compression_type(COMPRESSIONS[tuning.compression]())
    options.set_max_background_jobs(2)
    options.set_max_open_files(descriptors.for_storage())
    options.set_keep_log_file_num(4)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options


class Database:
    """An open database. Its errors are those of `gapless.errors`."""

    def __init__(self, directory: Path, tuning: Tuning, *, create: bool, compacting: bool) -> None:
        """`compacting`: whether data files are merged in the background.

        One that is damaged would fail that, and then everything that is written, whatever stream it belongs to.
        Raises VolumeLockedError, VolumeCorruptError, VolumeFullError or VolumeFailedError.
        """
        self.compacting = compacting
        families = {LOG_FAMILY: _options(tuning, create=create, compacting=compacting)}
        options = _options(tuning, create=create, compacting=compacting)
        self._database = _told(lambda: Rdict(str(directory), options, column_families=families))
        self._log: Rdict | None = None
        self._tuning = tuning
        self._compacts = tuning.compacts
        try:
            self._log = _told(lambda: self._database.get_column_family(LOG_FAMILY))
            self.log_handle: ColumnFamily | None = self._database.get_column_family_handle(LOG_FAMILY)
        except BaseException:
            self.close()
            raise

    def marked_batch(self, mark: Mark) -> WriteBatch:
        """A new batch that carries `mark` for both families; the default one's first, as `wal` reads it."""
        encoded = mark.encode()
        batch = WriteBatch(raw_mode=True)
        batch.put(MARK_KEY, encoded)
        batch.put(LOG_MARK_KEY, encoded, self.log_handle)
        return batch

    def repeating_batch(self, mark: Mark) -> WriteBatch:
        """A new batch with the mark of the batch before it: it deletes, and changes nothing that anybody sees.

        It leaves the log family's mark alone, so that a file of deleted ranges spans nothing but those.
        """
        batch = WriteBatch(raw_mode=True)
        batch.put(MARK_KEY, mark.encode())
        return batch

    def mark(self) -> bytes | None:
        """The newest mark in the default family, encoded."""
        return self.get(MARK_KEY)

    def log_mark(self) -> bytes | None:
        """The newest mark in the log family, encoded."""
        return self._read(lambda: self._open_log().get(LOG_MARK_KEY))

    def write(self, batch: WriteBatch) -> None:
        """Applies a batch: visible, in the log, not synced. Short; holds the GIL."""
        _told(self._database.write, batch)

    def sync_log(self) -> None:
        """Blocks until every batch written before is on disk. Releases the GIL."""
        _told(self._database.flush_wal, True)

    def get(self, key: bytes) -> bytes | None:
        """The value under a key of the default family."""
        return self._read(lambda: self._database.get(key))

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """All pairs of the default family whose key starts with `prefix`, in order, as of now."""
        return self._read(lambda: _prefixed(self._database.iter(), prefix))

    def records(self, stream: int, after: int, upto: int, max_bytes: int) -> list[tuple[int, bytes]]:
        """A stream's records with an index > `after`, up to the first >= `upto`, or till `max_bytes`."""
        return self._read(lambda: _records(self._open_log().iter(), stream, after, upto, max_bytes))

    def readable_from(self, stream: int, after: int, places: Sequence[int]) -> int | None:
        """The first index behind a block that cannot be read, where a record of the stream can be; None: there is none.

        The record behind `after` cannot be read. `places` are indexes above it, in order, the last one the stream's:
        where to look first. The search is exact to the record when one piece of the files is damaged; of
        several that lie between two of the places, what can be read in between may be passed over.
        """
        return self._read(lambda: _readable_from(self._open_log().iter, stream, after, places))

    def pairs(self, after: bytes, max_bytes: int) -> list[tuple[bytes, bytes]]:
        """Pairs of the default family with a key above `after`, in order, until they have so many bytes."""
        return self._read(lambda: _pairs(self._database.iter(), after, max_bytes))

    def stop_compacting(self) -> None:
        """From now on data files are not merged any more. What is merging just now may still fail."""
        self.compacting = False
        for family in (self._database, self._open_log()):
            _told(partial(family.set_options, {"disable_auto_compactions": "true"}))

    def compact_within(self, free_bytes: int) -> bool:
        """Has it compact by itself if there is room: that takes space first, hundreds of MiB, and gives it back later.

        Returns whether there is room, or nothing is merged anyway, for the files are damaged.
        """
        if not self.compacting:
            return True
        allowed = free_bytes >= self._tuning.compaction_bytes or free_bytes >= 2 * self.rewritten_at_most()
        if allowed != self._compacts:
            setting = {"disable_auto_compactions": "false" if allowed else "true"}
            for family in (self._database, self._open_log()):
                _told(partial(family.set_options, setting))
            self._compacts = allowed
        return allowed

    def flush_log_family(self) -> None:
        """Blocks until all records are in data files. Releases the GIL."""
        _told(lambda: self._open_log().flush(True))

    def flush_default_family(self) -> None:
        """The same for all else: as long as one family has something that only RocksDB's log has, that log stays."""
        _told(lambda: self._database.flush(True))

    def isolate_in_file(self, batch: WriteBatch) -> None:
        """Writes a batch of deleted ranges so that it gets a data file of its own. Nobody may write meanwhile.

        A file that held a deleted range beside new records would span all keys, and drag all of them into
        each compaction. So the table in memory is exchanged before and after, and in between the first
        exchange's flush must have begun, or both tables would be flushed into one file. That wait takes
        one sync of a log file, and is given up after some 20 ms: then the file is merely not alone.
        """
        self._switch_log_family()
        for _ in range(_PENDING_FLUSH_POLLS_MAX):
            if not self._open_log().property_int_value(_PENDING_FLUSH):
                break
            time.sleep(_PENDING_FLUSH_POLL_SECONDS)
        self.write(batch)
        self._switch_log_family()

    def delete_records(self, batch: WriteBatch, stream: int, after: int, upto: int) -> None:
        """Puts the deletion of the records in (after, upto] into a batch."""
        begin, end = RECORD_KEY.pack(stream, after + 1), RECORD_KEY.pack(stream, upto + 1)
        assert begin < end
        batch.delete_range(begin, end, self.log_handle)

    def check_background(self) -> None:
        """Raises VolumeFullError when a compaction has failed: to be asked when there is no room.

        From then on RocksDB compacts nothing, for which it has not as much room as all that goes in takes, and does not
        say so to who asks for it: it would wait for ever for room that only a compaction makes. Opened anew it does.
        """
        if self._database.property_int_value(_BACKGROUND_ERRORS):
            raise VolumeFullError("the disk is full: a compaction found no room, and the database is to be opened anew")

    def rewritten_at_most(self) -> int:
        """How many bytes of records a compaction of a range may write anew before it gives anything back.

        Of the levels below the first two those files alone are touched that lie at the edge of the range.
        """
        sizes: dict[int, int] = {}
        for file in _told(self._database.live_files):
            sizes[file["level"]] = sizes.get(file["level"], 0) + file["size"]
        return sum(size for _, size in sorted(sizes.items())[:2])

    def compact_records(self, stream: int, upto: int) -> None:
        """Blocks until the files that held nothing but deleted records up to `upto` are gone."""
        begin, end = RECORD_KEY.pack(stream, 0), RECORD_KEY.pack(stream, upto + 1)
        _told(lambda: self._open_log().compact_range(begin, end))

    def close(self) -> bool:
        """Flushes if it can and lets go of the database and its lock. Returns whether nothing failed."""
        clean = True
        self.log_handle = None  # the database stays open as long as one of these lives
        log, self._log = self._log, None
        for database in (log, self._database):
            try:
                if database is not None:
                    database.close()
            except Exception:  # noqa: BLE001 — after a failure it always raises, and closes all the same
                clean = False
        return clean

    def abandon(self) -> None:
        """Lets go of the database and leaves its files as they are, because they are somebody else's now.

        To close it would be to flush it, under file names that the new owner uses too, and to remove the files
        that are only the new owner's. So it is never closed: it lives, and does nothing, till the process ends.
        """
        self.log_handle = None
        log, self._log = self._log, None
        for database in (log, self._database):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(database))

    def _open_log(self) -> Rdict:
        if self._log is None:
            raise VolumeFailedError("the volume is closed")
        return self._log

    def _switch_log_family(self) -> None:
        _told(lambda: self._open_log().flush(False))

    def _read(self, read: Callable[[], Result]) -> Result:
        if self._log is None:
            raise VolumeFailedError("the volume is closed")
        try:
            return read()
        except StorageError:
            raise
        except Exception as error:
            if _NO_DESCRIPTORS in str(error):
                raise DescriptorsExhaustedError(no_descriptors(str(error))) from error
            raise VolumeCorruptError(f"reading failed: {error}") from error


def _told(act: Callable[..., Result], *arguments: object) -> Result:
    """What `act` returns; a bare exception of rocksdict becomes the error that it means."""
    try:
        return act(*arguments)
    except StorageError:
        raise
    except Exception as error:
        raise _meaning(str(error)) from error


def says_full(text: str) -> bool:
    """Whether an error's text says that the disk is full."""
    return any(phrase in text for phrase in _FULL)


def says_failing(text: str) -> bool:
    """Whether an error's text says that it is the disk or the system that fails, and maybe not for ever."""
    return any(phrase in text for phrase in _FAILING)


def says_damaged(text: str) -> bool:
    """Whether an error's text says that something on the disk cannot be read, and that asking again will not help."""
    return any(phrase in text for phrase in _DAMAGED)


def _meaning(text: str) -> StorageError:
    if text.startswith("IO error") and "lock" in text.lower().split(":", 2)[1]:
        return VolumeLockedError(f"the database is in use: {text}")
    if says_full(text):
        return VolumeFullError(f"the disk is full: {text}")
    if _NO_DESCRIPTORS in text:
        return DescriptorsExhaustedError(no_descriptors(text))
    if text.startswith("Corruption"):
        return VolumeCorruptError(f"the database is damaged: {text}")
    return VolumeFailedError(text)


# An error's traceback holds the frames it went through, these too: the iterator must not be in them, or the
# database would not close for as long as somebody keeps the error.


def _prefixed(iterator: RdictIter, prefix: bytes) -> list[tuple[bytes, bytes]]:
    try:
        found: list[tuple[bytes, bytes]] = []
        iterator.seek(prefix)
        while iterator.valid():
            key = iterator.key()
            if not key.startswith(prefix):
                return found
            found.append((key, iterator.value()))
            iterator.next()
        iterator.status()
        return found
    finally:
        del iterator


def _records(iterator: RdictIter, stream: int, after: int, upto: int, max_bytes: int) -> list[tuple[int, bytes]]:
    try:
        found: list[tuple[int, bytes]] = []
        end = RECORD_KEY.pack(stream + 1, 0)
        left = max_bytes
        iterator.seek(RECORD_KEY.pack(stream, after + 1))
        while iterator.valid():
            key = iterator.key()
            if key >= end:
                return found
            index = int.from_bytes(key[4:], "big")
            record = iterator.value()
            found.append((index, record))
            left -= len(record)
            if index >= upto or left <= 0:
                return found
            iterator.next()
        if not found:  # else what cannot be read is met by who reads on
            iterator.status()
        return found
    finally:
        del iterator


def _readable_from(iterator: Callable[[], RdictIter], stream: int, after: int, places: Sequence[int]) -> int | None:
    """Asks a new iterator each time: one that has failed may go on failing where nothing is damaged."""
    bad, good = after + 1, 0
    ok = 0
    for place in places:
        if place > bad:
            found = _found_at(iterator(), stream, place)
            if found is not None:
                ok, good = place, found
                break
            bad = place
    else:
        return None
    while ok - bad > 1:
        middle = (bad + ok) // 2
        found = _found_at(iterator(), stream, middle)
        if found is None:
            bad = middle
        else:
            ok, good = middle, found
    return good


def _found_at(iterator: RdictIter, stream: int, index: int) -> int | None:
    """The index of the first record at or behind `index`; None when it cannot be read, or there is none."""
    try:
        iterator.seek(RECORD_KEY.pack(stream, index))
        if not iterator.valid():
            return None
        found, there = RECORD_KEY.unpack(iterator.key())
        return int(there) if found == stream else None
    finally:
        del iterator


def _pairs(iterator: RdictIter, after: bytes, max_bytes: int) -> list[tuple[bytes, bytes]]:
    try:
        found: list[tuple[bytes, bytes]] = []
        iterator.seek(after + b"\x00")
        while iterator.valid() and max_bytes > 0:
            key, value = iterator.key(), iterator.value()
            found.append((key, value))
            max_bytes -= len(key) + len(value)
            iterator.next()
        if not found:
            iterator.status()
        return found
    finally:
        del iterator
