"""Answers wants from the log: which ticks of a range are events, and which are silence (protocol: answers; T43, T50).

How a want is answered:

1. It becomes spans of the log. Ranges that lie near each other share a span, so a thousand single ticks of few
   records cost one read.
2. Each span is read in chunks, and each chunk is answered as soon as it is read.

A tick without an event in the answer of a read is silence only if nothing else can have removed the event. Three
things could:

- a chop: so `lost` and the chop point are looked at *after* the read;
- the end of a chunk: so nothing is answered beyond what the chunk reaches;
- damage: so the log shows how far its pieces follow one another without a hole (`gapless_phb.core.source.Found`).

A part that cannot be read gets no answer, and reading goes on behind it; a reader that needs none of it does not
wait. A part that an operator has given up is answered as damaged, without reading.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.network.facts import Know
from gapless.core.outbox import Outbox
from gapless.core.stream.columns import EMPTY, EventBatch
from gapless.core.stream.intervals import Ranges
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import Tick
from gapless_phb.core.source import Facts, Found, Piece

NEAR_BYTES = 64 << 10
"""Ranges with fewer bytes of log between them are read together."""
LITTLE_BYTES = 4 << 10
"""Ranges with no more bytes than this between them get one answer: it is cheaper to send a little too much."""
READS_MAX = 4
"""How many reads of a pubend are under way at once; wants take turns, one chunk each."""
WANTS_MAX = 1024
"""How many wants may be under way. Further ones are dropped; the SHB asks again as long as it needs the answer."""
ALARM_EVERY = 60_000_000_000
"""A pubend raises an alarm about its reads at most once in this time (nanoseconds)."""


@dataclass(slots=True)
class Span:
    """A piece of the log to read, (after, upto], and the wanted ranges in it."""

    after: Tick
    upto: Tick
    ranges: list[tuple[Tick, Tick]]
    behind_hole: bool = False
    """Whether the records up to `after` could not be read. Then the next record shows where the hole ends."""

    def begin(self, tick: Tick) -> None:
        """Drops the part of the ranges that is at or below a tick, because nothing can be said about it."""
        self.ranges = [(max(lo, tick), hi) for lo, hi in self.ranges if hi > tick]
        self.behind_hole = False


@dataclass(slots=True)
class Wanted:
    """A want under way, with the spans that are still to be read."""

    key: Hashable
    reply_to: Hashable
    spans: deque[Span] = field(default_factory=deque)


class LogReader:
    """Reads the log for wants, one chunk for each want in turn, and sends the findings as replies."""

    def __init__(self, log: Facts, outbox: Outbox) -> None:
        self._log = log
        self._outbox = outbox
        self._wanted: dict[Hashable, Wanted] = {}
        self._waiting: deque[Wanted] = deque()
        self._reading = 0
        self._alarm_after = 0
        self.read_records = 0
        """How many records were read for wants since the start."""
        self.read_bytes = 0
        """The bytes of these records."""

    def __len__(self) -> int:
        return len(self._wanted)

    def ask(self, ranges: Ranges, reply_to: Hashable) -> None:
        """Answers the part of the ranges that is decided. About the rest it sends nothing."""
        key = (reply_to, ranges)
        # The SHB repeats its question while it waits. The same want is answered once.
        if key in self._wanted or len(self._wanted) >= WANTS_MAX:
            return
        wanted = Wanted(key, reply_to)
        for lo, hi, is_given_up in self._parts(ranges):
            if is_given_up:
                self._outbox.emit(Know(Knowledge.of_damage(self._log.pubend, lo, hi, self._log.lost), reply_to))
            elif self._log.is_silent(lo, hi):
                self._reply(reply_to, lo, hi, EMPTY)
            elif wanted.spans and self._is_near(wanted.spans[-1].upto, lo):
                wanted.spans[-1].upto = hi
                wanted.spans[-1].ranges.append((lo, hi))
            else:
                wanted.spans.append(Span(lo, hi, [(lo, hi)]))
        if wanted.spans:
            self._wanted[key] = wanted
            self._waiting.append(wanted)
            self._read_on()

    def _parts(self, ranges: Ranges) -> Iterator[tuple[Tick, Tick, bool]]:
        """Yields what can be said of the ranges, cut into parts (lo, hi, whether this part was given up)."""
        damage, lost = self._log.damage, self._log.lost
        said = ((lo, self._log.answered_upto(hi)) for lo, hi in ranges)
        return (part for lo, hi in said if lo < hi for part in damage.divide(lo, hi, lost))

    def _is_near(self, upto: Tick, lo: Tick) -> bool:
        return self._log.index.between(upto, lo) <= NEAR_BYTES and not self._log.damage.is_between(upto, lo)

    def _read_on(self) -> None:
        while self._waiting and self._reading < READS_MAX:
            self._reading += 1
            self._read(self._waiting.popleft())

    def _read(self, wanted: Wanted) -> None:
        span = wanted.spans[0]
        after = self._log.damage.behind(span.after)
        upto = min(max(span.upto, after + 1), self._log.newest)

        def answered(result: Found, now: int) -> None:
            self._on_read(wanted, upto, result, now)

        self._log.read(after, upto, answered)

    def _on_read(self, wanted: Wanted, upto: Tick, result: Found, now: int) -> None:
        """Handles a chunk: answers it, then queues the want again behind the others."""
        self._reading -= 1
        records, fault, hole = result.pieces, result.fault, result.hole
        self.read_records += len(records)
        self.read_bytes += result.size
        span = wanted.spans[0]
        # Behind a hole the first record says where its own events begin; below that everything stays unknown.
        if span.behind_hole and (records or not hole):
            span.begin(records[0].previous if records else span.after)
        lost = self._log.lost
        if upto <= lost:  # a chop within a hole that was given up left a stream that begins before the hole
            fault, hole = "", 0
        covered = max(span.after, result.reached, min(lost, upto))
        if not fault and covered >= upto:
            covered = span.upto  # above the newest record, and between the chop point and `after`, there is nothing
        if not span.behind_hole:
            self._answer(wanted.reply_to, span, records, covered, result.first)
        span.after = covered
        if fault:
            self._complain(fault, now)
        if hole:
            self._log.damage.note(span.after, hole, fault)
            # The hole reaches the newest record. Above that there is only silence, which needs no read.
            if hole >= self._log.newest:
                span.begin(self._log.newest)
                self._answer(wanted.reply_to, span, [], span.upto, result.first)
                span.ranges.clear()
            span.after, span.behind_hole = hole, True
        if not span.ranges:
            wanted.spans.popleft()
        if wanted.spans and (hole or not fault):
            self._waiting.append(wanted)
        else:
            del self._wanted[wanted.key]
        self._read_on()

    def _answer(self, reply_to: Hashable, span: Span, records: list[Piece], covered: Tick, first: Tick) -> None:
        """Replies for each range up to `covered`, with the events that the records have in it.

        A chop may be done but not yet durable. The ticks that it took, (lost, first], get no answer for now. They must
        not be called lost, because a crash would bring them back; and they are not silent.
        """
        lasts = [record.last_tick for record in records]
        lost = self._log.lost
        while span.ranges and span.ranges[0][0] < covered:
            lo, hi = span.ranges[0]
            # Ranges with little between them are joined: one answer costs less than two.
            while len(span.ranges) > 1 and span.ranges[1][0] < covered:
                if not _is_little(records, lasts, hi, span.ranges[1][0]):
                    break
                hi = span.ranges.pop(1)[1]
            end = min(hi, covered)
            pieces = [(lo, end)] if first <= lost else [(lo, min(end, lost)), (max(lo, first), end)]
            for low, high in pieces:
                if low < high:
                    self._reply(reply_to, low, high, _within(records, lasts, low, high))
            if end < hi:
                span.ranges[0] = (end, hi)
                return
            del span.ranges[0]

    def _reply(self, reply_to: Hashable, lo: Tick, hi: Tick, data: EventBatch) -> None:
        assert lo < hi <= self._log.stable, "nothing is answered that is not decided"
        knowledge = Knowledge(self._log.pubend, lo, hi, data, self._log.lost, reply=True)
        self._outbox.emit(Know(knowledge, reply_to))

    def _complain(self, fault: str, now: int) -> None:
        """Raises an alarm: a range that cannot be read stays unknown, and its subscribers wait (T24)."""
        if now >= self._alarm_after:
            self._alarm_after = now + ALARM_EVERY
            text = f"{self._log.pubend}: part of the log cannot be read, and its subscribers wait: {fault}"
            self._outbox.emit(Alarm(AlarmCode.LOG_UNREADABLE, text, self._log.pubend))


def _is_little(records: list[Piece], lasts: list[Tick], lo: Tick, hi: Tick) -> bool:
    """Whether the events between two ranges are so few that one answer for both costs less than two."""
    return _within(records, lasts, lo, hi).size <= LITTLE_BYTES


def _within(records: list[Piece], lasts: list[Tick], lo: Tick, hi: Tick) -> EventBatch:
    """Returns the events in (lo, hi], from every record that overlaps it, whatever the record's index is (T50)."""
    found: list[EventBatch] = []
    for position in range(bisect_right(lasts, lo), len(records)):
        if records[position].first_tick > hi:
            break
        found.append(records[position].within(lo, hi))
    batches = [batch for batch in found if len(batch)]
    return EventBatch.concatenate(batches) if batches else EMPTY
