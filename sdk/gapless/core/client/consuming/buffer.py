"""One pubend of one subscription at the client: what has arrived, what is in flight, and both positions.

    position ─▶ [in flight] ─▶ end ─▶ [buffered, …] ─▶ received

`position` is the tick for the token: everything up to it was handed out, and the application has asked for more since.
After a reconnect the subscription continues after `received`. A silence takes no memory: it only moves the end of the
last entry, in the buffer or in flight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from operator import lt

from msgspec import Struct

from gapless.core.client.consuming.acknowledging import History
from gapless.core.client.consuming.items import Delivery, Gap, Item, Silence
from gapless.core.stream.events import Event
from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.delivered import DeliveredColumns
from gapless.errors import RemoteProtocolError

DECODED_EVENTS = 32
"""How many events are decoded at once that are handed out one by one."""


class BufferedEntry(Struct, eq=False):
    """A piece of the stream: events with the silence after them, a silence, or a gap."""

    start: Tick
    upto: Tick
    gap: Gap | None = None
    columns: DeliveredColumns | None = None
    ticks: Sequence[Tick] = ()
    taken: int = 0
    """How many of the events were handed out."""
    events: list[Event] = []
    """Some of them, decoded; the next one is the last."""

    def decode(self, pubend: PubendId) -> Event | None:
        """Decodes some events together. Returns the first of them; None if one of these is malformed."""
        assert self.columns is not None
        some = self.columns.slice(self.taken, min(self.taken + DECODED_EVENTS, self.columns.count))
        try:
            self.events = some.events(pubend)
        except ValueError:  # whoever takes that one finds it, too
            return None
        self.events.reverse()
        return self.events.pop()


class PubendBuffer:
    """The stream of one pubend as one subscription sees it."""

    __slots__ = ("_entries", "_in_flight", "_wants_silence", "history", "position", "pubend", "received")

    def __init__(self, pubend: PubendId, start: Tick, last_below: Tick, *, wants_silence: bool) -> None:
        self.pubend = pubend
        self.received = start
        self.position = start
        self.history = History(start, last_below)
        self._entries: deque[BufferedEntry] = deque()
        self._in_flight: BufferedEntry | None = None
        self._wants_silence = wants_silence

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def end(self) -> Tick:
        """The position after what is in flight."""
        return self._in_flight.upto if self._in_flight is not None else self.position

    def only_silent(self, acknowledged: Tick) -> bool:
        """Whether only silence came after the acknowledged position, which may lie before the start."""
        return self.history.silent_after(acknowledged) and self._in_flight is None and not self._entries

    # What happened.

    def on_events(self, columns: DeliveredColumns) -> DeliveredColumns | None:
        """Events have arrived. Returns those that are new; events that came before are dropped.

        Raises RemoteProtocolError, having changed nothing, if they are not in order.
        """
        ticks = columns.ticks()
        if not all(map(lt, ticks, islice(ticks, 1, None))):
            raise RemoteProtocolError(f"a delivery of {self.pubend} is not in tick order")
        if not ticks or ticks[-1] <= self.received:
            return None
        if ticks[0] <= self.received:
            old = sum(tick <= self.received for tick in ticks)
            columns = columns.slice(old, columns.count)
            ticks = ticks[old:]
        self._append(BufferedEntry(self.received, ticks[-1], None, columns, ticks))
        return columns

    def on_silence(self, upto: Tick, *, joins: bool) -> bool:
        """Silence has arrived up to a tick. Returns whether there is a new entry to hand out.

        `joins`: it may become part of a silence that was not handed out yet, if that is the last entry.
        """
        if upto <= self.received:
            return False
        last = self._entries[-1] if self._entries else self._in_flight
        if self._wants_silence:
            if not (joins and self._entries) or last is None or last.columns is not None or last.gap is not None:
                self._append(BufferedEntry(self.received, upto))
                return True
            last.upto = self.received = upto
            return False
        self.received = upto
        if last is not None:
            last.upto = upto
        else:
            self.position = upto
        return False

    def on_gap(self, start: Tick, end: Tick, reason: str) -> bool:
        """A gap has arrived: events in (start, end] may be lost. Returns whether it is new; known ticks stay known.

        Raises RemoteProtocolError, having changed nothing, if the interval is empty.
        """
        if start >= end:
            raise RemoteProtocolError(f"a gap of {self.pubend} from {start} to {end} is empty")
        if end <= self.received:
            return False
        start = max(start, self.received)
        self._append(BufferedEntry(start, end, Gap(self.pubend, start, end, reason)))
        return True

    # Commands.

    def take(self, events_max: int | None, entries_max: int) -> Item:
        """Hands out the next entry. With `events_max`: consecutive events, up to so many.

        They are of `entries_max` entries at most; 0: of any number.
        """
        assert self._in_flight is None, "advance before taking"
        entry = self._entries[0]
        if entry.columns is not None:
            if events_max == 1:
                return self._take_event(entry, entry.columns)
            room = entry.columns.count if events_max is None else events_max
            return self._take_events(room, entries_max or len(self._entries))
        self._in_flight = self._entries.popleft()
        if entry.gap is None:
            return Silence(self.pubend, entry.start, entry.upto)
        # Events in the gap may exist. A token from before or within it must not find them acknowledged as silence.
        self.history.add_gap(entry.start, entry.upto)
        return entry.gap

    def peek(self, events_max: int, entries_max: int) -> list[Tick]:
        """Returns the ticks of the events that `take` would hand out; none if it would hand out something else."""
        ticks: list[Tick] = []
        for entry in islice(self._entries, entries_max or None):
            if entry.columns is None or len(ticks) >= events_max:
                break
            ticks += entry.ticks[entry.taken : entry.taken + events_max - len(ticks)]
        return ticks

    def peek_events(self, events_max: int, entries_max: int) -> list[Event]:
        """Returns the events that `take` would hand out, up to one that is malformed."""
        events: list[Event] = []
        for entry in islice(self._entries, entries_max or None):
            if entry.columns is None or len(events) >= events_max:
                break
            upto = min(entry.columns.count, entry.taken + events_max - len(events))
            try:
                events += entry.columns.slice(entry.taken, upto).events(self.pubend)
            except ValueError:  # whoever takes that one finds it, too
                break
        return events

    def advance(self) -> None:
        """The application is done with what was in flight, and with the silence after it."""
        if self._in_flight is not None:
            assert self.position <= self._in_flight.upto <= self.received
            self.position = self._in_flight.upto
            self._in_flight = None

    def last_event(self, tick: Tick) -> Tick:
        """Returns the last event at or below a position, as an acknowledgement has to name it."""
        return tick if tick > self.end else self.history.last_event(tick)

    # How it is done.

    def _append(self, entry: BufferedEntry) -> None:
        assert self.position <= self.received <= entry.start < entry.upto
        self._entries.append(entry)
        self.received = entry.upto

    def _take_event(self, entry: BufferedEntry, columns: DeliveredColumns) -> Delivery:
        at = entry.taken
        event = entry.events.pop() if entry.events else entry.decode(self.pubend)
        entry.taken = at + 1
        ticks = [entry.ticks[at]]
        if entry.taken == columns.count:
            self._entries.popleft()
            self._in_flight = BufferedEntry(entry.start, entry.upto)
        else:
            self._in_flight = BufferedEntry(entry.start, ticks[0])
        self.history.add(ticks)
        if event is None:
            return Delivery(self.pubend, [columns.slice(at, at + 1)], ticks)
        return Delivery(self.pubend, (), ticks, event, columns.size_of(at))

    def _take_events(self, room: int, entries: int) -> Delivery:
        columns: list[DeliveredColumns] = []
        ticks: list[Tick] = []
        in_flight = BufferedEntry(self._entries[0].start, 0)
        while self._entries and room > 0 and entries > 0:
            entry = self._entries[0]
            if entry.columns is None:
                break
            entry.events = []
            start, entry.taken = entry.taken, min(entry.taken + room, entry.columns.count)
            columns.append(entry.columns.slice(start, entry.taken))
            ticks.extend(entry.ticks[start : entry.taken])
            room -= entry.taken - start
            if entry.taken == entry.columns.count:
                self._entries.popleft()
                entries -= 1
                in_flight.upto = entry.upto
            else:
                in_flight.upto = ticks[-1]
        assert ticks, "a batch has events, and its position stands behind them"
        assert in_flight.upto >= ticks[-1], "a batch has events, and its position stands behind them"
        self._in_flight = in_flight
        self.history.add(ticks)
        return Delivery(self.pubend, columns, ticks)
