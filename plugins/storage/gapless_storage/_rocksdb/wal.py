"""RocksDB's write-ahead log (WAL), read by ourselves before RocksDB does.

No recovery mode of RocksDB proves that nothing is missing. Measured on 9.8, several log files being live:
after the end of one file was cut off between two records, or a file deleted, every mode opens and replays
the later files behind the hole; `tolerate_corrupted_tail_records` does so even when a record is torn. The
newest batch is then there, so a comparison with the fence alone is satisfied, and batches before it are
gone. Hence every batch begins with its number, and here the numbers are followed through all files.

What stands behind the first hole or damage was never durable if the fence says so; it is then cut off
(`cut`), and RocksDB is opened in its strictest mode, in which it has to agree that nothing is damaged.

The format is that of LevelDB: blocks of 32 KiB; in them fragments with a header of 7 bytes: checksum,
length, type. A fragment does not cross a block, a record may.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import google_crc32c

from gapless_storage._rocksdb.files import sync_directory, sync_file
from gapless_storage._rocksdb.keys import MARK_KEY
from gapless_storage._rocksdb.layout import MARK_BYTES, Mark

_BLOCK_BYTES = 32768
_HEADER = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4

# A record is a batch: sequence number (8 bytes), number of operations (4), then the operations. The first
# of ours is always "put, in the default family" (tag 1), a key and a value, each with its length before it.
_BATCH_HEADER_BYTES = 12
_FIRST_OPERATION = bytes([1, len(MARK_KEY)]) + MARK_KEY + bytes([MARK_BYTES])
_MARK_AT = _BATCH_HEADER_BYTES + len(_FIRST_OPERATION)
_HEAD_BYTES = _MARK_AT + MARK_BYTES


@dataclass(frozen=True, slots=True)
class Cut:
    """Bytes of a log file that follow the first hole or damage."""

    path: Path
    keep_bytes: int
    """0: the whole file goes."""
    cut_bytes: int


@dataclass(frozen=True, slots=True)
class Chain:
    """What the log files hold on top of what was flushed from them."""

    counter: int
    """Every batch up to here is there, whole."""
    cuts: tuple[Cut, ...]
    """What stands behind it."""
    reason: str
    """Why the chain ends where it ends, for people; "" when it ends with the last byte of the last file."""


def follow(directory: Path, volume: bytes, flushed: int) -> Chain:
    """Follows the numbers of the batches of `volume` from `flushed` on, through all log files."""
    counter, reason = flushed, ""
    cuts: list[Cut] = []
    hole = False
    for path in log_files(directory):
        size = path.stat().st_size
        keep = 0
        if not hole:
            for mark, end in _marks(path):
                if mark is None or mark.volume != volume:
                    reason = f"{path.name} holds a record that is not this volume's at byte {keep}"
                    break
                if mark.counter > counter + 1:
                    hole, reason = True, f"batch {counter + 1} is in no file, {path.name} goes on with {mark.counter}"
                    break
                counter, keep = max(counter, mark.counter), end
        if keep < size:
            cuts.append(Cut(path, keep, size - keep))
            reason = reason or f"{path.name} is damaged or torn at byte {keep}"
    return Chain(counter, tuple(cuts), reason)


def cut(chain: Chain) -> None:
    """Takes away what stands behind the chain. It must never have been durable."""
    for part in reversed(chain.cuts):  # a crash in between leaves a chain that ends at the same batch
        if part.keep_bytes == 0:
            part.path.unlink()
        else:
            with part.path.open("r+b") as file:
                file.truncate(part.keep_bytes)
                sync_file(file.fileno())
        sync_directory(part.path.parent)


def log_files(directory: Path) -> list[Path]:
    """The log files, oldest first."""
    return sorted(directory.glob("*.log"), key=lambda path: int(path.stem))


def _marks(path: Path) -> Iterator[tuple[Mark | None, int]]:
    """The mark of each record that is whole, None for a record without one, and where the record ends."""
    for head, end in _heads(path):
        mark = None
        if head[_BATCH_HEADER_BYTES:_MARK_AT] == _FIRST_OPERATION:
            try:
                mark = Mark.decode(head[_MARK_AT:_HEAD_BYTES])
            except ValueError:
                mark = None
        yield mark, end


def _heads(path: Path) -> Iterator[tuple[bytes, int]]:
    """The first bytes of each record and where it ends, up to the first that is damaged or not whole."""
    head: bytes | None = None  # of the record that was begun and has not ended
    for kind, fragment, end in _fragments(path):
        begins = kind in (_FULL, _FIRST)
        if begins == (head is not None):
            return
        head = fragment if head is None else head
        if len(head) < _HEAD_BYTES and not begins:
            head += fragment
        if kind in (_FULL, _LAST):
            yield head[:_HEAD_BYTES], end
            head = None


def _fragments(path: Path) -> Iterator[tuple[int, bytes, int]]:
    """Type, content and end of each fragment, up to the first that is damaged."""
    with path.open("rb") as file:
        start = 0
        while block := file.read(_BLOCK_BYTES):
            at = 0
            while at + _HEADER.size <= len(block):
                checksum, length, kind = _HEADER.unpack_from(block, at)
                end = at + _HEADER.size + length
                if not _FULL <= kind <= _LAST or end > len(block):
                    return
                if checksum != _masked(google_crc32c.value(block[at + 6 : end])):  # over type and content
                    return
                yield kind, block[at + _HEADER.size : end], start + end
                at = end
            if any(block[at:]):  # what is left of a block is too short for a header, and zero
                return
            start += len(block)


def _masked(checksum: int) -> int:
    """A checksum as LevelDB stores it, lest a checksum of data with checksums in it come out too regular."""
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF
