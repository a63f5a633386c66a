"""Converts deliveries to Arrow record batches, with no Python step per row.

A delivery consists of rows of fixed length (tick, length, length of the body), and the events, one after the other,
with the body last in each. So ticks and bodies are found by arithmetic on whole columns. Topics and properties are
decoded in one call, and only if the schema has them. The map of properties is the most expensive column: a query that
does not need it should have a schema without it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from gapless.core.client import Gap
from gapless.core.stream.columns import array_header
from gapless.core.stream.events import Extras
from gapless.core.stream.ticks import COUNTER_BITS, EPOCH_MS, PUBEND_BITS, PubendId
from gapless.core.wire.delivered import DeliveredColumns
from gapless.errors import ConfigurationError, RemoteProtocolError
from gapless_spark.properties import PropertyColumns, columns_of

KEY: Final = "key"
"""The property that is also the column `key`."""
SCHEMA: Final = pa.schema(
    [
        pa.field("kind", pa.string()),
        pa.field("pubend", pa.string()),
        pa.field("tick", pa.int64()),
        pa.field("tick_from", pa.int64()),
        pa.field("topic", pa.string()),
        pa.field("key", pa.string()),
        pa.field("properties", pa.map_(pa.string(), pa.string())),
        pa.field("payload", pa.binary()),
        pa.field("published_at", pa.timestamp("us", tz="UTC")),
    ]
)
"""The columns of a source without a schema of the user. Every field is nullable."""
COLUMNS: Final = SCHEMA.append(pa.field("header", pa.binary()))
"""All columns. `header` and `payload` together are the event, byte for byte as its publisher sent it."""

_MILLISECOND_BITS = PUBEND_BITS + COUNTER_BITS
_topic_of = attrgetter("topic")
_properties_of = attrgetter("properties")


class _Topic(msgspec.Struct, array_like=True, gc=False):
    """The beginning of an event; the rest is skipped."""

    topic: str


class _Header(msgspec.Struct, array_like=True, gc=False):
    """The beginning of an event with its properties."""

    topic: str
    properties: dict[str, bool | int | float | str]


class _Stamped(msgspec.Struct, array_like=True, gc=False):
    """The beginning of an event with the time that it bears where its tick is no time."""

    topic: msgspec.Raw
    properties: msgspec.Raw
    extras: Extras | None


_decode_topics = msgspec.msgpack.Decoder(list[_Topic]).decode
_decode_headers = msgspec.msgpack.Decoder(list[_Header]).decode
_decode_stamped = msgspec.msgpack.Decoder(list[_Stamped]).decode


def narrowed(names: Iterable[str]) -> Any:
    """Returns the schema of these columns, in this order. Raises ConfigurationError for an unknown column."""
    chosen = list(names)
    unknown = [name for name in chosen if name not in COLUMNS.names]
    if unknown or not chosen or len({*chosen}) < len(chosen):
        there_are, these = ", ".join(COLUMNS.names), ", ".join(chosen) or "none"
        raise ConfigurationError(f"a schema has any of the columns {there_are}, each once; this has {these}")
    return pa.schema([COLUMNS.field(name) for name in chosen])


def checked(schema: Any) -> Any:
    """Returns a user's schema if it is possible. Raises ConfigurationError."""
    narrow = narrowed(schema.names)
    for field, own in zip(schema, narrow, strict=True):
        if field.type != own.type:
            raise ConfigurationError(f"column {field.name} is of type {own.type}, not {field.type}")
    return narrow


def events_batch(pubend: PubendId, deliveries: Sequence[DeliveredColumns], schema: Any) -> Any:
    """Returns the record batch of some deliveries of one pubend. Raises RemoteProtocolError for a malformed event."""
    return _Events(pubend, deliveries).batch(schema)


def times_of(pubend: PubendId, deliveries: Sequence[DeliveredColumns]) -> Any:
    """Returns when the events of some deliveries of one pubend were logged: a column of timestamps.

    Raises RemoteProtocolError for a malformed event.
    """
    return _Events(pubend, deliveries).batch(narrowed(["published_at"])).column(0)


def gap_batch(gap: Gap, schema: Any) -> Any:
    """Returns the record batch of a gap: one row, with nothing but its place."""
    values: Mapping[str, Any] = {
        "kind": "gap",
        "pubend": gap.pubend,
        "tick": gap.end,
        "tick_from": gap.start + 1,
    }
    return pa.RecordBatch.from_arrays(
        [pa.array([values.get(field.name)], field.type) for field in schema], schema=schema
    )


class _Events:
    """Some deliveries, and those of their columns that were computed so far."""

    def __init__(self, pubend: PubendId, deliveries: Sequence[DeliveredColumns]) -> None:
        self._pubend = pubend
        self._count = sum(delivery.count for delivery in deliveries)
        buffers = [delivery.buffers for delivery in deliveries]
        rows, events = zip(*buffers, strict=True) if buffers else ((), ())
        self._rows = memoryview(rows[0] if len(rows) == 1 else b"".join(rows))
        self._blob: Any = events[0] if len(events) == 1 else b"".join(events)
        self._headers: list[_Header] | None = None
        self._property_columns: PropertyColumns | None = None
        self._cut: Any = None

    def batch(self, schema: Any) -> Any:
        """Returns the record batch with these columns."""
        makers: Mapping[str, Callable[[], Any]] = {
            "kind": lambda: pa.repeat(pa.scalar("event"), self._count),
            "pubend": lambda: pa.repeat(pa.scalar(self._pubend), self._count),
            "tick": self._ticks,
            "tick_from": self._ticks,
            "topic": lambda: self._topics("properties" in schema.names or KEY in schema.names),
            "key": lambda: self._properties().one(KEY),
            "properties": lambda: self._properties().maps(),
            "payload": lambda: self._parts().take(_every_other(self._count, 1)),
            "published_at": self._times,
            "header": lambda: self._parts().take(_every_other(self._count, 0)),
        }
        try:
            arrays = [makers[name]() for name in schema.names]
        except msgspec.MsgspecError as error:
            raise RemoteProtocolError(f"the broker delivered what is no event: {error}") from error
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    # Columns computed by arithmetic.

    def _ticks(self) -> Any:
        return self._column("Q", 0, 2, pa.int64())

    def _column(self, letter: Literal["I", "Q"], start: int, step: int, kind: Any) -> Any:
        """Returns every `step`-th number of the rows as a column."""
        numbers = self._rows.cast(letter)[start::step].tobytes()
        return pa.Array.from_buffers(kind, self._count, [None, pa.py_buffer(numbers)])

    def _times(self) -> Any:
        """Returns the same as `Event.timestamp`: the time that the events bear, or else that of their ticks.

        Events of a log that numbers its records bear a time, each of them; all others bear none.
        """
        if self._count and _stamp(self._first()):
            milliseconds = pa.array(map(_stamp, _decode_stamped(self._array())), pa.int64())
        else:
            milliseconds = pc.add(pc.shift_right(self._ticks(), _MILLISECOND_BITS), EPOCH_MS)
        return pc.multiply(milliseconds, 1000).view(pa.timestamp("us", tz="UTC"))

    def _first(self) -> _Stamped:
        (first,) = _decode_stamped(b"".join((array_header(1), memoryview(self._blob)[: self._rows.cast("I")[2]])))
        return first

    def _parts(self) -> Any:
        """Returns headers and bodies alternately, as one column of binaries over the events; the second is a body."""
        if self._cut is not None:
            return self._cut
        count = self._count
        ends = pc.cumulative_sum(self._column("I", 2, 4, pa.int32()))
        bodies = pc.subtract(ends, self._column("I", 3, 4, pa.int32()))
        offsets = array("i", bytes(4 * (2 * count + 1)))
        offsets[1::2] = _numbers(bodies)
        offsets[2::2] = _numbers(ends)
        self._cut = pa.Array.from_buffers(
            pa.binary(), 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(self._blob)]
        )
        return self._cut

    # Columns that need decoding.

    def _array(self) -> bytes:
        return b"".join((array_header(self._count), self._blob))

    def _properties(self) -> PropertyColumns:
        if self._property_columns is None:
            self._headers = _decode_headers(self._array())
            self._property_columns = columns_of(list(map(_properties_of, self._headers)))
        return self._property_columns

    def _topics(self, with_properties: bool) -> Any:  # noqa: FBT001 - a private helper
        if with_properties:
            self._properties()
        found: Sequence[Any] = _decode_topics(self._array()) if self._headers is None else self._headers
        topics = list(map(_topic_of, found))
        if len({*topics}) == 1:
            return pa.repeat(pa.scalar(topics[0]), self._count)
        return pa.array(topics, pa.string())


def _stamp(event: _Stamped) -> int:
    """Returns the time that an event bears, in milliseconds since 1970; 0: none."""
    return event.extras.timestamp if event.extras is not None else 0


def _numbers(column: Any) -> array[int]:
    """Returns the numbers of a column of int32 without nulls."""
    start = 4 * column.offset
    return array("i", memoryview(column.buffers()[1])[start : start + 4 * len(column)].tobytes())


def _every_other(count: int, first: int) -> Any:
    """Returns every other number from `first` on, `count` of them."""
    return _evens_from(first, 1 << count.bit_length()).slice(0, count)


@lru_cache(maxsize=8)
def _evens_from(first: int, count: int) -> Any:
    return pa.array(range(first, 2 * count + first, 2), pa.int32())
