"""What stands in a Kafka log: record batches, as a fetch returns them and a produce takes them.

A batch is what Kafka writes and reads as a whole: the producer's records, maybe compressed, under a header that says
where they stand and who wrote them. It also is what is atomic. Records are parsed by aiokafka's compiled parser.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from operator import add
from typing import Any, Final, NamedTuple, Protocol, cast

import google_crc32c

from gapless.errors import PluginError
from gapless_log.kafka import unpacking
from gapless_log.kafka.messages import Aborted
from gapless_log.kafka.wire import Reader, varint

Headers = Sequence[tuple[str, bytes | None]]

BATCH_BYTES_MAX: Final = (1 << 31) - 1
"""What a length in a batch can say; what a topic takes is its `max.message.bytes`."""

_HEAD: Final = struct.Struct(">qiibIhiqqqhii")
_LENGTH, _ATTRIBUTES = 1, 5
"""Which parts of it these are."""
_COUNT: Final = struct.Struct(">i")
"""The last part of it."""
_PREFIX: Final = 12
"""Of a batch, that its length does not count: its offset, and that length."""
_CHECKED: Final = 21
"""From here on a batch is covered by its checksum: not its offset and leader epoch, which the broker fills in."""
_MAGIC: Final = 2
_COMPRESSION, _APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
_MARKER: Final = struct.Struct(">hh")
NO_VALUE: Final = b"\1"
"""What stands in a record where there is no key, or no value."""


class CorruptBatchError(ValueError):
    """Bytes that should be a record batch are none, or are damaged."""


class Compression(enum.IntEnum):
    """How the records of a batch are compressed. gzip is Python's own; the others need cramjam, which the extra has."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class Marker(enum.Enum):
    """What a control batch says of the transaction of its producer; it has an offset like a record."""

    COMMIT = "commit"
    ABORT = "abort"
    OTHER = "other"


class Batch(NamedTuple):
    """A record batch."""

    first: int
    """Offset of its first record, or of where that stood before compaction."""
    last: int
    """Offset of its last record, likewise."""
    leader_epoch: int
    record_count: int
    """Of records; compaction can leave a batch with none."""
    compression: Compression
    is_transactional: bool
    is_control: bool
    producer_id: int
    """-1: a producer that is not idempotent."""
    producer_epoch: int
    sequence: int
    """Of its first record, for the producer."""
    max_timestamp: int
    """Milliseconds."""
    has_append_time: bool
    """Whether the records bear the time of their append, `max_timestamp`, and not their producer's."""
    raw: bytes
    """All of it."""

    def marker(self) -> Marker | None:
        """What a control batch says; of any other batch None."""
        if not self.is_control:
            return None
        (record,) = records(self)
        version, kind = _MARKER.unpack_from(record.key or b"\xff\xff\xff\xff")
        known = {0: Marker.ABORT, 1: Marker.COMMIT} if version == 0 else {}
        return known.get(kind, Marker.OTHER)


class Record(Protocol):
    """A record, as aiokafka's parser has it: a copy of each would cost as much again."""

    @property
    def offset(self) -> int:
        """Where it stands."""

    @property
    def timestamp(self) -> int:
        """Milliseconds."""

    @property
    def key(self) -> bytes | None:
        """By which it is compacted, and its partition was chosen."""

    @property
    def value(self) -> bytes | None:
        """None: it deletes what has its key, where that is compacted."""

    @property
    def headers(self) -> Headers:
        """Names and values, in order; a name may come twice."""


def batches(data: bytes) -> Iterator[Batch]:
    """The whole batches that a fetch returned, in order; what is left of the last one, which was cut off, is left out.

    Raises CorruptBatchError for a batch that is damaged, or is older than Kafka 0.11.
    """
    at = 0
    while at + _HEAD.size <= len(data):
        (
            first,
            length,
            leader_epoch,
            magic,
            checksum,
            attributes,
            last_delta,
            _,
            max_timestamp,
            producer_id,
            producer_epoch,
            sequence,
            count,
        ) = _HEAD.unpack_from(data, at)
        end = at + _PREFIX + length
        if magic != _MAGIC:
            raise CorruptBatchError(f"the batch at offset {first} has format {magic}, not {_MAGIC}: it is too old")
        if length < _HEAD.size - _PREFIX:
            raise CorruptBatchError(f"the batch at offset {first} has {length} bytes, fewer than its header")
        if end > len(data):
            return
        if google_crc32c.value(data[at + _CHECKED : end]) != checksum:
            raise CorruptBatchError(f"the batch at offset {first} does not have its checksum")
        yield Batch(
            first=first,
            last=first + last_delta,
            leader_epoch=leader_epoch,
            record_count=count,
            compression=Compression(attributes & _COMPRESSION),
            is_transactional=bool(attributes & _TRANSACTIONAL),
            is_control=bool(attributes & _CONTROL),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            sequence=sequence,
            max_timestamp=max_timestamp,
            has_append_time=bool(attributes & _APPEND_TIME),
            raw=data[at:end],
        )
        at = end


def without_aborted(found: Sequence[Batch], aborted: Sequence[Aborted]) -> Iterator[tuple[Batch, bool]]:
    """Each batch of a fetch of committed records, and whether its records count.

    Markers do not, and neither does what a producer wrote from the first offset of its aborted transaction up to
    the marker that ends it. What it wrote before and after belongs to other transactions.
    """
    ahead = sorted(aborted, key=lambda each: each.first, reverse=True)
    aborting: set[int] = set()
    for batch in found:
        while ahead and ahead[-1].first <= batch.last:
            aborting.add(ahead.pop().producer_id)
        if batch.is_control:
            if batch.marker() is Marker.ABORT:
                aborting.discard(batch.producer_id)
            yield batch, False
        else:
            yield batch, not (batch.is_transactional and batch.producer_id in aborting)


def records(batch: Batch) -> list[Record]:
    """The records of a batch, decompressed.

    Raises CorruptBatchError when they are damaged in spite of their checksum, or too many bytes: whoever wrote them
    wrote them so; and PluginError when what decompresses them is not installed.
    """
    from aiokafka.record.default_records import DefaultRecordBatch

    try:
        return list(DefaultRecordBatch(_unpacked(batch)))
    except ImportError as error:
        raise PluginError(f'{batch.compression.name} needs cramjam: pip install "gapless[kafka]"') from error
    except Exception as error:  # each library that reads it has errors of its own
        raise CorruptBatchError(f"the batch at offset {batch.first} cannot be read: {error}") from error


_UNPACK: Final[Mapping[Compression, Callable[[memoryview], bytes]]] = {
    Compression.GZIP: unpacking.gzip,
    Compression.SNAPPY: unpacking.snappy,
    Compression.LZ4: unpacking.lz4,
    Compression.ZSTD: unpacking.zstd,
}


def _unpacked(batch: Batch) -> bytes:
    """The same batch without compression, its checksum apart. The parser would unpack it, however much is in it."""
    if batch.compression is Compression.NONE:
        return batch.raw
    body = _UNPACK[batch.compression](memoryview(batch.raw)[_HEAD.size :])
    head = list(_HEAD.unpack_from(batch.raw))
    head[_LENGTH] = _HEAD.size - _PREFIX + len(body)
    head[_ATTRIBUTES] &= ~_COMPRESSION
    return _HEAD.pack(*head) + body


class NewRecord(NamedTuple):
    """A record to be appended."""

    timestamp: int
    """Milliseconds."""
    key: bytes | None
    value: bytes | None
    headers: Headers


def encode(new: Sequence[NewRecord], compression: Compression) -> bytes:
    """One batch of these records, to be appended as a whole or not at all."""
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    assert new
    builder: Any = DefaultRecordBatchBuilder(_MAGIC, int(compression), 0, -1, -1, -1, BATCH_BYTES_MAX)
    for number, record in enumerate(new):
        added = builder.append(number, record.timestamp, record.key, record.value, list(record.headers))
        assert added is not None
    return bytes(builder.build())


def sized(values: Sequence[bytes]) -> list[bytes]:
    """Returns what stands before each of these values in a record: how long it is."""
    return [_SIZES[size] if size < len(_SIZES) else varint(2 * size) for size in map(len, values)]


def encode_all(contents: Sequence[bytes]) -> bytes:
    """One batch, as `encode` makes it of records that bear the time 0; of each the bytes from its key on."""
    places = _places(len(contents))
    placed = list(map(add, places, contents))
    body = b"".join(chain.from_iterable(zip(sized(placed), placed, strict=True)))
    head = _head(len(contents), len(body))
    checksum: int = google_crc32c.value(head[_CHECKED:] + body)
    return head[: _CHECKED - 4] + checksum.to_bytes(4, "big") + head[_CHECKED:] + body


def join(raws: Sequence[bytes]) -> bytes:
    """Joins batches of `encode` that are not compressed, and whose records bear the time 0, to one, with no checksum.

    Only where a record stands in its batch is written anew: to decode all records and encode them again costs thrice
    as much.
    """
    if len(raws) == 1:
        return raws[0]
    parts = [raws[0][_HEAD.size :]]  # its records stand where they will stand
    number = _count(raws[0])
    for raw in raws[1:]:
        at = _HEAD.size
        count = _count(raw)
        places = _places(number + count)
        for old, new in zip(places[:count], places[number:], strict=True):
            low, high = raw[at], raw[at + 1]
            if low < 0x80:
                length, at = low, at + 1
            elif high < 0x80:  # as nearly always
                length, at = low & 0x7F | high << 7, at + 2
            else:
                reader = Reader(raw, at)
                length, at = reader.varint(), reader.at
            end = at + (length >> 1)
            parts += (varint(length + 2 * (len(new) - len(old))), new, raw[at + len(old) : end])
            at = end
        number += count
    body = b"".join(parts)
    return _head(number, len(body)) + body


def _head(count: int, size: int) -> bytes:
    """What a batch of so many records of so many bytes begins with; it has no checksum."""
    return _HEAD.pack(0, _HEAD.size - _PREFIX + size, -1, _MAGIC, 0, 0, count - 1, 0, 0, -1, -1, -1, count)


def _count(raw: bytes) -> int:
    """How many records an encoded batch has."""
    (count,) = _COUNT.unpack_from(raw, _HEAD.size - _COUNT.size)
    return cast("int", count)


_SIZES: Final = [varint(2 * size) for size in range(1 << 11)]
_PLACES: Final[list[bytes]] = []


def _places(count: int) -> list[bytes]:
    """What the first records of a batch begin with: no attributes, their time (that of the batch), where they stand."""
    for number in range(len(_PLACES), count):
        _PLACES.append(b"\0\0" + varint(2 * number))
    return _PLACES[:count]
