"""What a consumer of a shared subscription is handed: events and gaps, held by the numbers of their deliveries.

A `HeldRun` is what has arrived together, until it is handed out: the numbers of its deliveries follow one another.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from gapless.core.client.consuming.buffer import DECODED_EVENTS
from gapless.core.client.consuming.items import Delivery, Gap
from gapless.core.stream.columns import array_header
from gapless.core.stream.events import Event
from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.delivered import DeliveredColumns


class HeldEvent(Event, array_like=True, gc=False):
    """An event of a shared subscription: its consumer holds it until it is settled.

    `delivery_count` says how often it was handed out, this time included, and `redelivered` whether it may have been
    handed out before: then the count is 2 at least. A pickle of it is a plain `Event`, which cannot be settled: only
    the process that holds an event settles it.
    """

    delivery_number: int = 0
    """The number of this delivery; each delivery of a subscription has another one."""
    hold: Any = None
    """Goes when nobody refers any more to what was handed out together; for gapless itself."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Event, (
            self.topic,
            self.properties,
            self.extras,
            self.body,
            self.tick,
            self.pubend,
            self.delivery_count,
        )


class HeldGap(Gap, frozen=True, gc=False):
    """A gap in a shared subscription: it is held and settled as an event is, by its end. A pickle is a plain `Gap`."""

    delivery_count: int = 1
    """How often somebody was told of it, this time included."""
    delivery_number: int = 0
    hold: Any = None

    @property
    def redelivered(self) -> bool:
        """Whether somebody may have been told of it before."""
        return self.delivery_count > 1

    def __reduce__(self) -> tuple[Any, ...]:
        return Gap, (self.pubend, self.start, self.end, self.reason)


_decode_events = msgspec.msgpack.Decoder(list[HeldEvent]).decode


class HeldDelivery(Delivery):
    """Events of one pubend that are handed out together, with the numbers of their deliveries."""

    __slots__ = ("counts", "numbers", "single")

    def __init__(
        self,
        pubend: PubendId,
        columns: Sequence[DeliveredColumns],
        ticks: Sequence[Tick],
        numbers: Sequence[int],
        counts: Sequence[int],
        single: HeldEvent | None = None,
        size: int = 0,
    ) -> None:
        """`counts`: how often each was handed out, this time included; empty: once. The rest as of `Delivery`."""
        super().__init__(pubend, columns, ticks, single, size)
        self.numbers = numbers
        self.counts = counts
        self.single = single

    def events(self, hold: object = None) -> list[HeldEvent]:  # type: ignore[override]  # they are events, and more
        """Returns the events, with the hold that they share. Raises ValueError if one is malformed."""
        if self.single is not None:
            self.single.hold = hold
            return [self.single]
        events: list[HeldEvent] = []
        for columns in self.columns:
            events += _decode(columns)
        for event, tick, number in zip(events, self.ticks, self.numbers):  # noqa: B905 - as many, by what was decoded
            event.tick = tick
            event.pubend = self.pubend
            event.delivery_number = number
            event.hold = hold
        for event, count in zip(events, self.counts):  # noqa: B905 - or none
            event.delivery_count = count
        return events


def _decode(columns: DeliveredColumns) -> list[HeldEvent]:
    try:
        events = _decode_events(b"".join((array_header(columns.count), columns.buffers[1])))
    except msgspec.MsgspecError as error:
        raise ValueError(f"an event is malformed: {error}") from error
    return events


class HeldRun(Struct, eq=False):
    """Events of one pubend, or a gap, that have arrived and were not handed out: deliveries with numbers in a row."""

    pubend: PubendId
    first: int
    """The number of the first delivery."""
    ticks: list[Tick]
    """Of a gap: its end."""
    columns: DeliveredColumns | None
    gap: HeldGap | None = None
    attempts: bytes = b""
    """How often each was taken or retried before; empty: none of them was."""
    marked: bool = False
    """Whether they may have been handed out before."""
    taken: bool = False
    """Whether the broker has counted this attempt."""
    at: int = 0
    """How many were handed out already."""
    decoded: list[HeldEvent] = []
    """Some of those that are next, decoded; the next one is the last."""

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.ticks) - self.at

    @property
    def numbers(self) -> range:
        """The numbers of their deliveries."""
        return range(self.first + self.at, self.first + len(self.ticks))

    @property
    def events(self) -> int:
        """How many of them are events, which cost credit; a gap costs none."""
        return 0 if self.columns is None else self.count

    @property
    def size(self) -> int:
        """The bytes of their rows and events."""
        if self.columns is None:
            return 0
        return self.columns.slice(self.at, self.columns.count).size if self.at else self.columns.size

    def places(self) -> list[tuple[Tick, int]]:
        """Returns tick and delivery number of each."""
        return list(zip(self.ticks[self.at :], self.numbers, strict=True))

    @property
    def unattempted(self) -> int:
        """How many of those that come first were never attempted."""
        attempts = self.attempts[self.at :]
        return len(attempts) - len(attempts.lstrip(b"\0")) if attempts else self.count

    def part(self, start: int, stop: int) -> HeldRun:
        """Returns those with these places, 0 <= start < stop <= count; the bytes are shared."""
        if start == 0 and stop == self.count:
            return self
        assert self.columns is not None, "a gap has one place"
        begin, end = self.at + start, self.at + stop
        return HeldRun(
            self.pubend,
            self.first + begin,
            self.ticks[begin:end],
            self.columns.slice(begin, end),
            attempts=self.attempts[begin:end],
            marked=self.marked,
            taken=self.taken,
        )

    def without(self, numbers: Collection[int]) -> list[HeldRun]:
        """Returns what is left of it without the deliveries with these numbers, in order."""
        if not any(number in numbers for number in self.numbers):
            return [self]
        parts: list[HeldRun] = []
        start = 0
        for place, number in enumerate(self.numbers):
            if number in numbers:
                if start < place:
                    parts.append(self.part(start, place))
                start = place + 1
        if start < self.count:
            parts.append(self.part(start, self.count))
        return parts

    def take(self, events_max: int) -> HeldDelivery:
        """Hands out the first events, up to so many. If none are left then, `count` is 0."""
        assert self.columns is not None, "a gap is no delivery"
        delivery = self._delivery(min(events_max, self.count), self.columns)
        self.at += delivery.count
        self.decoded = []
        return delivery

    def take_one(self) -> HeldDelivery:
        """Hands out the first event; some that follow are decoded together with it."""
        assert self.columns is not None, "a gap is no delivery"
        if not self.decoded:
            together = self._delivery(min(DECODED_EVENTS, self.count), self.columns)
            try:
                self.decoded = together.events()
            except ValueError:  # whoever takes that one finds it, too
                return self.take(1)
            self.decoded.reverse()
        event, size = self.decoded.pop(), self.columns.size_of(self.at)
        self.at += 1
        return HeldDelivery(self.pubend, (), (event.tick,), (event.delivery_number,), (), event, size)

    def _delivery(self, count: int, columns: DeliveredColumns) -> HeldDelivery:
        stop = self.at + count
        return HeldDelivery(
            self.pubend,
            [columns.slice(self.at, stop)],
            self.ticks[self.at : stop],
            range(self.first + self.at, self.first + stop),
            counts_of(self.attempts[self.at : stop], count, marked=self.marked),
        )


def counts_of(attempts: bytes, count: int, *, marked: bool) -> list[int]:
    """Returns how often each of so many is handed out, the coming time included; empty: once.

    `marked`: they may have been handed out before, although nobody has counted it.
    """
    if marked:
        return [max(2, attempt + 1) for attempt in attempts] or [2] * count
    return [attempt + 1 for attempt in attempts]
