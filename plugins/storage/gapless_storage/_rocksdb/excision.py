"""Getting rid of what cannot be read: a database anew, of all that can, which takes the place of the old one.

RocksDB cannot drop a part of a data file, and whatever it would merge with a damaged one fails. So everything is
copied. Each step is durable before the next one:

    1. rocksdb.repaired   is made, and closed
    2. rocksdb            is renamed: it is kept, for whoever wants to look into it
    3. rocksdb.repaired   is renamed to rocksdb; an opening does this step if it finds it undone
    4. damaged            is removed
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from gapless.errors import RecordsDamagedError, VolumeCorruptError, VolumeFailedError
from gapless_storage._rocksdb.engine import Database
from gapless_storage._rocksdb.files import PRIVATE_DIRECTORY, sync_directory
from gapless_storage._rocksdb.keys import MARK_KEY
from gapless_storage._rocksdb.layout import RECORD_KEY, Mark
from gapless_storage._rocksdb.opening import DAMAGE_NOTE, REPAIRED, OpenVolume
from gapless_storage._rocksdb.seal import seal
from gapless_storage._rocksdb.streams import RocksdbStream

_COPY_BYTES = 4 << 20


def copy_readable(opened: OpenVolume, streams: Sequence[RocksdbStream], mark: Mark) -> None:
    """Step 1. Raises VolumeCorruptError if something cannot be read that was not given up."""
    target = opened.directory / REPAIRED
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(PRIVATE_DIRECTORY)
    fresh = Database(target, opened.tuning, create=True, compacting=True)
    try:
        _copy(opened.engine, fresh, streams, mark)
    except BaseException:
        fresh.close()
        shutil.rmtree(target, ignore_errors=True)
        raise
    if not fresh.close():
        raise VolumeFailedError(f"{target} could not be closed in order; nothing was changed")
    sync_directory(target)
    sync_directory(opened.directory)


def exchange(opened: OpenVolume, mark: Mark) -> Path:
    """Steps 2 to 4, for a database that is closed. Returns where the old one is now."""
    kept = next(path for path in _names(opened.directory) if not path.exists())
    seal(opened.seal_path, opened.directory / REPAIRED, mark)
    opened.database.rename(kept)
    sync_directory(opened.directory)
    (opened.directory / REPAIRED).rename(opened.database)
    sync_directory(opened.directory)
    (opened.directory / DAMAGE_NOTE).unlink(missing_ok=True)
    sync_directory(opened.directory)
    return kept


def _copy(source: Database, fresh: Database, streams: Sequence[RocksdbStream], mark: Mark) -> None:
    after = b""
    while pairs := source.pairs(after=after, max_bytes=_COPY_BYTES):
        after = pairs[-1][0]
        batch = fresh.repeating_batch(mark)
        for key, value in pairs:
            if key != MARK_KEY:
                batch.put(key, value)
        fresh.write(batch)
    for stream in streams:
        for records in _readable(stream):
            batch = fresh.repeating_batch(mark)
            for index, record in records:
                batch.put(RECORD_KEY.pack(stream.stream_id, index), record, fresh.log_handle)
            fresh.write(batch)
    fresh.write(fresh.marked_batch(mark))
    fresh.sync_log()


def _readable(stream: RocksdbStream) -> Iterator[Sequence[tuple[int, bytes]]]:
    after = stream.first
    while after < stream.last:
        try:
            records = stream.read(after, stream.last, _COPY_BYTES)
        except RecordsDamagedError as error:
            if not error.given_up:
                raise VolumeCorruptError(f"{error}. It was not given up, so nothing was changed") from None
            after = error.upto
            continue
        if not records:
            return
        yield records
        after = records[-1][0]


def _names(directory: Path) -> Iterator[Path]:
    number = 1
    while True:
        yield directory / f"rocksdb.damaged-{number}"
        number += 1
