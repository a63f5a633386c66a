"""The reader of RocksDB's log format, against files that RocksDB wrote and files that are damaged."""

from __future__ import annotations

import struct
from pathlib import Path

import google_crc32c
import pytest

from conformance.storages import RocksdbHarness
from gapless_storage._rocksdb.logformat import _masked, intact_records
from gapless_storage._rocksdb.wal import log_files

SIZES = [0, 1, 100, 32_000, 32_700, 32_768, 70_000, 200_000, 5]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log with records of sizes around the block size."""
    harness = RocksdbHarness(tmp_path)
    volume = harness.open()
    for index, size in enumerate(SIZES * 3, 1):
        volume.stream("s").put(index, bytes([index]) * size)
        volume.write()
    copied = tmp_path / "copied.log"
    (path,) = log_files(harness.directory / "rocksdb")
    copied.write_bytes(path.read_bytes())
    volume.close()
    return copied


def test_it_reads_what_rocksdb_wrote(log: Path) -> None:
    records = list(intact_records(log, 100))

    assert len(records) == 1 + len(SIZES) * 3  # the first one is the creation's
    assert records[-1][1] == log.stat().st_size
    assert all(len(head) <= 100 for head, _ in records)
    assert [end for _, end in records] == sorted({end for _, end in records})


def test_heads_do_not_depend_on_blocks(log: Path) -> None:
    """A record that begins at the end of a block has its first bytes in two."""
    assert all(len(head) == 80 for head, _ in intact_records(log, 80))


@pytest.mark.parametrize("mask", [0x01, 0x04, 0x80])
def test_it_ends_at_the_first_flipped_byte(log: Path, mask: int) -> None:
    """In headers too, where RocksDB may take a flipped type for an end of file, or hang."""
    content = log.read_bytes()
    ends = [end for _, end in intact_records(log, 1)]
    headers = [place for start in [0, *ends[:6]] for place in range(start, start + 7)]
    for place in [*headers, *range(0, len(content), 19_997)]:
        spoilt = bytearray(content)
        spoilt[place] ^= mask
        log.write_bytes(spoilt)

        expected = [end for end in ends if end <= place]
        assert [end for _, end in intact_records(log, 1)] == expected


def test_it_ends_at_the_last_whole_record(log: Path) -> None:
    content = log.read_bytes()
    ends = [end for _, end in intact_records(log, 1)]
    for length in range(0, len(content), 9_973):
        log.write_bytes(content[:length])

        assert [end for _, end in intact_records(log, 1)] == [end for end in ends if end <= length]


@pytest.mark.parametrize("tail", [bytes(3), bytes(5000), bytes(70_000), b"\xff" * 5000, b"\0\0\0\0\0\0\x01"])
def test_a_tail_of_nothing_is_no_record(log: Path, tail: bytes) -> None:
    expected = [end for _, end in intact_records(log, 1)]
    with log.open("ab") as file:
        file.write(tail)

    assert [end for _, end in intact_records(log, 1)] == expected


@pytest.mark.parametrize("kind", [0, 5, 6, 9, 130])
def test_a_type_that_we_do_not_have_written_ends_it(log: Path, kind: int) -> None:
    """With the right checksum, too: recycled files, compressed logs and padding are not ours."""
    content = bytes([kind]) + b"content"
    header = struct.pack("<IHB", _masked(google_crc32c.value(content)), len(content) - 1, kind)
    log.write_bytes(header + content[1:] + log.read_bytes())

    assert list(intact_records(log, 10)) == []


@pytest.mark.parametrize("order", [(2, 1), (2, 2), (3, 4), (4,), (2, 4, 4), (2, 3, 1)])
def test_fragments_come_in_their_order(tmp_path: Path, order: tuple[int, ...]) -> None:
    fragments = []
    for kind in order:
        content = bytes([kind]) + b"content"
        fragments.append(struct.pack("<IHB", _masked(google_crc32c.value(content)), len(content) - 1, kind))
        fragments.append(content[1:])
    (tmp_path / "log").write_bytes(b"".join(fragments))

    records = list(intact_records(tmp_path / "log", 100))

    assert records == ([(b"contentcontent", 28)] if order == (2, 4, 4) else [])
