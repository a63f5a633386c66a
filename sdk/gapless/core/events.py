"""Events: what a publisher encodes once and nobody encodes again, alone and in columns.

An event on the wire is one msgpack array, `[topic, properties, extras, body]`, the body last. A batch of
events is columns: per event its tick, its length and its body's length, then all events one behind the
other. So a delivery is a join of shared slices; a reader decodes all events of a batch in one call (put
an array header before them and they are one msgpack array), and finds ticks and bodies by arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from itertools import accumulate, chain, compress, repeat
from operator import attrgetter
from struct import Struct, pack, unpack_from
from typing import Annotated, Any, TypeAlias

import msgspec

from gapless.core.ticks import PubendId, Tick, time_at

Property: TypeAlias = "bool | int | float | str"
Properties: TypeAlias = Mapping[str, Property]

_UNIX = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Extras(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The headers a sender may set, apart from the topic; absent as a whole when none is set."""

    priority: int = 4
    expiration: int = 0
    """Milliseconds since 1970; 0 = never."""
    correlation_id: str = ""
    reply_to: str = ""
    type: str = ""


class _DocumentedOrder(msgspec.StructMeta):
    """Lets `match` take an event's fields in the order the documentation names them.

    The fields themselves stand in the order of the wire, so that a batch is decoded straight into events.
    """

    @property
    def __match_args__(cls) -> tuple[str, ...]:  # type: ignore[override]  # noqa: N805 - of a metaclass
        return ("topic", "body", "properties", "pubend", "tick")


class Event(msgspec.Struct, metaclass=_DocumentedOrder, array_like=True, gc=False):
    """One event as a subscriber gets it. Treat it as immutable."""

    topic: str
    properties: dict[str, bool | int | float | str]
    extras: Extras | None
    body: bytes
    tick: Tick = 0
    pubend: PubendId = ""
    delivery_count: int = 1

    @property
    def message_id(self) -> str:
        """Unique in the network, for ever: the pubend and the tick."""
        return f"ID:{self.pubend}:{self.tick}"

    @property
    def timestamp(self) -> datetime:
        """When the pubend took the event in, UTC, to the millisecond."""
        return time_at(self.tick)

    @property
    def priority(self) -> int:
        """0 to 9; 4 when the sender set none."""
        return self.extras.priority if self.extras else 4

    @property
    def expiration(self) -> datetime | None:
        """When the event expires, or None."""
        if not self.extras or not self.extras.expiration:
            return None
        return _UNIX + timedelta(milliseconds=self.extras.expiration)

    @property
    def correlation_id(self) -> str | None:
        """What the sender linked the event to, or None."""
        return (self.extras and self.extras.correlation_id) or None

    @property
    def reply_to(self) -> str | None:
        """The topic an answer should go to, or None."""
        return (self.extras and self.extras.reply_to) or None

    @property
    def type(self) -> str | None:
        """The sender's name for the kind of event, or None."""
        return (self.extras and self.extras.type) or None

    @property
    def redelivered(self) -> bool:
        """Whether the event was handed out before."""
        return self.delivery_count > 1


Long: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""An integer of 64 bits, with its sign; msgpack alone would let through half as many again."""


class Header(msgspec.Struct, array_like=True, gc=False):
    """What matching needs of an event; the rest of it is skipped while decoding."""

    topic: str
    properties: dict[str, bool | Long | float | str]
    extras: Extras | None


Finite: TypeAlias = Annotated[float, msgspec.Meta(ge=-1.7976931348623157e308, le=1.7976931348623157e308)]
"""A number, and neither infinity: what selectors can compare."""
Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]


class CheckedExtras(Extras, array_like=True, frozen=True, gc=False):
    """Headers of which every value is one that a sender may set."""

    priority: Annotated[int, msgspec.Meta(ge=0, le=9)] = 4
    expiration: Annotated[int, msgspec.Meta(ge=0, lt=253_402_300_800_000)] = 0  # the year 10000


class CheckedHeader(Header, array_like=True, forbid_unknown_fields=True, gc=False):
    """A header whose whole event was looked at: four parts, no more, and each is what it may be."""

    properties: dict[Name, bool | Long | Finite | str]
    extras: CheckedExtras | None
    body: memoryview
    """Not a copy: a view of the event."""


_encode = msgspec.msgpack.Encoder().encode
_decode_events = msgspec.msgpack.Decoder(list[Event]).decode
_decode_headers = msgspec.msgpack.Decoder(list[Header]).decode
_decode_whole = msgspec.msgpack.Decoder(CheckedHeader).decode
_body_of = attrgetter("body")

ROW = Struct("<QII")
"""Per event in a delivery: tick, length, length of the body."""


def encode_event(topic: str, properties: Mapping[str, Any], extras: Extras | None, body: bytes) -> bytes:
    """One event in its wire form. The caller has checked the values."""
    return _encode((topic, properties, extras, body))


def encode_events(topic: str, properties: Iterable[Mapping[str, Any]], bodies: Iterable[bytes]) -> list[bytes]:
    """Many events of one topic, without extras, with no Python step per event. The caller has checked the values."""
    return list(map(_encode, zip(repeat(topic), properties, repeat(None), bodies)))


def _array_header(count: int) -> bytes:
    return b"\xdd" + count.to_bytes(4, "big")


class EventColumns:
    """Encoded events as their publisher sent them: no ticks yet. `lengths` is count × (u32, u32)."""

    __slots__ = ("_cut", "blob", "count", "lengths")

    def __init__(self, count: int, lengths: bytes, blob: bytes) -> None:
        self.count = count
        self.lengths = lengths
        self.blob = blob
        self._cut: tuple[list[bytes], tuple[int, ...]] | None = None

    @classmethod
    def of(cls, events: Sequence[bytes], body_lengths: Iterable[int]) -> EventColumns:
        """The columns of these encoded events."""
        pairs = [part for pair in zip(map(len, events), body_lengths) for part in pair]  # noqa: B905
        return cls(len(events), pack(f"<{len(pairs)}I", *pairs), b"".join(events))

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        return len(self.lengths) + len(self.blob)

    def check(self, event_bytes_max: int = 1 << 32) -> list[Header]:
        """The decoded headers. Raises ValueError if the lengths do not add up or an event is malformed.

        Each event is decoded alone and to its end: events that are well-formed one behind the other, but
        not where their lengths cut them, would be poison to whoever is later given only some of them.
        """
        if not self.count or len(self.lengths) != 8 * self.count:
            raise ValueError("a batch is empty, or has not one pair of lengths for each event")
        wholes = unpack_from(f"<{2 * self.count}I", self.lengths)[::2]
        if sum(wholes) != len(self.blob):
            raise ValueError("the lengths of the events do not add up to the batch")
        if max(wholes) > event_bytes_max:
            raise ValueError(f"an event has {max(wholes):,} bytes, and {event_bytes_max:,} are allowed")
        events, bodies = self._parts()
        try:
            headers = list(map(_decode_whole, events))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ValueError(f"an event is malformed: {error}") from error
        if tuple(map(len, map(_body_of, headers))) != bodies:
            raise ValueError("the body of an event is not as long as the batch says")
        return headers  # type: ignore[return-value]  # nobody writes a plain Header into it

    def batch(self, ticks: Sequence[Tick], headers: list[Header] | None = None) -> EventBatch:
        """The events under these ticks; with the headers, where they are decoded already."""
        return EventBatch(ticks, *self._parts(), headers)

    def _parts(self) -> tuple[list[bytes], tuple[int, ...]]:
        """The events cut apart, and their bodies' lengths; cut once."""
        if self._cut is None:
            lengths = unpack_from(f"<{2 * self.count}I", self.lengths)
            ends = list(accumulate(lengths[::2]))
            blob = self.blob
            events = [blob[start:end] for start, end in zip([0, *ends], ends)]  # noqa: B905
            self._cut = events, lengths[1::2]
        return self._cut


def _headers(count: int, blob: bytes) -> list[Header]:
    try:
        headers = _decode_headers(_array_header(count) + blob)
    except msgspec.MsgspecError as error:
        raise ValueError(f"an event is malformed: {error}") from error
    return headers


class EventBatch:
    """Events of one pubend in tick order, as columns. Immutable by convention; slices share the events."""

    __slots__ = ("_headers", "_rows", "body_lengths", "events", "ticks")

    def __init__(
        self,
        ticks: Sequence[Tick],
        events: Sequence[bytes],
        body_lengths: Sequence[int],
        headers: list[Header] | None = None,
    ) -> None:
        self.ticks = ticks
        self.events = events
        self.body_lengths = body_lengths
        self._headers = headers
        self._rows: list[bytes] | None = None

    def __len__(self) -> int:
        return len(self.ticks)

    def __repr__(self) -> str:
        span = f"{self.ticks[0]}..{self.ticks[-1]}" if self.ticks else "empty"
        return f"EventBatch({len(self)} events, {span})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EventBatch):
            return NotImplemented
        return list(self.ticks) == list(other.ticks) and list(self.events) == list(other.events)

    def __hash__(self) -> int:
        return hash(tuple(self.ticks))

    @property
    def decoded(self) -> bool:
        """Whether the headers are at hand, and need not be decoded any more."""
        return self._headers is not None

    @property
    def headers(self) -> list[Header]:
        """Topic, properties and extras of each event; decoded once, when first asked for."""
        if self._headers is None:
            self._headers = _headers(len(self.events), b"".join(self.events))
        return self._headers

    @property
    def rows(self) -> list[bytes]:
        """The fixed-length row of each event (`ROW`); built once, shared by all deliveries."""
        if self._rows is None:
            self._rows = list(map(ROW.pack, self.ticks, map(len, self.events), self.body_lengths))
        return self._rows

    @property
    def size(self) -> int:
        """Bytes of all events."""
        return sum(map(len, self.events))

    def slice(self, start: int, stop: int) -> EventBatch:
        """The events with these positions."""
        if start <= 0 and stop >= len(self.ticks):
            return self
        headers = None if self._headers is None else self._headers[start:stop]
        return EventBatch(self.ticks[start:stop], self.events[start:stop], self.body_lengths[start:stop], headers)

    def select(self, mask: int) -> EventBatch:
        """The events whose bit is set in `mask` (bit i for event i)."""
        if mask == (1 << len(self.ticks)) - 1:
            return self
        flags = mask_flags(mask, len(self.ticks))
        return EventBatch(
            list(compress(self.ticks, flags)),
            list(compress(self.events, flags)),
            list(compress(self.body_lengths, flags)),
            None if self._headers is None else list(compress(self._headers, flags)),
        )

    def payload(self, mask: int) -> bytes:
        """Count, rows and events of those in `mask`: the part of a delivery that subscribers share."""
        rows, events = self.rows, self.events
        if mask == (1 << len(rows)) - 1:
            return b"".join((len(rows).to_bytes(4, "little"), *rows, *events))
        flags = mask_flags(mask, len(rows))
        return b"".join((mask.bit_count().to_bytes(4, "little"), *compress(rows, flags), *compress(events, flags)))

    @staticmethod
    def concatenate(batches: Sequence[EventBatch]) -> EventBatch:
        """One batch of all; the caller sees to the order."""
        if len(batches) == 1:
            return batches[0]
        decoded = all(batch.decoded for batch in batches)
        return EventBatch(
            list(chain.from_iterable(batch.ticks for batch in batches)),
            list(chain.from_iterable(batch.events for batch in batches)),
            list(chain.from_iterable(batch.body_lengths for batch in batches)),
            list(chain.from_iterable(batch.headers for batch in batches)) if decoded else None,
        )


EMPTY = EventBatch((), (), ())
"""No event."""

_FLAGS = bytes.maketrans(b"01", b"\0\1")


def mask_flags(mask: int, count: int) -> bytes:
    """The lowest `count` bits of `mask` as bytes 0 and 1, lowest first: for `itertools.compress`."""
    return format(mask, f"0{count}b").encode()[::-1].translate(_FLAGS)


class DeliveredColumns:
    """A delivery as it came over the wire: count, rows, events; decoded when asked for."""

    __slots__ = ("_ends", "_events", "_rows", "count")

    def __init__(self, count: int, rows: memoryview, events: memoryview) -> None:
        self.count = count
        self._rows = rows
        self._events = events
        self._ends: list[int] | None = None

    @classmethod
    def parse(cls, blob: bytes, offset: int) -> DeliveredColumns:
        """The delivery that fills `blob` from `offset` on. Raises ValueError if rows and events do not."""
        count = int.from_bytes(blob[offset : offset + 4], "little")
        columns = memoryview(blob)[offset + 4 :]
        if len(columns) < ROW.size * count:
            raise ValueError("a delivery is shorter than its rows")
        parsed = cls(count, columns[: ROW.size * count], columns[ROW.size * count :])
        if sum(parsed.lengths()) != len(columns) - ROW.size * count:
            raise ValueError("the lengths of the events do not add up to the delivery")
        return parsed

    @property
    def size(self) -> int:
        """Bytes of rows and events."""
        return len(self._rows) + len(self._events)

    @property
    def buffers(self) -> tuple[memoryview, memoryview]:
        """All rows (`ROW`), and all events one behind the other, as they came: for who reads them in columns."""
        return self._rows, self._events

    def rows(self) -> Iterator[tuple[Tick, int, int]]:
        """Tick, length and body length of each event."""
        return ROW.iter_unpack(self._rows)

    def ticks(self) -> list[Tick]:
        """The ticks, in order."""
        if _LITTLE_ENDIAN:
            return self._rows.cast("Q")[::2].tolist()
        return [tick for tick, _, _ in self.rows()]

    def lengths(self) -> list[int]:
        """The length of each event."""
        if _LITTLE_ENDIAN:
            return self._rows.cast("I")[2::4].tolist()
        return [length for _, length, _ in self.rows()]

    def slice(self, start: int, stop: int) -> DeliveredColumns:
        """The events with these positions, 0 <= start <= stop <= count; the bytes are shared."""
        if start == 0 and stop == self.count:
            return self
        if self._ends is None:
            self._ends = list(accumulate(self.lengths(), initial=0))
        rows = self._rows[ROW.size * start : ROW.size * stop]
        return DeliveredColumns(stop - start, rows, self._events[self._ends[start] : self._ends[stop]])

    def events(self, pubend: PubendId) -> list[Event]:
        """All events, decoded in one call. Raises ValueError if they are not `count` well-formed events."""
        try:
            events = _decode_events(b"".join((_array_header(self.count), self._events)))
        except msgspec.MsgspecError as error:
            raise ValueError(f"an event is malformed: {error}") from error
        for event, tick in zip(events, self.ticks()):  # noqa: B905
            event.tick = tick
            event.pubend = pubend
        return events


_LITTLE_ENDIAN = pack("=H", 1) == b"\1\0"
"""Whether rows lie in memory as they come over the wire, so that a column is read without a step per row."""
