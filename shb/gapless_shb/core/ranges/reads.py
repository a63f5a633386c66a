"""The range reads that clients have asked for: each has a reader, a credit, and a session."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from gapless.core.ports import ClientSession, ReadResult, Tell, Transmit
from gapless.core.principals import Principal
from gapless.core.stream.columns import EventBatch
from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.codec import range_head
from gapless.core.wire.messages import Code, EndRead, GapReason, Position, RangeGap, RangeRead, ReadOn, ReadRange
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.pfs.blocks import BlockColumn
from gapless_shb.core.ranges.reader import READ_BYTES, BoundedReader
from gapless_shb.core.state.consumers import Credited, rotated
from gapless_shb.core.state.refusals import RefusedError
from gapless_shb.core.subscriptions.checks import called, check_positions, found_for_ranges, over

FOUND_AGAIN: Final = 10_000_000_000
"""Within so many nanoseconds after its start a broker hears again of every pubend that there is."""
READS_MAX: Final = 256
"""How many ranges one session may read at a time."""
FRAME_BYTES: Final = 1 << 20
"""The limit of a frame's size; a frame with one event may be larger."""
FRAME_EVENTS: Final = 8192
RANGES: Final = ""
"""Stands in the place of a pubend, which has a name, where range reads of all pubends have their turns."""


class RangeDelivery(Credited):
    """A sink that sends to a session as much as its credit allows."""

    wants_events = True

    def __init__(self, hosting: Hosting, session: ClientSession, request: ReadRange) -> None:
        self.channel = hosting.channel(session)
        self.principal = session.principal
        self._request = request.request
        self.credit_events = request.credit_events
        self.credit_bytes = request.credit_bytes
        self.payload_max = hosting.payload_max

    @property
    def full(self) -> bool:
        """Whether not even one event may be sent now."""
        return self.starved

    def ticks(self, ticks: Sequence[Tick]) -> None:
        """Is never called, because the events are wanted."""
        raise AssertionError("a delivery wants events")

    def column(self, column: BlockColumn) -> None:
        """Is never called, because the events are wanted."""
        raise AssertionError("a delivery wants events")

    def events(self, events: EventBatch) -> EventBatch | None:
        """Sends as many events as the credit allows, up to one that is too large. Returns the rest."""
        while count := self.affordable(events, FRAME_EVENTS, FRAME_BYTES):
            payload = events.slice(0, count).payload((1 << count) - 1)
            if self.is_too_large(payload):
                return events
            self.spend(count, len(payload))
            self.channel.counts.ranges += count
            head = range_head(self.channel.session, self._request)
            self.channel.emit(Transmit(self.channel.session, ((head, payload),)))
            self.channel.charge(len(payload))
            if count == len(events):
                return None
            events = events.slice(count, len(events))
        return events

    def gap(self, start: Tick, end: Tick, reason: GapReason) -> None:
        """Sends a gap."""
        self.channel.counts.gaps[reason] += 1
        gap = RangeGap(self._request, start, end, reason.value)
        self.channel.emit(Tell(self.channel.session, gap))


class Reads:
    """All range reads of an SHB."""

    def __init__(self, hosting: Hosting) -> None:
        self._hosting = hosting
        self._readers: dict[tuple[int, int], tuple[BoundedReader, RangeDelivery]] = {}
        """The reads, by session and the client's number; whoever was given events last stands last. A link that one
        event fills would otherwise be filled by the same read each time, and the others fetch in vain."""
        self._runnable: dict[tuple[int, int], None] = {}
        """The reads that can go on, in the order of their turns."""
        self._turn_at = -1
        self._left = 0
        """How many events they may still examine in this turn of the node."""

    def __len__(self) -> int:
        return len(self._readers)

    # ------------------------------------------------------------------------------- what clients ask

    def on_read_range(self, session: ClientSession, request: ReadRange, now: int, wall: int) -> None:
        """Begins to read a range. Raises RefusedError."""
        key = (session.number, request.request)
        subscription = found_for_ranges(self._hosting, session, request.target)
        edges = [Position(request.pubend, request.lo), Position(request.pubend, request.hi)]
        check_positions(edges, self._hosting, called(subscription.name), now)
        stream = self._hosting.streams.get(request.pubend)
        if stream is None:  # it may have been found just before a crash, and told before that was durable
            is_young = now - self._hosting.started_at < FOUND_AGAIN
            code = Code.RETRY if is_young else Code.TOKEN_MISMATCH
            raise RefusedError(code, f"this broker knows of no pubend {request.pubend!r}")
        if stream.positions[subscription.sid].sought:
            raise RefusedError(Code.RETRY, f"where the subscription starts on {request.pubend!r} is not known yet")
        if sum(number == session.number for number, _ in self._readers) >= READS_MAX:
            raise RefusedError(Code.RETRY, f"a session may read {READS_MAX} ranges at a time")
        delivery = RangeDelivery(self._hosting, session, request)
        read = partial(self._read, key)
        go_on = partial(self._wake, [key])
        reader = BoundedReader(stream, subscription, request.lo, max(request.lo, request.hi), delivery, read, go_on)
        self._drop(key)
        self._readers[key] = reader, delivery
        self._hosting.session_ends.add(session.number, key, lambda _now, _wall: self._drop(key))
        stream.scheduler.join(reader)
        self._wake([key], now, wall)

    def on_read_on(self, session: ClientSession, request: ReadOn, now: int, wall: int) -> None:
        """Adds credit: the client has room for more."""
        key = (session.number, request.request)
        if key in self._readers:
            _, delivery = self._readers[key]
            delivery.grant(request.events, request.bytes)
            self._wake([key], now, wall)

    def on_end_read(self, session: ClientSession, request: EndRead) -> None:
        """Ends a read: the client does not want the rest."""
        self._drop((session.number, request.request))

    # ---------------------------------------------------------------------------------- what happened

    def on_heard(self, pubend: PubendId, now: int, wall: int) -> None:
        """Something has arrived, or the head has moved: the readers of the pubend go on."""
        self._wake([key for key, (reader, _) in self._readers.items() if reader.stream.pubend == pubend], now, wall)

    def on_room(self, session: int, turn: int, now: int, wall: int) -> None:
        """The link of a session has room again: its reads go on, each time another one first."""
        self._wake(rotated([key for key in self._readers if key[0] == session], turn), now, wall)

    def on_removed(self) -> None:
        """Ends the reads of subscriptions that were removed or have another filter, with an error."""
        for key, (reader, _) in list(self._readers.items()):
            error = over(self._hosting, reader.sid, reader.version)
            if error is not None:
                self.end(key, error)

    @property
    def under_way(self) -> list[tuple[int, int]]:
        """The reads that are not over: their sessions, and the numbers of their requests."""
        return list(self._readers)

    def of(self, key: tuple[int, int]) -> tuple[Principal, int] | None:
        """Returns who reads, and which subscription; None if that read is over."""
        if key not in self._readers:
            return None
        reader, delivery = self._readers[key]
        return delivery.principal, reader.sid

    def end(self, key: tuple[int, int], error: RefusedError) -> None:
        """Ends a read with an error."""
        self._drop(key)
        self._hosting.tell(key[0], error.answer(key[1]))

    @property
    def deadline(self) -> int | None:
        """When the reads that are left over have to go on; None if there are none."""
        return self._turn_at + 1 if self._runnable else None

    def go_on(self, now: int, wall: int) -> None:
        """Lets reads go on, one piece of work each in turn, until all wait or the turn's events are used up."""
        turns = self._hosting.turns
        if now != self._turn_at:
            self._turn_at, self._left = now, turns.allowance(now, self._hosting.catch_up.turn_events)
        while self._runnable and self._left > 0:
            key = next(iter(self._runnable))
            del self._runnable[key]
            reader, delivery = self._readers[key]
            credit = delivery.credit_events
            if reader.step(now, wall):
                self._runnable[key] = None
            if delivery.credit_events < credit:
                self._readers[key] = self._readers.pop(key)
            self._left -= max(credit - delivery.credit_events, reader.examined, 1)
            if reader.complete:
                self._drop(key)
                self._hosting.outbox.emit(Tell(key[0], RangeRead(key[1])))
        turns.end(RANGES, left_over=bool(self._runnable))

    # ----------------------------------------------------------------------------------- how it is done

    def _drop(self, key: tuple[int, int]) -> None:
        self._runnable.pop(key, None)
        if key in self._readers:
            reader, _ = self._readers.pop(key)
            self._hosting.session_ends.remove(key[0], key)
            reader.close()
            self._hosting.streams[reader.stream.pubend].scheduler.leave(reader)

    def _wake(self, keys: Iterable[tuple[int, int]], now: int, wall: int) -> None:
        self._runnable.update(dict.fromkeys(keys))
        self.go_on(now, wall)

    def _read(self, key: tuple[int, int], after: Tick, upto: Tick) -> None:
        reader, _ = self._readers[key]

        def answered(result: ReadResult, now: int, wall: int) -> None:
            # The client may have ended this read and given its number to another one.
            if key in self._readers and self._readers[key][0] is reader:
                reader.on_read(result)
                self._wake([key], now, wall)

        self._hosting.outbox.read(reader.stream.pfs.stream, after, upto, answered, READ_BYTES)
