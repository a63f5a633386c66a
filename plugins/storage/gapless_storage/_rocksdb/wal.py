"""RocksDB's write-ahead log (WAL), read by ourselves before RocksDB does.

No recovery mode of RocksDB proves that nothing is missing. Measured on 9.8, several log files being live:
after the end of one file was cut off between two records, or a file deleted, every mode opens and replays
the later files behind the hole; `tolerate_corrupted_tail_records` does so even when a record is torn. The
newest batch is then there, so a comparison with the fence alone is satisfied, and batches before it are
gone. Hence every batch begins with its number, and here the numbers are followed through all files.

A batch that only gives space back repeats the number of the one before it, in the default family alone. It may
stand in the next file, where its number must not pass for the batch that it repeats.

What stands behind the first hole or damage was never durable if the fence says so; it is then cut off
(`cut`), and RocksDB is opened in its strictest mode, in which it has to agree that nothing is damaged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gapless_storage._rocksdb.files import sync_directory, sync_file
from gapless_storage._rocksdb.keys import LOG_MARK_KEY, MARK_KEY
from gapless_storage._rocksdb.layout import MARK_BYTES, Mark
from gapless_storage._rocksdb.logformat import intact_records

# A record is a batch: sequence number (8 bytes), number of operations (4), then the operations. The first
# of ours is always "put, in the default family" (tag 1), a key and a value, each with its length before it. The
# second is "put, in a family" (tag 5), the family's number, key and value; a batch that repeats a number lacks it.
_BATCH_HEADER_BYTES = 12
_FIRST_OPERATION = bytes([1, len(MARK_KEY)]) + MARK_KEY + bytes([MARK_BYTES])
_MARK_AT = _BATCH_HEADER_BYTES + len(_FIRST_OPERATION)
_SECOND_AT = _MARK_AT + MARK_BYTES
_SECOND_KEY = bytes([len(LOG_MARK_KEY)]) + LOG_MARK_KEY
_HEAD_BYTES = _SECOND_AT + 2 + len(_SECOND_KEY)


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
            for mark, repeats, end in marks(path):
                if mark is None or mark.volume != volume:
                    reason = f"{path.name} holds a record that is not this volume's at byte {keep}"
                    break
                if mark.counter > (counter if repeats else counter + 1):
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


def marks(path: Path) -> Iterator[tuple[Mark | None, bool, int]]:
    """Of each record that is whole: its mark, or None; whether it repeats that of another batch; where it ends."""
    for head, end in intact_records(path, _HEAD_BYTES):
        mark = None
        if head[_BATCH_HEADER_BYTES:_MARK_AT] == _FIRST_OPERATION:
            try:
                mark = Mark.decode(head[_MARK_AT:_SECOND_AT])
            except ValueError:
                mark = None
        yield mark, head[_SECOND_AT + 2 :] != _SECOND_KEY, end
