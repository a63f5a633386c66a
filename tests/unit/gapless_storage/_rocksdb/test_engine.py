"""The traps of rocksdict that the engine closes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gapless.errors import (
    StorageError,
    VolumeCorruptError,
    VolumeFailedError,
    VolumeFullError,
    VolumeLockedError,
)
from gapless_storage._rocksdb.engine import Database, Tuning, _meaning
from gapless_storage._rocksdb.layout import RECORD_KEY, Mark

TUNING = Tuning(write_buffer_bytes=64 << 10, compression="none")
MARK = Mark(bytes(16), 1, 1, 0, 1)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Database]:
    engine = Database(tmp_path / "database", TUNING, create=True, compacting=True)
    yield engine
    engine.close()


def put(engine: Database, stream: int, *indexes: int, size: int = 10) -> None:
    batch = engine.marked_batch(MARK)
    for index in indexes:
        batch.put(RECORD_KEY.pack(stream, index), b"%d " % index * (size // 2), engine.log_handle)
    engine.write(batch)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("IO error: While lock file: /d/LOCK: Resource temporarily unavailable", VolumeLockedError),
        ("IO error: lock hold by current process, acquire time 1 acquiring thread 2: /d/LOCK", VolumeLockedError),
        ("IO error: No space left on device: While appending to file: /d/4.log: No space…", VolumeFullError),
        ("IO error: While appending to file: /d/4.log: File too large", VolumeFullError),
        ("IO error: While appending to file: /d/4.log: Disk quota exceeded", VolumeFullError),
        ("Corruption: block checksum mismatch: stored = 1, computed = 2", VolumeCorruptError),
        ("IO error: While fdatasync: /block/4.log: Input/output error", VolumeFailedError),
        ("Invalid argument: Column family not found: log", VolumeFailedError),
        ("Result incomplete: Write stall", VolumeFailedError),
    ],
)
def test_errors_are_told_apart_by_their_text(text: str, kind: type[StorageError]) -> None:
    assert type(_meaning(text)) is kind


def test_a_second_one_is_locked_out(engine: Database, tmp_path: Path) -> None:
    with pytest.raises(VolumeLockedError):
        Database(tmp_path / "database", TUNING, create=False, compacting=True)


def test_an_existing_database_is_not_created(engine: Database, tmp_path: Path) -> None:
    engine.close()

    with pytest.raises(VolumeFailedError, match="exists"):
        Database(tmp_path / "database", TUNING, create=True, compacting=True)


def test_a_missing_database_is_not_opened(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        Database(tmp_path / "database", TUNING, create=False, compacting=True)


def test_marks_are_in_both_families(engine: Database) -> None:
    put(engine, 1, 1)

    assert (engine.mark(), engine.log_mark()) == (MARK.encode(), MARK.encode())


def test_a_repeating_batch_leaves_the_log_family_alone(engine: Database) -> None:
    put(engine, 1, 1)
    engine.write(engine.repeating_batch(MARK.next()))

    assert (engine.mark(), engine.log_mark()) == (MARK.next().encode(), MARK.encode())


@pytest.mark.parametrize("flushed", [True, False])
def test_streams_end_at_their_borders(engine: Database, flushed: bool) -> None:
    put(engine, 1, 1, 2**63 - 1)
    put(engine, 2, 5)
    if flushed:
        engine.flush_log_family()

    assert [index for index, _ in engine.records(1, 0, 2**63, 1 << 20)] == [1, 2**63 - 1]
    assert [index for index, _ in engine.records(2, 0, 2**63, 1 << 20)] == [5]
    assert engine.records(3, 0, 2**63, 1 << 20) == []


def test_an_empty_range_is_never_deleted(engine: Database) -> None:
    """An inverted one would poison the database until it is reopened."""
    with pytest.raises(AssertionError):
        engine.delete_records(engine.repeating_batch(MARK), 1, after=5, upto=5)


def test_a_deleted_range_is_alone_in_its_file(engine: Database) -> None:
    """Beside new records it would span all keys, and drag every file into each compaction."""
    put(engine, 1, *range(1, 200), size=500)
    engine.flush_log_family()
    put(engine, 1, *range(200, 210), size=500)
    batch = engine.repeating_batch(MARK)
    engine.delete_records(batch, 1, after=0, upto=100)

    engine.isolate_in_file(batch)
    engine.flush_log_family()

    # One file more, and RocksDB would begin to compact them whenever it likes.
    files = [file for file in engine._database.live_files() if file["num_deletions"]]
    assert [(file["num_entries"], file["num_deletions"]) for file in files] == [(1, 1)]
    put(engine, 1, *range(210, 220), size=500)
    engine.flush_log_family()
    assert engine.records(1, 0, 2**63, 1)[0][0] == 101


def spoil(directory: Path, wanted: bytes) -> None:
    for path in directory.glob("*.sst"):
        content = bytearray(path.read_bytes())
        if (place := content.find(wanted)) >= 0:
            content[place] ^= 1
            path.write_bytes(content)
            return
    raise AssertionError(f"{wanted!r} is in no data file")


def spoilt_engine(engine: Database, tmp_path: Path) -> Database:
    """With a record 100 that cannot be read."""
    put(engine, 1, *range(1, 201), size=500)
    batch = engine.marked_batch(MARK)
    for number in range(200):
        batch.put(b"\x06row %03d" % number, b"value %03d" % number * 100)
    engine.write(batch)
    engine.close()
    spoil(tmp_path / "database", b"100 100 100 ")
    spoil(tmp_path / "database", b"value 100value 100")
    return Database(tmp_path / "database", TUNING, create=False, compacting=True)


def test_a_scan_over_a_spoilt_block_raises(engine: Database, tmp_path: Path) -> None:
    """The iteration of rocksdict itself ends there without a word."""
    opened = spoilt_engine(engine, tmp_path)
    silent = [key for key in opened._database.keys(from_key=b"\x06") if isinstance(key, bytes)]

    before = opened.records(1, 0, 2**63, 1 << 30)
    with pytest.raises(VolumeCorruptError):
        opened.records(1, before[-1][0], 2**63, 1 << 30)
    with pytest.raises(VolumeCorruptError):
        opened.scan(b"\x06")
    with pytest.raises(VolumeCorruptError):
        opened.get(b"\x06row 100")
    opened.close()

    assert [index for index, _ in before] == list(range(1, before[-1][0] + 1))
    assert before[-1][0] < 100
    assert len(silent) < 200  # the trap that this closes is still there


def test_the_record_behind_a_spoilt_block_is_found(engine: Database, tmp_path: Path) -> None:
    opened = spoilt_engine(engine, tmp_path)
    before = opened.records(1, 0, 2**63, 1 << 30)[-1][0]
    readable = []
    for index in range(1, 201):
        with suppress(VolumeCorruptError):
            readable += [found for found, _ in opened.records(1, index - 1, index, 1)]

    found = opened.readable_from(1, before, [before, 150, 200])

    assert found == min(index for index in readable if index > before)
    assert 100 < found <= 120
    assert opened.readable_from(1, before, [before, 100]) is None
    opened.close()


def test_what_is_merged_no_more_is_written_on(engine: Database, tmp_path: Path) -> None:
    """Whatever is merged with a spoilt block fails, and with it all writes."""
    opened = spoilt_engine(engine, tmp_path)
    opened.stop_compacting()
    for round_ in range(1, 12):
        put(opened, 1, 200 + round_)
        opened.flush_log_family()

    assert [index for index, _ in opened.records(1, 200, 2**63, 1 << 20)] == list(range(201, 212))
    assert opened.close() is True


def test_an_error_holds_no_iterator(engine: Database, tmp_path: Path) -> None:
    """A live one would keep the database, and its lock, open."""
    opened = spoilt_engine(engine, tmp_path)
    with pytest.raises(VolumeCorruptError) as of_records:
        opened.records(1, 99, 2**63, 1 << 30)
    with pytest.raises(VolumeCorruptError) as of_scan:
        opened.scan(b"\x06")
    opened.close()

    Database(tmp_path / "database", TUNING, create=False, compacting=True).close()

    assert of_records.value is not of_scan.value


def test_a_closed_one_says_so(engine: Database) -> None:
    assert engine.close() is True

    for call in (
        lambda: engine.records(1, 0, 1, 1),
        lambda: engine.get(b"key"),
        lambda: engine.scan(b""),
        engine.flush_log_family,
    ):
        with pytest.raises(VolumeFailedError):
            call()
