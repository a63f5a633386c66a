"""Encodes and decodes the records of the log. Each batch is one record, under its last tick (protocol: log).

    record := head, name of the publisher, crc32c of both u32, count × (length u32, body length u32), events
            | head, name of the publisher, length of the tokens u32, tokens, crc32c of all that u32,
              count × (length u32, body length u32), events                            (version 2: with tokens)

The events are the publisher's own bytes, never encoded again. The head holds a tag of network and pubend, the ticks
of the record, and the last tick of the record before it. So a record at a wrong place is detected (S15), and so is a
record that is missing between two others; a missing record is never taken for silence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct, error

import google_crc32c

from gapless.core.stream.columns import EventBatch, EventColumns
from gapless.core.stream.ticks import STEP, PubendId, Tick
from gapless.errors import VolumeCorruptError

VERSION = 1
VERSION_WITH_TOKENS = 2
_HEAD = Struct("<BxHIQQQQQI")
_CHECKSUM = Struct("<I")
_LENGTH = Struct("<I")
_LENGTHS = 8
"""How many bytes the two lengths of one event take."""


def tag_of(network: str, pubend: PubendId) -> int:
    """Returns the mark in every record of a pubend."""
    return int.from_bytes(blake2b(f"{network}/{pubend}".encode(), digest_size=8).digest(), "little")


def checksum(columns: EventColumns, tokens: bytes) -> int:
    """Returns the crc32c of a batch's content. A repeated batch has the same one; another of its sequence does not.

    The tokens are a part of the content: of two batches with equal events, each stores its own position (TS7).
    """
    crc = int(google_crc32c.extend(google_crc32c.value(columns.lengths), columns.blob))
    return int(google_crc32c.extend(crc, tokens)) if tokens else crc


@dataclass(slots=True, eq=False)
class Record:
    """One batch, as it is in the log."""

    publisher: str
    epoch: int
    first_sequence: int
    first_tick: Tick
    previous: Tick
    """The last tick of the record before this one; 0 in the first record."""
    columns: EventColumns
    tokens: bytes
    """The tokens that were stored with it (`gapless.core.wire.tokens.join_tokens`), or b""."""
    crc: int

    @property
    def count(self) -> int:
        """How many events the record holds."""
        return self.columns.count

    @property
    def last_tick(self) -> Tick:
        """The tick of its last event. It is also the index of the record in the log."""
        return self.first_tick + (self.count - 1) * STEP

    @property
    def ticks(self) -> Sequence[Tick]:
        """The ticks of its events."""
        return range(self.first_tick, self.last_tick + 1, STEP)

    def within(self, lo: Tick, hi: Tick) -> EventBatch:
        """Returns its events with ticks in (lo, hi]."""
        start = max(0, (lo - self.first_tick) // STEP + 1)
        stop = max(start, (hi - self.first_tick) // STEP + 1)
        return self.columns.batch(self.ticks).slice(start, min(stop, self.count))


def encode_record(
    tag: int,
    publisher: str,
    epoch: int,
    first_sequence: int,
    first_tick: Tick,
    previous: Tick,
    columns: EventColumns,
    tokens: bytes,
    crc: int,
) -> bytes:
    """Returns the bytes that `decode_record` reads."""
    assert previous < first_tick, "ticks ascend"
    name = publisher.encode()
    version = VERSION_WITH_TOKENS if tokens else VERSION
    head = _HEAD.pack(version, len(name), columns.count, tag, epoch, first_sequence, first_tick, previous, crc)
    checked = head + name + _LENGTH.pack(len(tokens)) + tokens if tokens else head + name
    return b"".join((checked, _CHECKSUM.pack(google_crc32c.value(checked)), columns.lengths, columns.blob))


def decode_record(tag: int, index: Tick, raw: bytes) -> Record:
    """Decodes the record that was found under an index.

    Raises VolumeCorruptError if its bytes have changed, or if it belongs to another place.
    """
    try:
        version, name_length, count, found, epoch, first_sequence, first_tick, previous, crc = _HEAD.unpack_from(raw)
        named = start = _HEAD.size + name_length
        if version == VERSION_WITH_TOKENS:
            named += _LENGTH.size
            start = named + _LENGTH.unpack_from(raw, named - _LENGTH.size)[0]
        (head_crc,) = _CHECKSUM.unpack_from(raw, start)
    except error as fault:
        raise VolumeCorruptError(f"the record at tick {index} is too short to be one") from fault
    if version not in {VERSION, VERSION_WITH_TOKENS} or head_crc != google_crc32c.value(raw[:start]):
        raise VolumeCorruptError(f"the head of the record at tick {index} is damaged")
    if found != tag:
        raise VolumeCorruptError(f"the record at tick {index} belongs to another pubend")
    lengths = start + _CHECKSUM.size
    blob = lengths + _LENGTHS * count
    columns = EventColumns(count, raw[lengths:blob], raw[blob:])
    name, tokens = raw[_HEAD.size : _HEAD.size + name_length].decode(), raw[named:start]
    record = Record(name, epoch, first_sequence, first_tick, previous, columns, tokens, crc)
    if record.last_tick != index:
        raise VolumeCorruptError(f"the record at tick {index} was written for tick {record.last_tick}")
    if first_tick <= previous:
        raise VolumeCorruptError(f"the record at tick {index} begins before the one before it ends, at {previous}")
    if crc != checksum(columns, tokens):
        raise VolumeCorruptError(f"the events of the record at tick {index} are damaged")
    return record
