"""The `LogFormat` of Kafka topics: record batches to events and marks, and batches of ours to record batches.

A record of ours is made to be read by others, too: the body is its value, and its properties are headers in text. Three
headers more let it come back exactly as it was published, whatever the rules are:

    gapless          the mark of the batch, on its first record
    gapless.types    one letter for each header behind it: these are the properties, and of which types
    gapless.extras   priority, expiration and the like, if the sender has set any

The time of an event is its record's.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import Any, Final

import google_crc32c
import msgspec
from msgspec.structs import replace

from gapless.core.ports import LogMark, LogPiece
from gapless.core.stream.columns import EMPTY, EventBatch, EventColumns
from gapless.core.stream.events import CheckedExtras, Extras, Header, Property
from gapless.core.stream.ticks import Tick
from gapless.errors import PluginError, VolumeCorruptError
from gapless_log.kafka.lineage import offset_of, tick_at
from gapless_log.kafka.mapping import CONVERSIONS, RESERVED, Convert, RecordMapping, mapping_of
from gapless_log.kafka.records import (
    NO_VALUE,
    Batch,
    Compression,
    CorruptBatchError,
    Headers,
    NewRecord,
    Record,
    batches,
    encode,
    encode_all,
    join,
    records,
    sized,
)
from gapless_log.kafka.wire import varint

MARK: Final = RESERVED
TYPES: Final = f"{RESERVED}.types"
EXTRAS: Final = f"{RESERVED}.extras"
MARK_VERSION: Final = 1
TIMESTAMP_MAX: Final = 253_402_300_799_999
"""The last millisecond of the year 9999."""

_LETTERS: Final = {str: "s", bool: "b", int: "i", float: "f"}
_TEXTS: Final[Mapping[type, Callable[[Any], bytes]]] = {
    str: str.encode,
    bool: {True: b"true", False: b"false"}.__getitem__,
    int: lambda value: b"%d" % value,
    float: lambda value: repr(value).encode(),
}
_OF_LETTER: Final[Mapping[int, Convert]] = {
    ord("s"): bytes.decode,
    ord("b"): CONVERSIONS["bool"],
    ord("i"): CONVERSIONS["int"],
    ord("f"): CONVERSIONS["float"],
}
_NO_VALUE: Final = (AttributeError, TypeError, UnicodeDecodeError)
"""What conversions raise where a header has no value, or one that is no text."""
_encode = msgspec.msgpack.Encoder().encode
_decode_extras = msgspec.msgpack.Decoder(CheckedExtras).decode


class _Mark(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A mark as it is in a header. Later versions may have more behind it."""

    version: int
    tag: int
    publisher: str
    epoch: int
    first: int
    count: int
    crc: int
    after: int
    tokens: bytes
    keyed: bool
    begins: bool


_decode_mark = msgspec.msgpack.Decoder(_Mark).decode


class KafkaFormat:
    """See `gapless.core.ports.LogFormat`."""

    def __init__(self, topic: str) -> None:
        """`topic`: that of the events which are published here."""
        self._topic = topic

    def decode(self, piece: LogPiece, rules: bytes) -> tuple[EventBatch, Sequence[tuple[Tick, LogMark]]]:
        """Returns the events of a piece, and the marks of batches that reach into it.

        A piece may be a part of its record batch. Of a batch of ours that begins below it the mark has a tick below it.
        """
        mapping = mapping_of(rules)
        try:
            raw = piece.raw or b""
            (batch,) = batches(raw)
            if len(batch.raw) < len(raw):
                raise CorruptBatchError("there is more than one batch")
            found = records(batch)
        except (CorruptBatchError, ValueError, PluginError) as error:
            raise VolumeCorruptError(f"ticks {piece.first} to {piece.last}: {error}") from error
        first, last = offset_of(piece.first) - 1, offset_of(piece.last) - 1
        heads = {record.headers[0][0] for record in found if record.headers}
        marks = _marks(batch, found, first, last) if MARK in heads else []
        if batch.first < first or batch.last > last:
            found = [record for record in found if first <= record.offset <= last]
        if not found:
            return EMPTY, marks
        times = [record.timestamp for record in found]
        # A stranger may have written any number, or none (-1). 0 would mean that the tick is the time.
        stamps = {time: Extras(timestamp=min(max(time, 1), TIMESTAMP_MAX)) for time in set(times)}
        extras = [stamps[time] for time in times]
        if heads.isdisjoint((MARK, TYPES)):
            properties = mapping.properties_of(found)
            has_extras = False
        else:
            properties, sent = _contents(mapping, found)
            has_extras = any(sent)
            extras = [
                stamp if each is None else replace(each, timestamp=stamp.timestamp)
                for stamp, each in zip(extras, sent, strict=True)
            ]
        columns = EventColumns.encoded(mapping.topic, properties, extras, [record.value or b"" for record in found])
        columns.has_extras = has_extras
        below = tick_at(batch.leader_epoch, 0) + 1
        if found[-1].offset - found[0].offset < len(found):
            ticks: Sequence[Tick] = range(below + found[0].offset, below + found[-1].offset + 1)
        else:
            ticks = [below + record.offset for record in found]
        return EventBatch.of(ticks, [columns]), marks

    def encode(self, mark: LogMark, events: EventColumns) -> bytes:
        """Returns a record batch. Its records have no time yet: `joined` gives it to them when it is appended."""
        head = _encode(
            _Mark(
                MARK_VERSION,
                mark.tag,
                mark.publisher,
                mark.epoch,
                mark.first,
                mark.count,
                mark.crc,
                mark.after,
                mark.tokens,
                mark.keyed,
                mark.begins,
            )
        )
        headers = events.batch(range(events.count)).headers
        if others := {header.topic for header in headers} - {self._topic}:
            raise ValueError(
                f"this Kafka topic takes events of topic {self._topic!r} alone, not of {', '.join(map(repr, others))}"
            )
        bodies = [event[len(event) - length :] for event, length in zip(*events.cut(), strict=True)]
        alike = _encoded_alike(head, headers, bodies)
        if alike is not None:
            return alike
        new = list(map(_record, headers, bodies))
        new[0] = new[0]._replace(headers=[(MARK, head), *new[0].headers])
        return encode(new, Compression.NONE)


def _encoded_alike(mark: bytes, headers: Sequence[Header], bodies: Sequence[bytes]) -> bytes | None:
    """Returns what `encode` makes of events that all have the same properties and types, and no extras.

    That is nearly always so, and by columns it takes half the time. `mark`: that of the batch.
    """
    found = [header.properties for header in headers]
    if len(set(map(tuple, found))) > 1 or any(header.extras is not None for header in headers):
        return None
    names = tuple(found[0])
    kinds = tuple(map(type, found[0].values()))
    values = list(zip(*(properties.values() for properties in found), strict=True))
    if any({*map(type, column)} != {kind} for kind, column in zip(kinds, values, strict=True)):
        return None
    columns = [list(map(_TEXTS[kind], column)) for kind, column in zip(kinds, values, strict=True)]
    typed, starts = _header_starts(names, kinds)
    marked = _named(MARK) + sized([mark])[0] + mark + typed
    counted = (varint(2 * len(names) + 4) + marked, varint(2 * len(names) + 2) + typed)
    keys = columns[names.index("key")] if found[0].get("key").__class__ is str else None
    parts: list[Iterable[bytes]] = [repeat(NO_VALUE)] if keys is None else [sized(keys), keys]
    parts += (sized(bodies), bodies, chain(counted[:1], repeat(counted[1])))
    for start, column in zip(starts, columns, strict=True):
        parts += (repeat(start), sized(column), column)
    return encode_all(list(map(b"".join, zip(*parts, strict=False))))


@lru_cache(maxsize=1024)
def _header_starts(names: tuple[str, ...], kinds: tuple[type, ...]) -> tuple[bytes, Sequence[bytes]]:
    """Returns the header that says of which types properties are, and what each header of theirs begins with."""
    types = _types_of(kinds)
    return _named(TYPES) + sized([types])[0] + types, [_named(name) for name in names]


def _named(name: str) -> bytes:
    encoded = name.encode()
    return sized([encoded])[0] + encoded


def _record(header: Header, body: bytes) -> NewRecord:
    """Returns a record with an event."""
    properties = header.properties
    headers: list[tuple[str, bytes | None]] = [(TYPES, _types_of(tuple(map(type, properties.values()))))]
    headers += [(name, _TEXTS[type(value)](value)) for name, value in properties.items()]
    if header.extras is not None:
        headers.append((EXTRAS, _encode(header.extras)))
    key = properties.get("key")
    return NewRecord(0, key.encode() if isinstance(key, str) else None, body, headers)


@lru_cache(maxsize=1024)
def _types_of(types: tuple[type, ...]) -> bytes:
    """Returns the letters of the types of properties."""
    return "".join(_LETTERS[each] for each in types).encode()


@lru_cache(maxsize=1024)
def _converts_of(letters: bytes) -> Sequence[Callable[[bytes], Property | None]] | None:
    """Returns what makes properties of these types from bytes; None if there is no such type."""
    converts = [_OF_LETTER.get(letter) for letter in letters]
    return None if None in converts else [convert for convert in converts if convert is not None]


def _marks(batch: Batch, found: Sequence[Record], first: int, last: int) -> Sequence[tuple[Tick, LogMark]]:
    """Returns the marks of a record batch that concern records from `first` to `last`."""
    marks: list[tuple[Tick, LogMark]] = []
    for record in found:
        headers = record.headers
        if headers and headers[0][0] == MARK and record.offset <= last:
            mark = _mark(headers[0][1])
            if mark is not None and record.offset + mark.count > first:
                marks.append((tick_at(batch.leader_epoch, record.offset + 1), mark))
    return marks


def _mark(data: bytes | None) -> LogMark | None:
    """Returns the mark in a header. What is none was written by a stranger."""
    try:
        found = _decode_mark(data or b"")
    except msgspec.MsgspecError:
        return None
    if found.version != MARK_VERSION or found.count < 1:
        return None
    return LogMark(
        found.publisher,
        found.epoch,
        found.first,
        found.count,
        found.crc,
        found.after,
        found.tokens,
        found.keyed,
        found.tag,
        found.begins,
    )


def _contents(
    mapping: RecordMapping, found: Sequence[Record]
) -> tuple[list[dict[str, Property]], Sequence[Extras | None]]:
    """Returns properties of records of which some are ours, and the extras that senders have set."""
    alike = _restored_alike([record.headers for record in found])
    if alike is not None:
        return alike, [None] * len(found)
    restored = [_restored(record.headers) for record in found]
    strangers = [record for record, ours in zip(found, restored, strict=True) if ours is None]
    others = iter(mapping.properties_of(strangers))
    contents: list[tuple[dict[str, Property], Extras | None]] = [ours or (next(others), None) for ours in restored]
    return [properties for properties, _ in contents], [sent for _, sent in contents]


def _restored_alike(found: Sequence[Headers]) -> list[dict[str, Property]] | None:
    """Returns what `_restored` makes of all, if all are ours, have the same properties and types, and no extras.

    That is nearly always so, and by columns it takes half the time.
    """
    rows = [headers[1:] if headers and headers[0][0] == MARK else headers for headers in found]
    if len(set(map(len, rows))) > 1 or not rows[0]:
        return None
    (heads, letters), *columns = (tuple(zip(*column, strict=True)) for column in zip(*rows, strict=True))
    converts = _converts_of(letters[0] or b"")
    if {*heads} != {TYPES} or len({*letters}) > 1 or converts is None or len(converts) != len(columns):
        return None
    properties: dict[str, Sequence[Any]] = {}
    for convert, (names, data) in zip(converts, columns, strict=True):
        try:
            values = list(map(convert, data))
        except _NO_VALUE:
            return None
        if len({*names}) > 1 or not names[0] or None in values:
            return None
        properties[names[0]] = values
    if len(properties) != len(columns):
        return None
    if not properties:
        return [{} for _ in found]
    return [dict(zip(properties, row, strict=True)) for row in zip(*properties.values(), strict=True)]


def _restored(headers: Headers) -> tuple[dict[str, Property], Extras | None] | None:
    """Returns properties and extras of a record of ours; None if a stranger has written it."""
    at = 1 if headers and headers[0][0] == MARK else 0
    if len(headers) <= at or headers[at][0] != TYPES:
        return None
    types = headers[at][1] or b""
    behind = at + 1 + len(types)
    converts = _converts_of(types)
    if converts is None or len(headers) < behind:
        return None
    try:
        properties: dict[str, Any] = {
            name: convert(data)  # type: ignore[arg-type]
            for convert, (name, data) in zip(converts, headers[at + 1 : behind], strict=True)
        }
    except _NO_VALUE:
        return None
    if len(properties) != len(types) or "" in properties or None in properties.values():
        return None
    if len(headers) == behind:
        return properties, None
    if len(headers) > behind + 1 or headers[behind][0] != EXTRAS:
        return None
    try:
        return properties, _decode_extras(headers[behind][1] or b"")
    except msgspec.MsgspecError:
        return None


_TIMES: Final = struct.Struct(">qq")
_CHECKSUM_AT, _CHECKED_FROM, _TIMES_AT = 17, 21, 27
"""Where in a record batch its checksum is, what it covers, and where the first and the last time are."""


def joined(raws: Sequence[bytes], wall: int) -> bytes:
    """Returns batches of `KafkaFormat.encode` as one record batch, whose records have this time, in milliseconds."""
    raw = join(raws)
    checked = raw[_CHECKED_FROM:_TIMES_AT] + _TIMES.pack(wall, wall) + raw[_TIMES_AT + _TIMES.size :]
    checksum: int = google_crc32c.value(checked)
    return raw[:_CHECKSUM_AT] + checksum.to_bytes(4, "big") + checked
