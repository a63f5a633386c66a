"""Ranges that the application reads; after a reconnect each continues where it was (protocol: ranges)."""

from __future__ import annotations

from collections import deque
from operator import ge
from typing import ClassVar, Final, TypeAlias

from msgspec.structs import replace

from gapless.core.client.consuming.items import Delivery, Gap
from gapless.core.client.link.backoff import Backoff
from gapless.core.client.link.effects import Arrived
from gapless.core.client.link.outbox import ClientOutbox
from gapless.core.client.link.registry import Key
from gapless.core.client.link.requests import Answers, PendingRequest
from gapless.core.deadlines import Deadlines
from gapless.core.wire.messages import RangeEvents, RangeGap, RangeRead, ReadOn, ReadRange
from gapless.errors import RemoteProtocolError

WINDOW_EVENTS: Final = 32_768
WINDOW_BYTES: Final = 4 << 20
"""How much of one range may be on its way, or wait to be taken."""

Part: TypeAlias = Delivery | Gap


class RangeReading(PendingRequest):
    """One range: how far it has arrived, and the parts that were not taken yet."""

    message: ReadRange

    def __init__(self, message: ReadRange, backoff: Backoff, outbox: ClientOutbox, deadlines: Deadlines[Key]) -> None:
        """The credit of the message is set anew with each request."""
        super().__init__(message, backoff, outbox, deadlines)
        self.horizon = message.lo
        """Everything in the range up to here has arrived."""
        self.complete = False
        self.parts: deque[Part] = deque()
        self._spent_events = 0
        self._spent_bytes = 0
        """How much was taken since the last grant; for events and for bytes."""
        self._announced = False

    # What happened.

    def request(self) -> ReadRange | None:
        """Returns the request for what has not arrived, with credit for the room that there is."""
        if self.complete:
            return None
        waiting = [part for part in self.parts if isinstance(part, Delivery)]
        events = WINDOW_EVENTS - sum(part.count for part in waiting)
        size = WINDOW_BYTES - sum(_size(part) for part in waiting)
        self._spent_events = self._spent_bytes = 0
        assert self.message.lo <= self.horizon <= self.message.hi
        return replace(self.message, lo=self.horizon, credit_events=events, credit_bytes=size)

    def _on_events(self, message: RangeEvents) -> None:
        """Events have arrived; those that came in an earlier session already are dropped."""
        columns = message.columns
        ticks = columns.ticks()
        if not ticks or ticks[-1] > self.message.hi or any(map(ge, ticks, ticks[1:])):
            raise RemoteProtocolError("events of a range are out of order, or outside of it")
        known = sum(tick <= self.horizon for tick in ticks) if ticks[0] <= self.horizon else 0
        if known == len(ticks):
            return
        self.horizon = ticks[-1]
        self.parts.append(Delivery(self.message.pubend, [columns.slice(known, columns.count)], ticks[known:]))
        self._arrived()

    def _on_gap(self, gap: RangeGap) -> None:
        """A gap has arrived."""
        if not gap.start < gap.end <= self.message.hi:
            raise RemoteProtocolError("a gap is outside of its range")
        if gap.end > self.horizon:
            self.parts.append(Gap(self.message.pubend, max(gap.start, self.horizon), gap.end, gap.reason))
            self.horizon = gap.end
            self._arrived()

    def _on_read(self, _message: RangeRead) -> None:
        """Nothing more will arrive."""
        self.complete, self.served = True, False
        self._arrived()

    ANSWERS: ClassVar[Answers] = {
        RangeEvents: _on_events,
        RangeGap: _on_gap,
        RangeRead: _on_read,
    }

    # Commands.

    def take(self) -> Part | None:
        """Returns the next part; None if there is none yet, or no more. Grants the room that is free again."""
        if not self.parts:
            self._announced = False
            return None
        part = self.parts.popleft()
        if isinstance(part, Delivery):
            self._spent_events += part.count
            self._spent_bytes += _size(part)
            if 2 * self._spent_events >= WINDOW_EVENTS or 2 * self._spent_bytes >= WINDOW_BYTES:
                self._grant()
        return part

    def _grant(self) -> None:
        if self._outbox.open and not self.complete:
            self._outbox.send(ReadOn(self.number, self._spent_events, self._spent_bytes))
        self._spent_events = self._spent_bytes = 0

    def _arrived(self) -> None:
        if not self._announced:
            self._announced = True
            self._outbox.tell(Arrived(self.number))


def _size(part: Delivery) -> int:
    """Returns the credit that a delivery costs: its count, rows and events."""
    return sum(4 + columns.size for columns in part.columns)
