"""Deliveries: events in columns, as a subscriber gets them over the wire.

All events of a delivery are decoded in one call: with an array header before them they are one msgpack array. Ticks and
bodies are found by arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from operator import gt

import msgspec

from gapless.core.stream.batch_bytes import LITTLE_ENDIAN, ROW
from gapless.core.stream.columns import array_header
from gapless.core.stream.events import Event
from gapless.core.stream.ticks import PubendId, Tick

_decode_events = msgspec.msgpack.Decoder(list[Event]).decode


class DeliveredColumns:
    """A delivery as it came over the wire: count, rows, events. It is decoded when needed."""

    __slots__ = ("_ends", "_events", "_rows", "count", "size")

    def __init__(self, count: int, rows: memoryview, events: memoryview) -> None:
        self.count = count
        self._rows = rows
        self._events = events
        self.size = len(rows) + len(events)
        """The bytes of rows and events."""
        self._ends: list[int] | None = None

    @classmethod
    def parse(cls, blob: bytes, offset: int) -> DeliveredColumns:
        """Returns the delivery that fills `blob` from `offset` on. Raises ValueError if it does not fill it exactly."""
        count = int.from_bytes(blob[offset : offset + 4], "little")
        columns = memoryview(blob)[offset + 4 :]
        if len(columns) < ROW.size * count:
            raise ValueError("a delivery is shorter than its rows")
        parsed = cls(count, columns[: ROW.size * count], columns[ROW.size * count :])
        if sum(parsed.lengths()) != parsed.size - ROW.size * count:
            raise ValueError("the lengths of the events do not add up to the delivery")
        return parsed

    @property
    def _bounds(self) -> list[int]:
        """Where each event begins, and where the last one ends."""
        if self._ends is None:
            self._ends = list(accumulate(self.lengths(), initial=0))
        return self._ends

    @property
    def buffers(self) -> tuple[memoryview, memoryview]:
        """All rows (`ROW`), and all events one after the other, as they came: for readers of columns."""
        return self._rows, self._events

    def rows(self) -> Iterator[tuple[Tick, int, int]]:
        """Yields tick, length and body length of each event."""
        return ROW.iter_unpack(self._rows)

    def ticks(self) -> list[Tick]:
        """Returns the ticks, in order."""
        if LITTLE_ENDIAN:
            return self._rows.cast("Q")[::2].tolist()
        return [tick for tick, _, _ in self.rows()]

    def lengths(self) -> list[int]:
        """Returns the length of each event."""
        if LITTLE_ENDIAN:
            return self._rows.cast("I")[2::4].tolist()
        return [length for _, length, _ in self.rows()]

    def bodies(self) -> list[bytes]:
        """Returns the body of each event; nothing is decoded. Raises ValueError if one is longer than its event."""
        events = bytes(self._events)
        if LITTLE_ENDIAN:
            body_lengths = self._rows.cast("I")[3::4].tolist()
        else:
            body_lengths = [length for _, _, length in self.rows()]
        lengths = self.lengths()
        if any(map(gt, body_lengths, lengths)):
            raise ValueError("the body of an event is longer than the event")
        return [events[end - body : end] for end, body in zip(accumulate(lengths), body_lengths, strict=True)]

    def size_of(self, place: int) -> int:
        """Returns the bytes of one row and its event."""
        bounds = self._bounds
        return ROW.size + bounds[place + 1] - bounds[place]

    def slice(self, start: int, stop: int) -> DeliveredColumns:
        """Returns the events with these positions, 0 <= start <= stop <= count; the bytes are shared."""
        if start == 0 and stop == self.count:
            return self
        ends, size = self._bounds, ROW.size
        return DeliveredColumns(
            stop - start, self._rows[size * start : size * stop], self._events[ends[start] : ends[stop]]
        )

    def events(self, pubend: PubendId) -> list[Event]:
        """Returns all events, decoded in one call. Raises ValueError if they are not `count` well-formed events."""
        try:
            events = _decode_events(b"".join((array_header(self.count), self._events)))
        except msgspec.MsgspecError as error:
            raise ValueError(f"an event is malformed: {error}") from error
        for event, tick in zip(events, self.ticks()):  # noqa: B905
            event.tick = tick
            event.pubend = pubend
        return events
