"""A numbered log as its pubend follows and reads it (protocol: numbered-logs).

    lost                              newest      stable
      |   in the log, told              | silence   |   nobody here has read it yet
    --+---------------------------------+-----------+------------------------------> ticks

Nothing here is durable, and nothing has to be: what is asserted of a tick follows from the log alone. An event is
asserted where a piece has one that is in no duplicate, and silence at the other ticks of a piece and in voids. What no
piece covers, and neither lies in a void nor at or below the log's beginning, is missing. Of that nothing is asserted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.network.facts import Know
from gapless.core.outbox import Outbox
from gapless.core.ports import Follow, Grown, LogMark, LogPiece, LogRead, NumberedLog, Taken
from gapless.core.stream.columns import EMPTY, EventBatch
from gapless.core.stream.intervals import IntervalSet
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import LAST, Tick
from gapless.errors import VolumeCorruptError
from gapless_phb.core.damage import Damage
from gapless_phb.core.foreign_log.duplicates import Marks, between, judged, ticks_of, window, without
from gapless_phb.core.source import ANSWER_BYTES, SECOND, Found, Piece, ThenFound, Timer, Timers

END: Tick = LAST
"""When a log is gone, nobody knows how far it had come: other gateways may have told more of it, and what was appended
last nobody has read. So everything up to here counts as lost, at every gateway alike."""
WINDOW = 8 << 20
"""How many bytes of growth may be on their way to the pubend."""
EVENT_BYTES = 256
PIECE_BYTES = 16 << 10
"""Guesses at the sizes of a record and of a piece, until some are seen."""
READ_BYTES = 1 << 20
"""How many bytes are asked for at once, at the most. A piece comes whole, however large it is."""
AGAIN = SECOND
"""When to ask once more what could not be read, in nanoseconds."""
TOLD_MAX = 1000
"""How many events that are too large are remembered, so that the operator is told of each once."""
UNREADABLE_REMEDY = "Do what the text says; look at the servers that keep the log. It is read again every few seconds."
"""The remedy differs from that of other damage: it is not in the volume, and nothing that repairs a volume finds it."""
_COMPACTED = "records are missing: was the topic compacted?"

Marked: TypeAlias = tuple[Tick, LogMark]
Judged: TypeAlias = tuple[Tick, LogMark, bool]
"""(tick of its first event, mark, whether it is a duplicate)."""


@dataclass(slots=True)
class DecodedPiece:
    """A piece of a numbered log: the events in (previous, last_tick]."""

    previous: Tick
    last_tick: Tick
    events: EventBatch
    marks: Sequence[Marked]
    """Those of batches that were published to this very log."""

    @property
    def first_tick(self) -> Tick:
        """The first tick that it covers."""
        return self.previous + 1

    def within(self, lo: Tick, hi: Tick) -> EventBatch:
        """Returns its events with ticks in (lo, hi]."""
        return between(self.events, lo, hi)


class MeanSizes:
    """Estimates how many bytes of a numbered log lie where, by the mean size of the records that were seen."""

    def __init__(self, log: FollowedLog) -> None:
        self._log = log
        self._records = self._pieces = 0
        self.total = 0
        """The bytes of all pieces that the pubend has followed."""

    def add(self, pieces: Sequence[LogPiece]) -> None:
        """Notes pieces that were followed."""
        for piece in pieces:
            if piece.raw is not None:
                self._records += piece.last - piece.first + 1
                self._pieces += 1
                self.total += len(piece.raw)

    @property
    def size(self) -> int:
        """About how many bytes the log has."""
        return self.above(self._log.lost)

    def above(self, tick: Tick) -> int:
        """Returns about how many bytes lie above `tick`."""
        return self.between(max(tick, self._log.lost), self._log.stable)

    def between(self, lo: Tick, hi: Tick) -> int:
        """Returns about how many bytes lie in (lo, hi]."""
        records = sum(high - low for low, high in self._log.voids.gaps(lo, hi))
        return records * (self.total // self._records if self._records else EVENT_BYTES)

    def asked(self, lo: Tick, hi: Tick) -> int:
        """Returns how many bytes a read of (lo, hi] should ask for: what lies there, and the pieces at both ends whole.

        Of a single record it asks for the piece that has it. What is asked too little is read by another read.
        """
        if hi - lo <= 1:
            return 1
        piece = self.total // self._pieces if self._pieces else PIECE_BYTES
        return min(self.between(lo, hi) + 2 * piece, ANSWER_BYTES)

    def covered(self, least: int) -> Tick:
        """Returns nothing: how much is kept is the log's own affair."""
        return 0

    def next(self, tick: Tick) -> Tick | None:
        """Returns the newest event above `tick`, if the pubend decides what goes; else None."""
        log = self._log
        return log.newest if log.found.capabilities.trims and log.newest > tick else None

    def sample(self, upto: Tick) -> list[tuple[Tick, int]]:
        """Returns the one point that there is."""
        return [(upto, self.total)]


class FollowedLog:
    """What is known of the log, how it is told, and how a part of it is read (`gapless_phb.core.source.Facts`)."""

    grain: Tick = 1
    suspect = False

    def __init__(
        self,
        found: NumberedLog,
        rules: Sequence[tuple[Tick, bytes]],
        tag: int,
        event_bytes_max: int,
        outbox: Outbox,
        timers: Timers,
        on_told: Callable[[Sequence[Judged], int], None],
    ) -> None:
        """`rules`: those of the past, each behind the tick from which it holds; the last ones are today's.

        `event_bytes_max`: what is larger is delivered to nobody, and the operator is told.
        `on_told` is called with the marked batches in what was just told, each with whether it is a duplicate, and the
        time.
        """
        self.pubend = found.log
        self.found = found
        self.voids = IntervalSet(found.voids)
        self.lost = self.lost_asked = found.first
        self.stable = self.newest = max(found.decided, found.first)
        self.ready = False
        self.ended = False
        """Whether the log is gone for good."""
        self.damage = Damage(found.log)
        self.index = MeanSizes(self)
        self.events = 0
        """How many it has brought."""
        self._rules = rules
        self._tag = tag
        self._event_bytes_max = event_bytes_max
        self._too_large: set[Tick] = set()
        """The events of which the operator was told that they are too large, the latest ones."""
        self._outbox = outbox
        self._timers = timers
        self._on_told = on_told
        self._begin = self.stable
        """Everything above was followed, so all duplicates above are known."""
        self._duplicates = IntervalSet()
        self._marks = Marks(self.stable)
        self._grown: deque[tuple[Grown, list[DecodedPiece]]] = deque()
        """What has come and is not told yet: older marks have to be read before."""
        self._alarm_after = 0
        timers.on(Timer.LOG, lambda now, _wall: self._tell(now))

    # ------------------------------------------------------------------------------------ the growing end

    def follow(self) -> None:
        """Asks for all that comes above what is told."""
        self._grown.clear()
        self._outbox.emit(Follow(self.pubend, self.stable, WINDOW))

    def learn(self, found: NumberedLog, now: int) -> bool:
        """Takes a newer description of the log. Returns whether it tells other voids."""
        others = found.voids != self.found.voids
        self.found = found
        self.voids = IntervalSet(found.voids)
        self.raise_lost(found.first)
        if others:
            # What was met may have been cut off. Who judges by it says other things than who begins to read now.
            self._marks = Marks(self.stable)
            self._timers.wake(Timer.LOG, now)
        return others

    def raise_lost(self, first: Tick) -> None:
        """Retention has removed everything up to a tick."""
        if first > self.lost:
            self.lost = first
            self.lost_asked = max(first, self.lost_asked)
            self._duplicates.remove(0, first)

    def end(self) -> None:
        """The log is gone for good: all that was ever in it is lost, and nothing more will come."""
        self.ended = True
        self._grown.clear()
        self.lost = self.lost_asked = self.stable = END
        self.newest = 0

    def on_grown(self, grown: Grown, now: int) -> None:
        """The log has grown: tells that, once what is needed to judge it has been read."""
        if self.ended:
            return
        reached = self._grown[-1][0].hi if self._grown else self.stable
        if grown.lo != reached:  # of a `Follow` that was replaced
            self._outbox.emit(Taken(self.pubend, grown.size))
            if grown.lo > reached:
                self.follow()
            return
        self.raise_lost(grown.first)
        pieces, fault = self._decode_all(grown.pieces)
        if fault:
            self.complain(fault, now)
        self._grown.append((grown, pieces))
        if len(self._grown) == 1:
            self._tell(now)

    def _tell(self, now: int) -> None:
        """Tells all growth that can be judged; reads older marks if some are needed."""
        while self._grown:
            grown, pieces = self._grown[0]
            marks = [mark for piece in pieces for mark in piece.marks]
            need = self._needed(marks, self._marks.after)
            if need < self._marks.after:
                self._read_marks(need, self._marks.after, partial(self._on_older_marks, self._marks))
                return
            self._grown.popleft()
            found = list(judged(self._marks, marks))
            for tick, mark, is_duplicate in found:
                if is_duplicate:
                    self._duplicates.add(*ticks_of(tick, mark))
            self.index.add(grown.pieces)
            self._say(grown.hi, pieces, now)
            self._outbox.emit(Taken(self.pubend, grown.size))
            self._on_told(found, now)

    def _on_older_marks(self, marks: Marks, older: Marks | None, now: int) -> None:
        if marks is not self._marks:
            return  # the log was cut meanwhile, and they are being read again
        if older is None:
            self._timers.wake(Timer.LOG, now + AGAIN)
        elif self._grown:
            self._marks.begin_earlier(older)
            self._tell(now)

    def _say(self, upto: Tick, pieces: Sequence[DecodedPiece], now: int) -> None:
        """Sends knowledge of all up to a tick, but for what is missing: of that nothing is said (TK6)."""
        at = self.stable
        ends = [*((piece.previous, piece.last_tick, piece) for piece in pieces), (upto, upto, None)]
        batches: list[EventBatch] = []
        reached = at
        for lo, hi, piece in ends:
            for hole_lo, hole_hi in self._holes(reached, lo):
                self._know(at, hole_lo, batches)
                self.damage.note(hole_lo, hole_hi, _COMPACTED)
                self.complain(f"between ticks {hole_lo} and {hole_hi}, {_COMPACTED}", now)
                at, batches = hole_hi, []
            reached = max(reached, hi)
            if piece is not None:
                events = without(piece.within(at, upto), self._duplicates)
                batches += [events] if events else []
        self._know(at, upto, batches)
        self.stable = upto

    def _know(self, lo: Tick, hi: Tick, batches: Sequence[EventBatch]) -> None:
        if lo >= hi:
            return
        data = EventBatch.concatenate(batches) if batches else EMPTY
        if data:
            self.newest = data.ticks[-1]
            self.events += len(data)
        self._outbox.emit(Know(Knowledge(self.pubend, lo, hi, data, self.lost)))

    def _holes(self, lo: Tick, hi: Tick) -> Sequence[tuple[Tick, Tick]]:
        """Returns the parts of (lo, hi], which no piece covers, of which nothing is known."""
        return self.voids.gaps(max(lo, self.lost), hi) if hi > max(lo, self.lost) else ()

    # ------------------------------------------------------------------------------------------- reading

    def answered_upto(self, tick: Tick) -> Tick:
        """Returns how far the answer goes to a want that ends at `tick`: as far as the log was told, or a little more.

        None ends inside a void, where a position would look like one of a record that was cut off: unless the log was
        told up to there before it was cut, and nothing has come since.
        """
        upto = min(tick, self.stable)
        for lo, hi in self.voids:
            if lo < upto < hi:
                return min(hi, self.stable)
        return upto

    def is_silent(self, lo: Tick, hi: Tick) -> bool:
        """Whether it is known without a read that no event is in (lo, hi]: none is above it, or it is void."""
        return lo >= self.newest or not self.voids.gaps(lo, hi)

    def read(self, after: Tick, upto: Tick, then: ThenFound) -> None:
        """Reads what is in (after, upto], or the first part of it, and judges which batches are duplicates."""

        def failed(why: str, now: int) -> None:
            if self.ended:  # meanwhile; all of it is lost
                then(Found([], upto, self.lost, 0, "", 0), now)
            else:
                then(Found([], 0, self.lost, 0, why, 0), now)

        def answered(read: LogRead, now: int, _wall: int) -> None:
            if self.ended or read.error:
                failed(read.error, now)
                return
            self.raise_lost(read.first)
            pieces, reached, fault, hole = self._covered(after, read)
            size = sum(len(piece.raw or b"") for piece in read.pieces)
            marks = [mark for piece in pieces for mark in piece.marks]
            # A range may begin inside a batch, whose mark lies below it then.
            begin = min([after, *(tick - 1 for tick, _ in marks[:1])])
            need = self._needed(marks, begin)

            def judge(older: Marks | None, now: int) -> None:
                if older is None:
                    failed("what lies before it cannot be read, and shows which batches came twice", now)
                    return
                silent = IntervalSet(
                    ticks_of(tick, mark) for tick, mark, is_duplicate in judged(older, marks) if is_duplicate
                )
                found: list[Piece] = [
                    DecodedPiece(piece.previous, piece.last_tick, without(piece.events, silent), ()) for piece in pieces
                ]
                then(Found(found, reached, self.lost, size, fault, hole), now)

            if after >= self._begin:
                found: list[Piece] = [
                    DecodedPiece(piece.previous, piece.last_tick, without(piece.events, self._duplicates), ())
                    for piece in pieces
                ]
                then(Found(found, reached, self.lost, size, fault, hole), now)
            elif need < begin:
                self._read_marks(need, begin, judge)
            else:
                judge(Marks(begin), now)

        self._outbox.read_log(self.pubend, after, upto, self.index.asked(after, upto), answered)

    def scan(self, after: Tick, then: Callable[[Sequence[Judged]], None]) -> None:
        """Reads the marks above `after` up to where the log is told, again and again until that works.

        `then` gets each with whether its batch is a duplicate.
        """
        marks, found, at, upto = Marks(after), list[Judged](), after, self.stable

        def answered(read: LogRead, now: int, _wall: int) -> None:
            nonlocal at
            if self.ended:
                return
            if not read.error and read.hi > at:
                self.raise_lost(read.first)
                for piece in self._decode_all(read.pieces)[0]:
                    found.extend(judged(marks, [each for each in piece.marks if at < each[0] <= upto]))
                at = read.hi
                ask()
            else:
                self._timers.on(Timer.SCAN, lambda _now, _wall: ask())
                self._timers.wake(Timer.SCAN, now + AGAIN)

        def ask() -> None:
            if at < upto:
                self._outbox.read_log(self.pubend, at, upto, READ_BYTES, answered)
            else:
                if marks.after < self._marks.after <= upto:
                    self._marks.begin_earlier(marks)
                then(found)

        ask()

    def _covered(self, after: Tick, read: LogRead) -> tuple[list[DecodedPiece], Tick, str, Tick]:
        """Returns the pieces up to the first hole, how far that is known, the fault, and where the hole ends."""
        decoded, fault = self._decode_all(read.pieces)
        pieces: list[DecodedPiece] = []
        reached = after
        for piece in [*decoded, DecodedPiece(read.hi, read.hi, EMPTY, ())]:
            holes = self._holes(reached, piece.previous)
            if holes:
                (lo, hi), *_ = holes
                return pieces, lo, fault or f"between ticks {lo} and {hi}, {_COMPACTED}", hi
            if piece.last_tick > piece.previous:
                pieces.append(piece)
            reached = max(reached, piece.last_tick)
        return pieces, reached, "" if reached > after else "nothing was read", 0

    def _needed(self, marks: Sequence[Marked], begin: Tick) -> Tick:
        """Returns from where marks have to be known to judge these batches; of what is lost, none can be."""
        return min(begin, max(window(marks, begin), self.lost))

    def _read_marks(self, after: Tick, upto: Tick, then: Callable[[Marks | None, int], None]) -> None:
        """Reads the marks in (after, upto]. `then` gets None if they cannot be read."""
        marks = Marks(after)

        def answered(at: Tick, read: LogRead, now: int) -> None:
            if self.ended or read.error or read.hi <= at:
                then(None, now)
                return
            self.raise_lost(read.first)
            for piece in self._decode_all(read.pieces)[0]:
                for tick, mark in piece.marks:
                    if at < tick <= upto:
                        marks.take(tick, mark)
            if read.hi >= upto:
                then(marks, now)
            else:
                ask(read.hi)

        def ask(at: Tick) -> None:
            self._outbox.read_log(self.pubend, at, upto, READ_BYTES, lambda read, now, _wall: answered(at, read, now))

        ask(after)

    def _decode_all(self, pieces: Sequence[LogPiece]) -> tuple[list[DecodedPiece], str]:
        """Decodes pieces, but for those that cannot be. Returns what is wrong with those, or ""."""
        decoded: list[DecodedPiece] = []
        fault = ""
        for piece in pieces:
            try:
                decoded.append(self._decode(piece))
            except VolumeCorruptError as error:
                fault = str(error) or "a batch of records cannot be decoded"
        return decoded, fault

    def _decode(self, piece: LogPiece) -> DecodedPiece:
        """Decodes a piece by the rules of its ticks: what was once told stays as it was told (TK17)."""
        lo, hi = piece.first - 1, piece.last
        if piece.raw is None:
            return DecodedPiece(lo, hi, EMPTY, ())
        batches: list[EventBatch] = []
        found: Sequence[Marked] = ()
        ends = [*(tick for tick, _ in self._rules[1:]), hi]
        begin = lo
        for (_, rules), end in zip(self._rules, ends, strict=True):
            if begin < min(end, hi):
                events, found = self.found.format.decode(piece, rules)
                batches.append(events if begin == lo and end >= hi else between(events, begin, min(end, hi)))
                begin = min(end, hi)
        events = EventBatch.concatenate(batches) if batches else EMPTY
        if events.size > self._event_bytes_max:
            self._note_too_large(events)
        if self.lost > lo:  # a batch may still be there whole when a part of it was removed (TK10)
            events = between(events, self.lost, hi)
        return DecodedPiece(lo, hi, events, [(tick, mark) for tick, mark in found if mark.tag == self._tag])

    def _note_too_large(self, events: EventBatch) -> None:
        """Tells the operator of events that no frame can carry, of each once."""
        for tick, size in zip(events.ticks, events.lengths, strict=True):
            if size > self._event_bytes_max and tick not in self._too_large:
                if len(self._too_large) >= TOLD_MAX:
                    self._too_large.clear()
                self._too_large.add(tick)
                text = (
                    f"{self.pubend}: the record at {self.found.place(tick)} makes an event of {size:,} bytes,"
                    f" and a frame carries {self._event_bytes_max:,}: who wants it gets a gap"
                )
                self._outbox.emit(Alarm(AlarmCode.EVENT_TOO_LARGE, text, self.pubend))

    def complain(self, fault: str, now: int) -> None:
        """Raises an alarm, now and then: nothing is said of a part of the log, and whoever needs it waits."""
        if now >= self._alarm_after:
            self._alarm_after = now + 60 * SECOND
            text = f"{self.pubend}: part of the log cannot be read, and its subscribers wait: {fault}"
            self._outbox.emit(Alarm(AlarmCode.LOG_UNREADABLE, text, self.pubend, remedy=UNREADABLE_REMEDY))
