"""Records of the log: one per batch, appended under the batch's last tick (protocol: log).

    record := head, name of the publisher, crc32c of both u32, count × (length u32, body length u32), events

The events are the publisher's own bytes. The head says where the record belongs, so that one that turns
up elsewhere is noticed (S15): a tag of network and pubend, its own ticks, and the last
tick of the record before it. So a record that is missing between two others is noticed as well, and is
never taken for silence.
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
_HEAD = Struct("<BxHIQQQQQI")
_CHECKSUM = Struct("<I")
_LENGTHS = 8
"""Bytes of one event's two lengths."""


def tag_of(network: str, pubend: PubendId) -> int:
    """What every record of a pubend is marked with."""
    return int.from_bytes(blake2b(f"{network}/{pubend}".encode(), digest_size=8).digest(), "little")


def checksum(columns: EventColumns) -> int:
    """The crc32c of a batch's content: it tells a repeated batch from another one of the same sequence."""
    return int(google_crc32c.extend(google_crc32c.value(columns.lengths), columns.blob))


@dataclass(slots=True, eq=False)
class Record:
    """One batch as the log has it."""

    publisher: str
    epoch: int
    first_sequence: int
    first_tick: Tick
    previous: Tick
    """The last tick of the record before it, 0 in the first."""
    columns: EventColumns
    crc: int

    @property
    def count(self) -> int:
        """How many events it holds."""
        return self.columns.count

    @property
    def last_tick(self) -> Tick:
        """Its last event's tick, and its index in the log."""
        return self.first_tick + (self.count - 1) * STEP

    @property
    def ticks(self) -> Sequence[Tick]:
        """The ticks of its events."""
        return range(self.first_tick, self.last_tick + 1, STEP)

    def within(self, lo: Tick, hi: Tick) -> EventBatch:
        """Its events with ticks in (lo, hi]."""
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
    crc: int,
) -> bytes:
    """The bytes of what is read again as a `Record`."""
    assert previous < first_tick, "ticks ascend"
    name = publisher.encode()
    head = _HEAD.pack(VERSION, len(name), columns.count, tag, epoch, first_sequence, first_tick, previous, crc)
    checked = head + name
    return b"".join((checked, _CHECKSUM.pack(google_crc32c.value(checked)), columns.lengths, columns.blob))


def decode_record(tag: int, index: Tick, raw: bytes) -> Record:
    """A record from its bytes, under the index where it was found.

    Raises VolumeCorruptError if its bytes changed, or it belongs elsewhere.
    """
    try:
        version, name_length, count, found, epoch, first_sequence, first_tick, previous, crc = _HEAD.unpack_from(raw)
        start = _HEAD.size + name_length
        (head_crc,) = _CHECKSUM.unpack_from(raw, start)
    except error as fault:
        raise VolumeCorruptError(f"the record at tick {index} is too short to be one") from fault
    if version != VERSION or head_crc != google_crc32c.value(raw[:start]):
        raise VolumeCorruptError(f"the head of the record at tick {index} is damaged")
    if found != tag:
        raise VolumeCorruptError(f"the record at tick {index} belongs to another pubend")
    lengths = start + _CHECKSUM.size
    blob = lengths + _LENGTHS * count
    columns = EventColumns(count, raw[lengths:blob], raw[blob:])
    name = raw[_HEAD.size : start].decode()
    record = Record(name, epoch, first_sequence, first_tick, previous, columns, crc)
    if record.last_tick != index:
        raise VolumeCorruptError(f"the record at tick {index} was written for tick {record.last_tick}")
    if first_tick <= previous:
        raise VolumeCorruptError(f"the record at tick {index} begins before the one before it ends, at {previous}")
    if crc != checksum(columns):
        raise VolumeCorruptError(f"the events of the record at tick {index} are damaged")
    return record
