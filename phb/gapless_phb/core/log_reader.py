"""Answers to wants, read from the log (protocol: answers; T43, T50).

A want becomes spans of the log, each read in chunks; every chunk is answered as soon as it is read. Ranges
that lie near each other share a span, so a thousand single ticks of few records cost one read.

What a read does not return is silence only if it cannot be anything else. Three things could have taken
it: a chop (so `lost` and the chop point are looked at after the read), the end of a chunk (so nothing is
said beyond the chunk's last event), and damage (so the records must be linked, one to the next).

Of what cannot be read nothing is said, and reading goes on behind it: whoever needs none of it does not wait. What
an operator has given up is said to be damaged, without reading.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.network.facts import Know
from gapless.core.outbox import Outbox
from gapless.core.ports import ReadResult
from gapless.core.stream.columns import EMPTY, EventBatch
from gapless.core.stream.intervals import Ranges
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import Tick
from gapless.errors import VolumeCorruptError
from gapless_phb.core.source import Facts, Piece

NEAR_BYTES = 64 << 10
"""Ranges with fewer bytes of log between them are read in one go."""
LITTLE_BYTES = 4 << 10
"""Ranges with no more than this between them are answered in one: nobody minds to be told a little more."""
READS_MAX = 4
"""How many reads of a pubend are under way; wants take turns, a chunk each."""
WANTS_MAX = 1024
"""How many wants may be under way; more are dropped, and asked again by whoever needs them."""
ALARM_EVERY = 60_000_000_000
"""At most once in this time (nanoseconds) a pubend complains about its reads."""


@dataclass(slots=True)
class Span:
    """A piece of the log to read, (after, upto], and the ranges in it that are wanted."""

    after: Tick
    upto: Tick
    ranges: list[tuple[Tick, Tick]]
    behind_hole: bool = False
    """Whether the records up to `after` could not be read, so that the next one says where its events begin."""

    def begin(self, tick: Tick) -> None:
        """Of what is at or below a tick nothing can be said."""
        self.ranges = [(max(lo, tick), hi) for lo, hi in self.ranges if hi > tick]
        self.behind_hole = False


@dataclass(slots=True)
class Wanted:
    """A want under way: the spans that are still to be read."""

    key: Hashable
    reply_to: Hashable
    spans: deque[Span] = field(default_factory=deque)


class LogReader:
    """Reads what is wanted, a chunk at a time for each want in turn, and says what it finds as replies."""

    def __init__(self, log: Facts, outbox: Outbox) -> None:
        self._log = log
        self._outbox = outbox
        self._wanted: dict[Hashable, Wanted] = {}
        self._waiting: deque[Wanted] = deque()
        self._reading = 0
        self._alarm_after = 0
        self.read_records = 0
        """Records that were read for wants since the start."""
        self.read_bytes = 0
        """Their bytes."""

    def __len__(self) -> int:
        return len(self._wanted)

    def ask(self, ranges: Ranges, reply_to: Hashable) -> None:
        """Answers everything of the ranges that is decided; beyond that it says nothing."""
        key = (reply_to, ranges)
        if key in self._wanted or len(self._wanted) >= WANTS_MAX:
            return
        wanted = Wanted(key, reply_to)
        for lo, hi, is_given_up in self._parts(ranges):
            if is_given_up:
                self._outbox.emit(Know(Knowledge.of_damage(self._log.pubend, lo, hi, self._log.lost), reply_to))
            elif lo >= self._log.newest:
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
        """The ranges up to what is stable, in parts that were given up and others."""
        damage, lost, stable = self._log.damage, self._log.lost, self._log.stable
        clipped = ((lo, min(hi, stable)) for lo, hi in ranges if lo < stable)
        return (part for lo, hi in clipped for part in damage.divide(lo, hi, lost))

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

        def answered(result: ReadResult, now: int, _wall: int) -> None:
            self._on_read(wanted, upto, result, now)

        self._outbox.read(self._log.stream, after, upto, answered)

    def _on_read(self, wanted: Wanted, upto: Tick, result: ReadResult, now: int) -> None:
        """A chunk is there: answers it, and goes on behind it when the others have had their turn."""
        self._reading -= 1
        self.read_records += len(result.records)
        self.read_bytes += sum(len(raw) for _, raw in result.records)
        span = wanted.spans[0]
        records, fault, hole = self._linked(span, upto, result)
        if span.behind_hole and (records or not hole):
            span.begin(records[0].previous if records else span.after)
        covered = records[-1].last_tick if records else span.after
        if not fault and (covered >= upto or not records):
            covered = span.upto  # above the newest record there is nothing; below the chop point, no more
        if not span.behind_hole:
            self._answer(wanted.reply_to, span, records, covered, result.first)
        span.after = covered
        if fault:
            self._complain(fault, now)
        if hole:
            self._log.damage.note(span.after, hole, fault)
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

    def _linked(self, span: Span, upto: Tick, result: ReadResult) -> tuple[list[Piece], str, Tick]:
        """The records up to the first fault, the fault, and behind which index to go on in spite of it, or 0.

        A fault is damage, or a record that should be there.
        There is a record at or above `upto`: a read that finds none above `after` has met a chop, or a hole.
        """
        if result.error and upto > result.first:  # else all that was asked for is chopped, and damage is behind it
            return [], result.error, result.damaged_upto
        records: list[Piece] = []
        reached = max(self._log.damage.behind(span.after), result.first)
        for index, raw in result.records:
            try:
                record = self._log.decode(index, raw)
            except VolumeCorruptError as error:
                return records, str(error), index
            if record.previous != reached if records else record.previous > reached:
                return records, f"the record at tick {record.previous} is missing", 0
            records.append(record)
            reached = record.last_tick
        if not records and upto > result.first:
            return [], f"no record is found between ticks {reached} and {upto}", 0
        return records, "", 0

    def _answer(self, reply_to: Hashable, span: Span, records: list[Piece], covered: Tick, first: Tick) -> None:
        """Says what the records tell of each range up to `covered`.

        A chop may be done and not yet durable: what it took cannot be called lost before `lost` is durable
        (a crash would bring it back), nor silent. Of (lost, first] nothing is said.
        """
        lasts = [record.last_tick for record in records]
        lost = self._log.lost
        while span.ranges and span.ranges[0][0] < covered:
            lo, hi = span.ranges[0]
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
        """A range that cannot be read stays unknown: its subscribers wait, and the operator is told (T24)."""
        if now >= self._alarm_after:
            self._alarm_after = now + ALARM_EVERY
            text = f"{self._log.pubend}: part of the log cannot be read, and its subscribers wait: {fault}"
            self._outbox.emit(Alarm(AlarmCode.LOG_UNREADABLE, text, self._log.pubend))


def _is_little(records: list[Piece], lasts: list[Tick], lo: Tick, hi: Tick) -> bool:
    """Whether so little was read between two ranges that one answer for both costs less than two."""
    return _within(records, lasts, lo, hi).size <= LITTLE_BYTES


def _within(records: list[Piece], lasts: list[Tick], lo: Tick, hi: Tick) -> EventBatch:
    """The events of (lo, hi]: of every record that overlaps it, whatever its index (T50)."""
    found: list[EventBatch] = []
    for position in range(bisect_right(lasts, lo), len(records)):
        if records[position].first_tick > hi:
            break
        found.append(records[position].within(lo, hi))
    batches = [batch for batch in found if len(batch)]
    return EventBatch.concatenate(batches) if batches else EMPTY
