"""Batches of events in columns, in the form in which publishers send them and brokers log them.

A batch is stored as columns: a tick, a length and a body length per event, then all events one after the other. So a
delivery is a join of shared slices, and a batch that is passed on whole is never taken apart.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate, chain, compress, pairwise
from operator import attrgetter
from struct import Struct, pack

import msgspec

from gapless.core.stream.events import CheckedHeader, Event, Header
from gapless.core.stream.ticks import PubendId, Tick
from gapless.selectors.headers import HeaderValues
from gapless.selectors.index import BatchMatcher

_decode_headers = msgspec.msgpack.Decoder(list[Header]).decode
_decode_whole = msgspec.msgpack.Decoder(CheckedHeader).decode
_body_of = attrgetter("body")

ROW = Struct("<QII")
"""The row of an event in a delivery: its tick, its length, the length of its body."""
_PAIR = Struct("<II")
LITTLE_ENDIAN = pack("=H", 1) == b"\1\0"
"""Whether rows in memory have the byte order of the wire. Then a column is moved without a step per row."""


def array_header(count: int) -> bytes:
    """Returns the header that makes so many concatenated events one msgpack array."""
    return b"\xdd" + count.to_bytes(4, "big")


class EventColumns:
    """Encoded events as their publisher sent them, without ticks. `lengths` is count × (u32, u32)."""

    __slots__ = ("_cut", "blob", "count", "lengths", "size")

    def __init__(self, count: int, lengths: bytes, blob: bytes) -> None:
        self.count = count
        self.lengths = lengths
        self.blob = blob
        self.size = len(lengths) + len(blob)
        """The size on the wire, in bytes."""
        self._cut: tuple[list[bytes], array[int]] | None = None

    @classmethod
    def of(cls, events: Sequence[bytes], body_lengths: Iterable[int]) -> EventColumns:
        """Makes columns of encoded events."""
        pairs = [part for pair in zip(map(len, events), body_lengths) for part in pair]  # noqa: B905
        return cls(len(events), pack(f"<{len(pairs)}I", *pairs), b"".join(events))

    def wholes(self) -> array[int]:
        """Returns the length of each event."""
        return self._numbers()[::2]

    def bodies(self) -> array[int]:
        """Returns the length of each event's body."""
        return self._numbers()[1::2]

    def _numbers(self) -> array[int]:
        numbers = array("I", self.lengths)
        if not LITTLE_ENDIAN:
            numbers.byteswap()
        return numbers

    def check(self, event_bytes_max: int = 1 << 32) -> list[Header]:
        """Returns the decoded headers. Raises ValueError if the lengths do not add up or an event is malformed.

        Each event is decoded alone and to its end. Otherwise a batch could be well-formed as a whole, but not at the
        places where its lengths cut it; a subscriber that gets only some of its events could not decode them.
        """
        if not self.count or len(self.lengths) != 8 * self.count:
            raise ValueError("a batch is empty, or has not one pair of lengths for each event")
        wholes = self._numbers()[::2]
        if sum(wholes) != len(self.blob):
            raise ValueError("the lengths of the events do not add up to the batch")
        if max(wholes) > event_bytes_max:
            raise ValueError(f"an event has {max(wholes):,} bytes, and {event_bytes_max:,} are allowed")
        events, bodies = self.cut()
        try:
            headers = list(map(_decode_whole, events))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ValueError(f"an event is malformed: {error}") from error
        if array("I", map(len, map(_body_of, headers))) != bodies:
            raise ValueError("the body of an event is not as long as the batch says")
        return headers  # type: ignore[return-value]  # nobody writes a plain Header into it

    def slice(self, start: int, stop: int) -> EventColumns:
        """Returns a copy of the events at 0 <= start <= stop <= count: it does not keep the others in memory."""
        if start == 0 and stop == self.count:
            return self
        wholes = self.wholes()
        begin = sum(wholes[:start])
        end = begin + sum(wholes[start:stop])
        return EventColumns(stop - start, self.lengths[8 * start : 8 * stop], self.blob[begin:end])

    def batch(self, ticks: Sequence[Tick], headers: list[Header] | None = None) -> EventBatch:
        """Returns the events under these ticks. `headers`: the decoded headers, if there are any already."""
        if self._cut is not None:  # otherwise memory would hold the whole and its parts
            return EventBatch(ticks, *self._cut, headers)
        return EventBatch.of(ticks, [self], headers)

    def cut(self) -> tuple[list[bytes], array[int]]:
        """Returns the single events, and their body lengths. The blob is cut once."""
        if self._cut is None:
            blob, numbers = self.blob, self._numbers()
            ends = accumulate(numbers[::2], initial=0)
            self._cut = [blob[start:end] for start, end in pairwise(ends)], numbers[1::2]
        return self._cut

    def at(self, places: Sequence[int]) -> tuple[list[bytes], list[int]]:
        """Returns the events at these ascending places, cut out, and their body lengths."""
        blob, wholes, bodies = self.blob, self.wholes(), self.bodies()
        events: list[bytes] = []
        end = behind = 0
        for place in places:
            start = end + sum(wholes[behind:place])
            end, behind = start + wholes[place], place + 1
            events.append(blob[start:end])
        return events, [bodies[place] for place in places]


class EventBatch:
    """Events of one pubend in tick order. Immutable by convention; slices share the events.

    The events are stored one by one, or in columns, which are cut when single events are needed.
    """

    __slots__ = ("_body_lengths", "_events", "_headers", "_rows", "columns", "ticks")

    def __init__(
        self,
        ticks: Sequence[Tick],
        events: Sequence[bytes],
        body_lengths: Sequence[int],
        headers: list[Header] | None = None,
    ) -> None:
        self.ticks = ticks
        self._events: Sequence[bytes] | None = events
        self._body_lengths: Sequence[int] | None = body_lengths
        self.columns: Sequence[EventColumns] = ()
        """The columns with the events, one after the other; empty if the events are stored one by one."""
        self._headers = headers
        self._rows: list[bytes] | None = None

    @classmethod
    def of(
        cls, ticks: Sequence[Tick], columns: Sequence[EventColumns], headers: list[Header] | None = None
    ) -> EventBatch:
        """Makes a batch of columns, one after the other, under these ticks."""
        batch = cls(ticks, (), (), headers)
        if columns:
            batch._events = batch._body_lengths = None
            batch.columns = columns
        return batch

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
    def events(self) -> Sequence[bytes]:
        """The single events, encoded. The columns are cut once."""
        if self._events is None:
            self._events = list(chain.from_iterable(columns.cut()[0] for columns in self.columns))
        return self._events

    @property
    def body_lengths(self) -> Sequence[int]:
        """The length of each event's body."""
        if self._body_lengths is None:
            self._body_lengths = list(chain.from_iterable(columns.bodies() for columns in self.columns))
        return self._body_lengths

    @property
    def lengths(self) -> Iterable[int]:
        """The length of each event."""
        if self.columns:
            return chain.from_iterable(columns.wholes() for columns in self.columns)
        return map(len, self.events)

    @property
    def decoded(self) -> bool:
        """Whether the headers are decoded already."""
        return self._headers is not None

    @property
    def headers(self) -> list[Header]:
        """Topic, properties and extras of each event, decoded once, when first needed. Raises ValueError."""
        if self._headers is None:
            try:
                self._headers = _decode_headers(b"".join((array_header(len(self)), *self.blobs())))
            except msgspec.MsgspecError as error:
                raise ValueError(f"an event is malformed: {error}") from error
        return self._headers

    def event(self, pubend: PubendId, place: int) -> Event:
        """Returns one event of a pubend in the form for applications, without its body."""
        header = self.headers[place]
        return Event(header.topic, header.properties, header.extras, b"", self.ticks[place], pubend)

    def match(self, pubend: PubendId, matcher: BatchMatcher) -> list[tuple[int, Collection[int]]]:
        """Returns which filters of the matcher these events match; see `BatchMatcher.match`."""
        headers = self.headers
        topics = [header.topic for header in headers]
        properties = [header.properties for header in headers]
        return matcher.match(topics, properties, BatchHeaders(pubend, self))

    @property
    def rows(self) -> list[bytes]:
        """The fixed-length row of each event (`ROW`), built once and shared by all deliveries."""
        if self._rows is None:
            lengths = self.lengths if self._events is None else map(len, self._events)
            self._rows = list(map(ROW.pack, self.ticks, lengths, self.body_lengths))
        return self._rows

    @property
    def size(self) -> int:
        """The bytes of all events."""
        return sum(map(len, self.blobs()))

    def blobs(self) -> Iterable[bytes]:
        """Returns all events in order, in some pieces."""
        return [columns.blob for columns in self.columns] if self.columns else self.events

    def row_blobs(self) -> Iterable[bytes | array[int]]:
        """Returns all rows in order, in some pieces."""
        if not self.columns:
            return self.rows
        starts = accumulate((columns.count for columns in self.columns), initial=0)
        return [
            _rows(self.ticks[start : start + columns.count], columns.lengths)
            for start, columns in zip(starts, self.columns)  # noqa: B905 - there is one start more
        ]

    def slice(self, start: int, stop: int) -> EventBatch:
        """Returns the events with these positions."""
        start, stop = max(start, 0), min(stop, len(self.ticks))
        if start == 0 and stop == len(self.ticks):
            return self
        headers = None if self._headers is None else self._headers[start:stop]
        ticks = self.ticks[start:stop]
        if self.columns:
            return EventBatch.of(ticks, list(_sliced(self.columns, start, stop)), headers)
        return EventBatch(ticks, self.events[start:stop], self.body_lengths[start:stop], headers)

    def select(self, mask: int) -> EventBatch:
        """Returns the events whose bit is set in `mask` (bit i for event i)."""
        count = len(self.ticks)
        return self if mask == (1 << count) - 1 else self.at(list(compress(range(count), mask_flags(mask, count))))

    def at(self, places: Sequence[int]) -> EventBatch:
        """Returns the events at these ascending places."""
        ticks = [self.ticks[place] for place in places]
        headers = None if self._headers is None else [self._headers[place] for place in places]
        if not self.columns:
            events, bodies = self.events, self.body_lengths
            return EventBatch(ticks, [events[at] for at in places], [bodies[at] for at in places], headers)
        cut: list[bytes] = []
        body_lengths: list[int] = []
        start = low = 0
        for columns in self.columns:
            high = bisect_left(places, start + columns.count, low)
            events, bodies = columns.at([place - start for place in places[low:high]])
            cut += events
            body_lengths += bodies
            start, low = start + columns.count, high
        return EventBatch(ticks, cut, body_lengths, headers)

    def payload(self, mask: int) -> bytes:
        """Returns count, rows and events of the selected events: the part of a delivery that subscribers share."""
        count = len(self.ticks)
        if mask == (1 << count) - 1:
            if self._events is None:
                return b"".join((count.to_bytes(4, "little"), *self.row_blobs(), *self.blobs()))
            return b"".join((count.to_bytes(4, "little"), *self.rows, *self._events))
        flags = mask_flags(mask, count)
        number = mask.bit_count().to_bytes(4, "little")
        return b"".join((number, *compress(self.rows, flags), *compress(self.events, flags)))

    @staticmethod
    def concatenate(batches: Sequence[EventBatch]) -> EventBatch:
        """Joins batches; the caller is responsible for their order."""
        if len(batches) == 1:
            return batches[0]
        ticks = list(chain.from_iterable(batch.ticks for batch in batches))
        decoded = all(batch.decoded for batch in batches)
        headers = list(chain.from_iterable(batch.headers for batch in batches)) if decoded else None
        if all(batch.columns for batch in batches):
            return EventBatch.of(ticks, list(chain.from_iterable(batch.columns for batch in batches)), headers)
        return EventBatch(
            ticks,
            list(chain.from_iterable(batch.events for batch in batches)),
            list(chain.from_iterable(batch.body_lengths for batch in batches)),
            headers,
        )


class BatchHeaders:
    """The header fields of the events of a batch: `gapless.selectors.headers.HeaderRows`."""

    __slots__ = ("_batch", "_pubend")

    def __init__(self, pubend: PubendId, batch: EventBatch) -> None:
        self._pubend = pubend
        self._batch = batch

    def __getitem__(self, place: int, /) -> HeaderValues:
        """Returns the fields of the event that an application would get, so that both see the same."""
        return HeaderValues(self._batch.event(self._pubend, place))


EMPTY = EventBatch((), (), ())
"""A batch without events."""

_FLAGS = bytes.maketrans(b"01", b"\0\1")


def mask_flags(mask: int, count: int) -> bytes:
    """Returns the lowest `count` bits of `mask` as bytes 0 and 1, lowest first: for `itertools.compress`."""
    return format(mask, f"0{count}b").encode()[::-1].translate(_FLAGS)


def _sliced(columns: Iterable[EventColumns], start: int, stop: int) -> Iterator[EventColumns]:
    """Yields the events at these positions of some consecutive columns."""
    for each in columns:
        low, high = max(start, 0), min(stop, each.count)
        if low < high:
            yield each.slice(low, high)
        start, stop = start - each.count, stop - each.count


def _rows(ticks: Sequence[Tick], lengths: bytes) -> bytes | array[int]:
    """Returns the rows of events: each tick before its two lengths."""
    if not LITTLE_ENDIAN:
        return b"".join(ROW.pack(tick, *pair) for tick, pair in zip(ticks, _PAIR.iter_unpack(lengths), strict=True))
    numbers = array("Q", bytes(ROW.size * len(ticks)))
    numbers[::2] = array("Q", list(ticks))
    numbers[1::2] = array("Q", lengths)
    return numbers
