"""How the database is laid out: two column families, their keys, and the mark that every batch carries.

    default   marks, names, chop points, ends, size notes, tables: all small
    log       the records of all streams, under `>IQ`: stream, index

Both families hold the mark of the newest batch. So each family says by itself how far it came, and a
family that lost its newest files cannot hide behind the other. In `log` the mark sorts behind all
records, where it drags no old file into a compaction.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import google_crc32c

RECORD_KEY = struct.Struct(">IQ")
INDEX_MAX = 2**63 - 1
STREAM_ID_MAX = 2**32 - 2

NEXT_ID_KEY = b"\x00next"

STREAM_NAMES = b"\x01"
TABLE_NAMES = b"\x02"
_CHOP = b"\x03"
_RECLAIM = b"\x04"
_SIZE_NOTE = b"\x05"
_ROW = b"\x06"
_END = b"\x07"
_GIVEN_UP = b"\x08"

_ID = struct.Struct(">I")
_MARK = struct.Struct(">16sQQQQ")
_CHECKED_MARK = struct.Struct(">16sQQQQI")


@dataclass(frozen=True, slots=True)
class Mark:
    """The place of a batch in a volume's history; every batch and the fence carry one."""

    volume: bytes
    """16 random bytes: which volume."""
    generation: int
    """Counts the openings of the volume."""
    opening: int
    """64 random bits of this opening: tells two copies that went on separately from each other."""
    previous: int
    """The `opening` that this one went on from."""
    counter: int
    """Counts the batches of the volume, from 1, without a hole."""

    def encode(self) -> bytes:
        """The mark as bytes, with a checksum."""
        body = _MARK.pack(self.volume, self.generation, self.opening, self.previous, self.counter)
        return body + _ID.pack(google_crc32c.value(body))

    @classmethod
    def decode(cls, encoded: bytes) -> Mark:
        """The mark that was encoded. Raises ValueError if that is garbled."""
        if len(encoded) != _CHECKED_MARK.size:
            raise ValueError(f"a mark has {_CHECKED_MARK.size} bytes, not {len(encoded)}")
        volume, generation, opening, previous, counter, checksum = _CHECKED_MARK.unpack(encoded)
        if checksum != google_crc32c.value(encoded[: _MARK.size]):
            raise ValueError("the checksum of a mark does not match")
        return cls(volume, generation, opening, previous, counter)

    def next(self) -> Mark:
        """The mark of the batch that follows, in the same opening."""
        return Mark(self.volume, self.generation, self.opening, self.previous, self.counter + 1)


MARK_BYTES = _CHECKED_MARK.size


def stream_name_key(name: str) -> bytes:
    """Where the id of a stream is kept."""
    return STREAM_NAMES + name.encode()


def table_name_key(name: str) -> bytes:
    """Where the id of a table is kept."""
    return TABLE_NAMES + name.encode()


def chop_key(stream_id: int) -> bytes:
    """Where a stream's chop point is kept."""
    return _CHOP + _ID.pack(stream_id)


def reclaim_key(stream_id: int) -> bytes:
    """Where it is kept how much of a stream was given back to the disk."""
    return _RECLAIM + _ID.pack(stream_id)


def end_key(stream_id: int) -> bytes:
    """Where it is kept where a stream ends, and how many bytes were ever put into it."""
    return _END + _ID.pack(stream_id)


def size_note_prefix(stream_id: int) -> bytes:
    """What all size notes of a stream begin with."""
    return _SIZE_NOTE + _ID.pack(stream_id)


def given_up_prefix(stream_id: int) -> bytes:
    """What all ranges that were given up of a stream begin with."""
    return _GIVEN_UP + _ID.pack(stream_id)


def row_prefix(table_id: int) -> bytes:
    """What all rows of a table begin with."""
    return _ROW + _ID.pack(table_id)


def encode_id(number: int) -> bytes:
    """A stream's or table's id as a value."""
    return _ID.pack(number)


def decode_id(encoded: bytes) -> int:
    """The id that was encoded."""
    (number,) = _ID.unpack(encoded)
    return int(number)
