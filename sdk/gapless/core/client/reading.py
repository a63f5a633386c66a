"""Ranges that the application reads: each goes on where it was after a reconnect (protocol: ranges)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from operator import ge
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from gapless.core.client.backoff import Backoff
from gapless.core.client.effects import Arrived, Failed
from gapless.core.client.items import Delivery, Gap
from gapless.core.client.outbox import Outbox
from gapless.core.client.refusals import TEMPORARY, request_error
from gapless.core.client.timers import Key, Timer
from gapless.core.deadlines import Deadlines
from gapless.core.wire.messages import EndRead, RangeEvents, RangeGap, RangeRead, ReadOn, ReadRange, RequestFailed
from gapless.errors import GaplessError, RemoteProtocolError

WINDOW_EVENTS: Final = 32_768
WINDOW_BYTES: Final = 4 << 20
"""So much of one range may be on its way, or wait to be taken."""

Part: TypeAlias = Delivery | Gap


class RangeReading:
    """One range, how far it has come, and what was not taken yet."""

    __slots__ = ("_spent_bytes", "_spent_events", "_told", "backoff", "complete", "horizon", "message", "parts")

    def __init__(self, message: ReadRange, backoff: Backoff) -> None:
        self.message = message
        self.backoff = backoff
        self.horizon = message.lo
        """Everything of the range up to here has arrived."""
        self.complete = False
        self.parts: deque[Part] = deque()
        self._spent_events = 0
        self._spent_bytes = 0
        """Taken, and not granted again."""
        self._told = False

    def request(self) -> ReadRange:
        """Asks for what has not arrived, as far as there is room for it."""
        waiting = [part for part in self.parts if isinstance(part, Delivery)]
        events = WINDOW_EVENTS - sum(part.count for part in waiting)
        size = WINDOW_BYTES - sum(_size(part) for part in waiting)
        self._spent_events = self._spent_bytes = 0
        assert self.message.lo <= self.horizon <= self.message.hi
        return replace(self.message, lo=self.horizon, credit_events=events, credit_bytes=size)

    def on_events(self, message: RangeEvents) -> None:
        """Events arrived; those that came in an earlier session too are dropped."""
        columns = message.columns
        ticks = columns.ticks()
        if not ticks or ticks[-1] > self.message.hi or any(map(ge, ticks, ticks[1:])):
            raise RemoteProtocolError("events of a range are out of order, or outside of it")
        known = sum(tick <= self.horizon for tick in ticks) if ticks[0] <= self.horizon else 0
        if known == len(ticks):
            return
        self.horizon = ticks[-1]
        self.parts.append(Delivery(self.message.pubend, [columns.slice(known, columns.count)], ticks[known:]))

    def on_gap(self, gap: RangeGap) -> None:
        """Something may be missing."""
        if not gap.start < gap.end <= self.message.hi:
            raise RemoteProtocolError("a gap is outside of its range")
        if gap.end > self.horizon:
            self.parts.append(Gap(self.message.pubend, max(gap.start, self.horizon), gap.end, gap.reason))
            self.horizon = gap.end

    def take(self) -> Part | None:
        """The next part; None when there is none yet, or all were taken."""
        if not self.parts:
            self._told = False
            return None
        part = self.parts.popleft()
        if isinstance(part, Delivery):
            self._spent_events += part.count
            self._spent_bytes += _size(part)
        return part

    def grant(self) -> ReadOn | None:
        """The room that there is again, when it is worth saying."""
        if 2 * self._spent_events < WINDOW_EVENTS and 2 * self._spent_bytes < WINDOW_BYTES:
            return None
        grant = ReadOn(self.message.request, self._spent_events, self._spent_bytes)
        self._spent_events = self._spent_bytes = 0
        return grant

    def is_news(self) -> bool:
        """Whether the application has to be told that there is something to take; it is told once."""
        told, self._told = self._told, True
        return not told


def _size(part: Delivery) -> int:
    """What a delivery costs: its count, rows and events."""
    return sum(4 + columns.size for columns in part.columns)


class Readings:
    """All range reads of one connection."""

    def __init__(self, outbox: Outbox, deadlines: Deadlines[Key], backoff: Callable[[], Backoff]) -> None:
        self._outbox = outbox
        self._deadlines = deadlines
        self._backoff = backoff
        self._readings: dict[int, RangeReading] = {}

    def __contains__(self, number: int) -> bool:
        return number in self._readings

    def handlers(self) -> Mapping[type, Callable[[Any], None]]:
        """Which of the broker's messages are about ranges. A read that has ended hears nothing."""
        return {RangeEvents: self._on_events, RangeGap: self._on_gap, RangeRead: self._on_read}

    # What happened.

    def on_session(self) -> None:
        """A session is open: what has not arrived is asked for again."""
        for reading in self._readings.values():
            if not reading.complete:
                self._outbox.send(reading.request())

    def on_session_over(self) -> None:
        """The session is over: what was put off is asked for in the next one."""
        for number in self._readings:
            self._deadlines.clear((Timer.RANGE, number))

    def on_deadline(self, number: int) -> None:
        """The time to ask once more has come."""
        reading = self._readings.get(number)
        if reading is not None and self._outbox.open:
            self._outbox.send(reading.request())

    def on_failed(self, failed: RequestFailed) -> None:
        """The broker cannot read it, or not now."""
        reading = self._readings[failed.request]
        if failed.code in TEMPORARY:
            self._deadlines.set((Timer.RANGE, failed.request), self._outbox.now + reading.backoff.next())
            return
        self._fail(failed.request, request_error(failed))

    # Commands.

    def read(self, message: ReadRange) -> int:
        """Begins to read a range: its number, credit and session are set here."""
        reading = self._readings[message.request] = RangeReading(message, self._backoff())
        if self._outbox.open:
            self._outbox.send(reading.request())
        return message.request

    def take(self, number: int) -> Part | None:
        """The next part that has arrived."""
        reading = self._readings.get(number)
        if reading is None:
            return None
        part = reading.take()
        grant = reading.grant()
        if grant is not None and self._outbox.open and not reading.complete:
            self._outbox.send(grant)
        return part

    def is_complete(self, number: int) -> bool:
        """Whether nothing more will arrive, and everything was taken."""
        reading = self._readings.get(number)
        return reading is None or (reading.complete and not reading.parts)

    def end(self, number: int) -> None:
        """Nobody wants the rest."""
        reading = self._readings.pop(number, None)
        self._deadlines.clear((Timer.RANGE, number))
        if reading is not None and not reading.complete and self._outbox.open:
            self._outbox.send(EndRead(number))

    def fail_all(self, error: GaplessError) -> None:
        """Nothing more will arrive."""
        for number in list(self._readings):
            self._fail(number, error)

    # How it is done.

    def _fail(self, number: int, error: GaplessError) -> None:
        del self._readings[number]
        self._deadlines.clear((Timer.RANGE, number))
        self._outbox.tell(Failed(number, error))

    def _on_events(self, message: RangeEvents) -> None:
        reading = self._readings.get(message.request)
        if reading is not None:
            reading.on_events(message)
            self._arrived(reading)

    def _on_gap(self, message: RangeGap) -> None:
        reading = self._readings.get(message.request)
        if reading is not None:
            reading.on_gap(message)
            self._arrived(reading)

    def _on_read(self, message: RangeRead) -> None:
        reading = self._readings.get(message.request)
        if reading is not None:
            reading.complete = True
            self._arrived(reading)

    def _arrived(self, reading: RangeReading) -> None:
        if (reading.parts or reading.complete) and reading.is_news():
            self._outbox.tell(Arrived(reading.message.request))
