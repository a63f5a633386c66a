"""The format of RocksDB's logs, of its MANIFEST too: it comes from LevelDB, and has not changed since.

Blocks of 32 KiB; in them fragments with a header of 7 bytes: checksum, length, type. A fragment does not
cross the end of a block, a record may. RocksDB's own reader takes some damage for an end, or for types
that occur in recycled files, and goes on or hangs; this one ends at the first byte that is not as we, who
recycle nothing, had it written.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import google_crc32c

_BLOCK_BYTES = 32768
_HEADER = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def intact_records(path: Path, head_bytes: int) -> Iterator[tuple[bytes, int]]:
    """Each record's first `head_bytes` and where it ends, up to the first that is damaged or not whole."""
    head: bytes | None = None  # of the record that was begun and has not ended
    for kind, fragment, end in _fragments(path):
        begins = kind in (_FULL, _FIRST)
        if begins == (head is not None):
            return
        head = fragment if head is None else head
        if len(head) < head_bytes and not begins:
            head += fragment
        if kind in (_FULL, _LAST):
            yield head[:head_bytes], end
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
