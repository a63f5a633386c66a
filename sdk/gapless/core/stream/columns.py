"""Batches of events in columns, in the form in which publishers send them and brokers log them.

A batch is stored as columns: a tick, a length and a body length per event, then all events one after the other. So a
delivery is a join of shared slices, and a batch that is passed on whole is never taken apart.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, chain, compress, repeat
from operator import attrgetter

import msgspec

from gapless.core.stream import fast
from gapless.core.stream.batch_bytes import (
    COUNT_BYTES,
    LITTLE_ENDIAN,
    PAIR,
    ROW,
    array_of,
    bytes_of,
    checked,
    cut,
    facts_of,
    mask_flags,
    pairs_of,
)
from gapless.core.stream.events import Event, Extras, Header, Property, encode_events
from gapless.core.stream.ticks import PubendId, Tick
from gapless.selectors.columns import Groups
from gapless.selectors.headers import HeaderValues
from gapless.selectors.index import BatchMatcher
from gapless.selectors.masks import select as selected
from gapless.selectors.values import Value

_decode_headers = msgspec.msgpack.Decoder(list[Header]).decode
_decode_header = msgspec.msgpack.Decoder(Header).decode

_topic_of, _extras_of = attrgetter("topic"), attrgetter("extras")

SINGLES_MAX = 8
"""How many headers of a batch are decoded one by one; whoever asks for more gets all of them decoded at once."""
_SPARSE = 16
"""With fewer than one event in so many, a payload is joined of single ones, without a pass over all of them."""


def array_header(count: int) -> bytes:
    """Returns the header that makes so many concatenated events one msgpack array."""
    return b"\xdd" + count.to_bytes(4, "big")


class EventColumns:
    """Encoded events as their publisher sent them, without ticks. `lengths` is count × (u32, u32)."""

    __slots__ = ("_cut", "blob", "count", "has_extras", "headers", "lengths", "size", "topics")

    def __init__(self, count: int, lengths: bytes, blob: bytes) -> None:
        self.count = count
        self.lengths = lengths
        self.blob = blob
        self.size = len(lengths) + len(blob)
        """The size on the wire, in bytes."""
        self.topics: str | list[str] | None = None
        """The topic of all events, or the topic of each; None before `check`."""
        self.has_extras = True
        """Whether the sender of an event has set extras; before `check` one may have."""
        self.headers: list[Header] | None = None
        """The decoded headers, if `check` had to decode them."""
        self._cut: tuple[list[bytes], array[int]] | None = None

    @classmethod
    def of(cls, events: Sequence[bytes], body_lengths: Iterable[int]) -> EventColumns:
        """Makes columns of encoded events."""
        return cls(len(events), pairs_of(events, body_lengths), b"".join(events))

    @classmethod
    def encoded(
        cls,
        topic: str,
        properties: Sequence[dict[str, Property]],
        extras: Sequence[Extras | None],
        bodies: Sequence[bytes],
    ) -> EventColumns:
        """Encodes events of one topic, and keeps what matching needs. The caller has checked the values."""
        columns = cls.of(encode_events(topic, properties, extras, bodies), map(len, bodies))
        columns.topics = topic
        if not fast.COMPILED:  # it matches bytes
            columns.headers = list(map(Header, repeat(topic), properties, extras))
        return columns

    def wholes(self) -> array[int]:
        """Returns the length of each event."""
        return self._numbers()[::2]

    def bodies(self) -> array[int]:
        """Returns the length of each event's body."""
        return self._numbers()[1::2]

    def _numbers(self) -> array[int]:
        return array_of("I", self.lengths)

    def check(self, event_bytes_max: int = 1 << 32) -> None:
        """Finds out the topics, and whether there are extras.

        Raises ValueError if the lengths do not add up or an event is malformed: see `batch_bytes.check`.
        """
        if not self.count or len(self.lengths) != 8 * self.count:
            raise ValueError("a batch is empty, or has not one pair of lengths for each event")
        found = fast.check(self.blob, self.lengths, event_bytes_max)
        if found is None:
            self.headers = checked(*self.cut(), event_bytes_max)
            found = facts_of(self.headers)
        self.topics, self.has_extras = found

    @property
    def named(self) -> set[str]:
        """The distinct topics, which `check` has found."""
        assert self.topics is not None, "topics are known after a check"
        return {self.topics} if isinstance(self.topics, str) else set(self.topics)

    def slice(self, start: int, stop: int) -> EventColumns:
        """Returns a copy of the events at 0 <= start <= stop <= count: it does not keep the others in memory."""
        if start == 0 and stop == self.count:
            return self
        wholes = self.wholes()
        begin = sum(wholes[:start])
        end = begin + sum(wholes[start:stop])
        part = EventColumns(stop - start, self.lengths[8 * start : 8 * stop], self.blob[begin:end])
        part.topics = self.topics[start:stop] if isinstance(self.topics, list) else self.topics
        part.has_extras = self.has_extras
        part.headers = None if self.headers is None else self.headers[start:stop]
        return part

    def portions(self, bytes_max: int, events_max: int) -> Iterator[EventColumns]:
        """Yields all events in parts of at most so many events and bytes; an event that is larger is a part."""
        if self.count and self.count <= events_max and len(self.blob) <= bytes_max:
            yield self
            return
        start = size = 0
        for at, length in enumerate(self.wholes()):
            if at > start and (size + length > bytes_max or at - start >= events_max):
                yield self.slice(start, at)
                start, size = at, 0
            size += length
        if start < self.count:
            yield self.slice(start, self.count)

    def batch(self, ticks: Sequence[Tick]) -> EventBatch:
        """Returns the events under these ticks."""
        if self._cut is not None:  # otherwise memory would hold the whole and its parts
            batch = EventBatch(ticks, *self._cut, self.headers)
            if self.topics is not None:
                batch.facts = self.topics, self.has_extras
            return batch
        return EventBatch.of(ticks, [self], self.headers)

    def cut(self) -> tuple[list[bytes], array[int]]:
        """Returns the single events, and their body lengths. The blob is cut once."""
        if self._cut is None:
            self._cut = cut(self.blob, self.lengths)
        return self._cut

    def at(self, places: Sequence[int]) -> EventColumns:
        """Returns the events at these ascending places."""
        blob, wholes, lengths = self.blob, self.wholes(), self.lengths
        events: list[bytes] = []
        end = behind = 0
        for place in places:
            start = end + sum(wholes[behind:place])
            end, behind = start + wholes[place], place + 1
            events.append(blob[start:end])
        pairs = b"".join([lengths[8 * place : 8 * place + 8] for place in places])
        part = EventColumns(len(events), pairs, b"".join(events))
        part.topics = [self.topics[place] for place in places] if isinstance(self.topics, list) else self.topics
        part.has_extras = self.has_extras
        part.headers = None if self.headers is None else [self.headers[place] for place in places]
        return part

    def event(self, place: int) -> bytes:
        """Returns one event."""
        wholes = self.wholes()
        start = sum(wholes[:place])
        return self.blob[start : start + wholes[place]]

    @classmethod
    def of_rows(cls, rows: bytes, blob: bytes) -> tuple[list[Tick], EventColumns]:
        """Returns the ticks and the columns of events that are given by whole rows (`ROW`).

        What the rows say is for `check` to find out.
        """
        numbers = array_of("Q", rows)
        lengths = bytes_of(numbers[1::2])  # a pair of u32 is as long as a tick
        return numbers[::2].tolist(), cls(len(numbers) // 2, lengths, blob)


class EventBatch:
    """Events of one pubend in tick order. Immutable by convention; slices share the events.

    The events are stored one by one, or in columns, which are cut when single events are needed.
    """

    __slots__ = (
        "_body_lengths",
        "_events",
        "_groups",
        "_headers",
        "_rows",
        "_singles",
        "_times",
        "columns",
        "facts",
        "ticks",
    )

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
        self.facts: tuple[str | list[str], bool] | None = None
        """The topics, and whether there are extras, if the events are stored one by one and were checked before."""
        self._headers = headers
        self._singles: dict[int, Header] = {}
        """The headers that were decoded one by one."""
        self._groups: dict[str, Groups] | None = None
        """The columns of values that several matchers look at; see `matched_by_several`."""
        self._rows: list[bytes] | None = None
        self._times: bytes | None = None

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

    @property
    def topics(self) -> Sequence[str]:
        """The topic of each event. Raises ValueError."""
        self.learn()
        if self.facts is not None:
            found = self.facts[0]
            return found if isinstance(found, list) else [found] * len(self)
        if not self.columns:
            return list(map(_topic_of, self.headers))
        topics: list[str] = []
        for columns in self.columns:
            each = columns.topics
            topics += each if isinstance(each, list) else [each or ""] * columns.count
        return topics

    def _one_topic(self) -> str:
        """Returns the topic of all events; "" if they differ, or it takes a look at each event. Raises ValueError."""
        self.learn()
        topics = [self.facts[0]] if self.facts is not None else [columns.topics for columns in self.columns]
        first = topics[0] if topics else None
        return first if isinstance(first, str) and topics.count(first) == len(topics) else ""

    @property
    def has_extras(self) -> bool:
        """Whether the sender of an event may have set extras. Without any nothing expires. Raises ValueError."""
        self.learn()
        if self.facts is not None:
            return self.facts[1]
        if not self.columns:
            return any(map(_extras_of, self.headers))
        return any(columns.has_extras for columns in self.columns)

    def learn(self) -> None:
        """Checks the columns that were not checked yet. Raises ValueError."""
        for columns in self.columns:
            if columns.topics is None:
                columns.check()
        headers = [columns.headers for columns in self.columns]
        if self._headers is None and headers and None not in headers:
            self._headers = list(chain.from_iterable(filter(None, headers)))

    def forget_headers(self) -> None:
        """Lets go of the headers, which take several times the memory of a small event; who needs them decodes anew.

        For events that stay in memory after all who were to get them have matched them.
        """
        self._headers = None
        self._singles = {}
        self.facts = None  # events that are stored one by one are matched by their headers alone
        for columns in self.columns:
            columns.headers = None

    def header(self, place: int) -> Header:
        """Returns topic, properties and extras of one event. Raises ValueError."""
        if self._headers is None and len(self._singles) >= SINGLES_MAX:
            return self.headers[place]
        if self._headers is not None:
            return self._headers[place]
        header = self._singles.get(place)
        if header is None:
            try:
                header = self._singles[place] = _decode_header(self._event(place))
            except msgspec.MsgspecError as error:
                raise ValueError(f"an event is malformed: {error}") from error
        return header

    def _event(self, place: int) -> bytes:
        if self._events is not None:
            return self._events[place]
        for columns in self.columns:
            if place < columns.count:
                return columns.event(place)
            place -= columns.count
        raise IndexError("there are not so many events")

    def event(self, pubend: PubendId, place: int) -> Event:
        """Returns one event of a pubend in the form for applications, without its body."""
        header = self.header(place)
        return Event(header.topic, header.properties, header.extras, b"", self.ticks[place], pubend)

    def match(self, pubend: PubendId, matcher: BatchMatcher) -> list[tuple[int, Collection[int]]]:
        """Returns which filters of the matcher these events match; see `BatchMatcher.match`."""
        topics = self._one_topic() or self.topics  # first: without the compiled module this decodes the headers
        headers = BatchHeaders(pubend, self)
        if self.columns and not self.decoded:
            return matcher.match(topics, BatchProperties(self), headers)
        return matcher.match(topics, [header.properties for header in self.headers], headers)

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
        if mask == (1 << count) - 1:
            return self
        if self.columns and fast.COMPILED:
            return self._gathered(mask)
        return self.at(list(compress(range(count), mask_flags(mask, count))))

    def _gathered(self, mask: int) -> EventBatch:
        """Returns the same, in one column: no step per event, but for topics if they differ."""
        if not mask:
            return EMPTY
        payload = fast.gather(*self._pieces(), self._tick_bytes(), mask)
        behind_rows = COUNT_BYTES + ROW.size * mask.bit_count()
        ticks, columns = EventColumns.of_rows(payload[COUNT_BYTES:behind_rows], payload[behind_rows:])
        topics = [each.topics for each in self.columns]
        if None not in topics:  # else nobody knows them, and whoever asks has them found out
            flags = mask_flags(mask, len(self.ticks))
            same = isinstance(topics[0], str) and topics.count(topics[0]) == len(topics)
            columns.topics = topics[0] if same else list(compress(self.topics, flags))
            columns.has_extras = any(each.has_extras for each in self.columns)
        headers = None
        if self._headers is not None:
            headers = list(compress(self._headers, mask_flags(mask, len(self.ticks))))
        return EventBatch.of(ticks, [columns], headers)

    def at(self, places: Sequence[int]) -> EventBatch:
        """Returns the events at these ascending places."""
        ticks = [self.ticks[place] for place in places]
        headers = None if self._headers is None else [self._headers[place] for place in places]
        if not self.columns:
            events, bodies = self.events, self.body_lengths
            return EventBatch(ticks, [events[at] for at in places], [bodies[at] for at in places], headers)
        chosen: list[EventColumns] = []
        start = low = 0
        for columns in self.columns:
            high = bisect_left(places, start + columns.count, low)
            if low < high:
                chosen.append(columns.at([place - start for place in places[low:high]]))
            start, low = start + columns.count, high
        return EventBatch.of(ticks, chosen, headers)

    def payload(self, mask: int) -> bytes:
        """Returns count, rows and events of the selected events: the part of a delivery that subscribers share."""
        count = len(self.ticks)
        if mask == (1 << count) - 1:
            if self._events is None:
                return b"".join((count.to_bytes(4, "little"), *self.row_blobs(), *self.blobs()))
            return b"".join((count.to_bytes(4, "little"), *self.rows, *self._events))
        if self.columns and fast.COMPILED:  # Python is faster with events that are cut once, for all masks
            return fast.gather(*self._pieces(), self._tick_bytes(), mask)
        number = mask.bit_count().to_bytes(4, "little")
        if mask.bit_count() * _SPARSE < count:
            return b"".join((number, *selected(self.rows, mask), *selected(self.events, mask)))
        flags = mask_flags(mask, count)
        return b"".join((number, *compress(self.rows, flags), *compress(self.events, flags)))

    def _pieces(self) -> tuple[list[bytes], list[bytes]]:
        """Returns the blobs and the lengths of the columns."""
        return [columns.blob for columns in self.columns], [columns.lengths for columns in self.columns]

    def _tick_bytes(self) -> bytes:
        if self._times is None:
            self._times = bytes_of(array("Q", list(self.ticks)))
        return self._times

    def group_values(self, name: str, bits: Sequence[int]) -> Groups:
        """Returns which events have which value of a property; see `batch_bytes.column`. Only for columns."""
        assert self.columns, "events that are stored one by one have no columns of values"
        if self._groups is None:
            return fast.column(*self._pieces(), name, bits)
        if name not in self._groups:
            self._groups[name] = fast.column(*self._pieces(), name, bits)
        return self._groups[name]

    @contextmanager
    def matched_by_several(self) -> Iterator[None]:
        """Within, each column of values is made once, for all matchers. Kept for longer it would take much memory."""
        self._groups = {}
        try:
            yield
        finally:
            self._groups = None

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


class BatchProperties:
    """The properties of the events of a batch: `gapless.selectors.columns.PropertyRows`."""

    __slots__ = ("_batch",)

    def __init__(self, batch: EventBatch) -> None:
        self._batch = batch

    def __len__(self) -> int:
        return len(self._batch)

    def __getitem__(self, place: int, /) -> Mapping[str, Value]:
        """Returns the properties of one event, which is decoded for that."""
        return self._batch.header(place).properties

    def column(self, name: str, bits: Sequence[int]) -> Groups:
        """Returns which events have which value of a property; nothing is decoded."""
        return self._batch.group_values(name, bits)


EMPTY = EventBatch((), (), ())
"""A batch without events."""


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
        return b"".join(ROW.pack(tick, *pair) for tick, pair in zip(ticks, PAIR.iter_unpack(lengths), strict=True))
    numbers = array("Q", bytes(ROW.size * len(ticks)))
    numbers[::2] = array("Q", list(ticks))
    numbers[1::2] = array("Q", lengths)
    return numbers
