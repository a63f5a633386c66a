"""A pubend whose log is a list: it numbers its records itself, and others append to it as well.

This is how much another kind of log takes. `ListLog` is the log: it says how it is, answers an `Append` with the
indices that it chose, and is read. `ListSource` is what the pubend makes of it, a `gapless_phb.core.source.Source`
beside `Own`. `ListHost` is the role: it carries the conversation between the two, which a node does for the logs of its
volume. Members, holds, answers and release are `Retention`, as for any pubend.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gapless.core.gauges import Gauge, Histogram
from gapless.core.network.facts import (
    AskPubend,
    Enrol,
    Hold,
    Know,
    OpenRequest,
    Outcome,
    Pub,
    Released,
    Submit,
    SubmitOpen,
    Submitted,
    Verdict,
)
from gapless.core.outbox import Outbox, Then
from gapless.core.ports import (
    Append,
    Appended,
    Handler,
    LogCapabilities,
    Read,
    ReadResult,
    Refused,
    RequestHandler,
    RoleContext,
    Tell,
    Uncertain,
)
from gapless.core.stream.columns import EMPTY, EventBatch, EventColumns
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import FOREVER, Tick
from gapless.core.wire.messages import ListPubends, PubendList, TickRun
from gapless_phb.core.damage import Damage
from gapless_phb.core.gauges import PUBLISH_SECONDS
from gapless_phb.core.own_log.byte_index import ByteIndex
from gapless_phb.core.pubend import Pubend
from gapless_phb.core.rows import PubendRow, SavedPubend, Tables
from gapless_phb.core.settings import PubendSettings, Settings
from gapless_phb.core.source import Found, Piece, PubendContext, ThenFound, Timers

RECORD_MAX = 1 << 16
LOOK_EVERY = 20_000_000
"""Nanoseconds between two looks at what others have appended."""
LENGTHS = 8
"""Bytes of an event's two lengths."""


class ListLog:
    """Records in a list, each under the number of its last event. Events are numbered from 1 on; nothing is silent."""

    capabilities = LogCapabilities("log", alone=False, atomic=False, timed=False, trims=False, record_max=RECORD_MAX)

    def __init__(self) -> None:
        self.records: list[tuple[int, bytes]] = []
        self.answers: list[Appended | Refused | Uncertain] = []
        """What it has answered, and its host has not taken."""
        self.broken = ""
        """Why nobody knows what becomes of what is appended, or ""."""

    @property
    def last(self) -> int:
        """The number of the last event."""
        return self.records[-1][0] if self.records else 0

    def append(self, append: Append) -> None:
        """All records or none; the answer comes later."""
        assert append.indices is None, "it numbers its records itself"
        if self.broken:
            self.answers.append(Uncertain(append.cookie, self.broken))
        elif any(len(record) > RECORD_MAX for record in append.records):
            self.answers.append(Refused(append.cookie, f"a record has more than {RECORD_MAX:,} bytes"))
        else:
            self.answers.append(Appended(append.cookie, [self.add(record) for record in append.records]))

    def add(self, record: bytes) -> int:
        """Anybody may do this. Returns the record's index."""
        self.records.append((self.last + count_of(record), record))
        return self.last

    def read(self, read: Read) -> ReadResult:
        """The records that overlap the range."""
        found = [
            (index, record)
            for index, record in self.records
            if index > read.after and index - count_of(record) < read.upto
        ]
        return ReadResult(read.cookie, found, 0)


def record_of(events: EventColumns) -> bytes:
    """Events as a record."""
    return events.count.to_bytes(4, "little") + events.lengths + events.blob


def count_of(record: bytes) -> int:
    """How many events a record has."""
    return int.from_bytes(record[:4], "little")


@dataclass(frozen=True)
class ListPiece:
    """A record, read (a `gapless_phb.core.source.Piece`)."""

    last_tick: Tick
    columns: EventColumns

    @property
    def previous(self) -> Tick:
        return self.last_tick - self.columns.count

    @property
    def first_tick(self) -> Tick:
        return self.previous + 1

    def within(self, lo: Tick, hi: Tick) -> EventBatch:
        start, stop = max(lo - self.previous, 0), min(hi, self.last_tick) - self.previous
        return self.columns.batch(range(self.first_tick, self.last_tick + 1)).slice(start, max(start, stop))


class ListSource:
    """Tells what the log has, whoever put it there; a publisher is answered when what it sent was met in the log."""

    grain = 1
    suspect = False
    newest: Tick
    stable: Tick

    def __init__(self, pubend: str, log: ListLog, outbox: Outbox) -> None:
        self.pubend = pubend
        self.stream = f"list.{pubend}"
        self.ready = False
        self.lost = self.lost_asked = 0
        self.newest = self.stable = log.last
        self.index = ByteIndex()
        self.damage = Damage(pubend)
        self.on_grown: Callable[[int], None] = lambda _now: None
        self._log = log
        self._outbox = outbox
        self._sequences: dict[str, int] = {}
        self._waiting: dict[Hashable, tuple[Pub, Hashable]] = {}

    @property
    def log(self) -> ListSource:
        return self

    @property
    def publisher_count(self) -> int:
        return len(self._sequences)

    def answered_upto(self, tick: Tick) -> Tick:
        """As far as it is decided."""
        return min(tick, self.stable)

    def is_silent(self, lo: Tick, _hi: Tick) -> bool:
        """Whether nothing was logged above it."""
        return lo >= self.newest

    def read(self, after: Tick, upto: Tick, then: ThenFound) -> None:
        """What is in a range: nothing is ever missing."""

        def answered(result: ReadResult, now: int, _wall: int) -> None:
            pieces: list[Piece] = [self.decode(index, raw) for index, raw in result.records]
            size = sum(len(raw) for _, raw in result.records)
            then(Found(pieces, pieces[-1].last_tick if pieces else upto, result.first, size, "", 0), now)

        self._outbox.read(self.stream, after, upto, answered)

    def decode(self, index: Tick, raw: bytes) -> ListPiece:
        """A piece of the log."""
        blob = 4 + LENGTHS * count_of(raw)
        return ListPiece(index, EventColumns(count_of(raw), raw[4:blob], raw[blob:]))

    # What the pubend asks of it.

    def void(self, _now: int, _wall: int) -> tuple[Tick, Tick] | None:
        return None

    def fork(self, _upto: Tick, _now: int, _wall: int) -> Sequence[tuple[Tick, Tick]]:
        return ()

    def begin(self, ready: Then, _now: int, _wall: int) -> None:
        def adopted(now: int, wall: int) -> None:
            self.ready = True
            ready(now, wall)

        self._outbox.write([], adopted)

    def start(self, now: int, _wall: int) -> None:
        self.follow(now)

    def promise(self, _now: int, _wall: int) -> None:
        """There is nothing to promise: what comes next is the log's affair."""

    def present(self, _now: int, _wall: int) -> Tick:
        return self.newest

    def locate(self, wall: int, then: Callable[[Tick], None]) -> None:
        """Nobody has noted when an event came: all of them may be later."""
        then(0)

    def give_up(self, upto: Tick, again: Callable[[int], None]) -> None:
        """How long it keeps what is the log's affair."""

    def knows(self, publisher: str, *, keyed: bool) -> bool:
        return publisher in self._sequences

    def open_publisher(self, request: OpenRequest, reply_to: Hashable, _now: int, _wall: int) -> None:
        self._answer(reply_to, Outcome(Verdict.OK, epoch=1, sequence=self._sequences.setdefault(request.publisher, 0)))

    def end(self, _request: OpenRequest, reply_to: Hashable, _now: int) -> None:
        self._answer(reply_to, Outcome(Verdict.OK))

    def submit(self, pub: Pub, reply_to: Hashable, _refusal: str, _now: int, _wall: int) -> None:
        """Appends a batch, whole."""
        following = self._sequences[pub.publisher] + 1
        if self._waiting or pub.first != following:
            self._answer(reply_to, Outcome(Verdict.RETRY, "one batch at a time", following))
            return
        cookie = f"{pub.publisher}/{pub.first}"
        self._waiting[cookie] = pub, reply_to
        self._outbox.emit(Append(self.stream, cookie, [record_of(pub.events)], None))

    # What the log says.

    def on_answer(self, answer: Appended | Refused | Uncertain, now: int) -> None:
        """What became of an `Append`."""
        pub, reply_to = self._waiting.pop(answer.cookie)
        if isinstance(answer, Refused):
            self._answer(reply_to, Outcome(Verdict.INVALID, answer.why, pub.first))
        elif isinstance(answer, Uncertain):
            self._answer(reply_to, Outcome(Verdict.UNCERTAIN, answer.why, pub.first))
        else:
            (index,) = answer.indices
            self.follow(now)
            assert index <= self.stable, "a receipt is for what was told"
            last = self._sequences[pub.publisher] = pub.first + pub.events.count - 1
            run = TickRun(index - pub.events.count + 1, 1, pub.events.count)
            self._answer(reply_to, Outcome(Verdict.OK, sequence=last, ticks=(run,)))

    def follow(self, now: int) -> None:
        """Tells all that the log has above what was told."""
        found = self._log.read(Read(self.stream, self.stable, FOREVER, None)).records
        pieces = [self.decode(index, raw) for index, raw in found]
        if not pieces:
            return
        data = EventBatch.concatenate([piece.within(self.stable, piece.last_tick) for piece in pieces])
        for index, raw in found:
            self.index.add(index, len(raw))
        self._outbox.emit(Know(Knowledge(self.pubend, self.stable, self._log.last, data or EMPTY)))
        self.newest = self.stable = self._log.last
        self.on_grown(now)

    def _answer(self, reply_to: Hashable, outcome: Outcome) -> None:
        self._outbox.emit(Submitted(reply_to, self.pubend, outcome))

    def gauges(self) -> Iterator[Gauge]:
        return iter(())


class ListHost:
    """The role: one pubend, and the log's side of its conversation."""

    def __init__(self, context: RoleContext, log: ListLog, topics: tuple[str, ...]) -> None:
        self.name = context.role
        self.log = log
        self._outbox = Outbox()
        tables = Tables(context.role)
        shared = PubendContext(
            context.network,
            context.broker,
            context.storage_id,
            tables,
            Settings(),
            context.authorizer,
            self._outbox,
            context.boot,
            context.audited,
            Histogram(PUBLISH_SECONDS),
        )
        saved = SavedPubend(0, PubendRow(f"{context.role}@list", 0, topics))
        self._timers = Timers(self._outbox)
        self.source = ListSource(saved.row.pubend, log, self._outbox)
        options = PubendSettings(context.role, min_retain_seconds=0, min_retain_bytes=0)
        self.pubend = Pubend(shared, saved, self.source, options, self._timers, None, is_new=True, read_only=False)
        self._read: list[ReadResult] = []
        self._look_at = 0

    def handlers(self) -> Mapping[type, Handler]:
        keeping, source = self.pubend.retention, self.source
        return {
            AskPubend: lambda ask, now, wall: keeping.ask(ask.want.ranges, ask.reply_to, now, wall),
            Enrol: lambda enrol, _now, _wall: keeping.enrol(enrol.shb),
            Hold: lambda row, _now, _wall: keeping.hold(row),
            Released: lambda minima, now, _wall: keeping.released(minima.released, minima.delivered, now),
            Submit: lambda submit, now, wall: source.submit(submit.pub, submit.reply_to, "", now, wall),
            SubmitOpen: self._on_open,
        }

    def requests(self) -> Mapping[type, RequestHandler]:
        return {
            ListPubends: lambda session, request, _now, _wall: self._outbox.emit(
                Tell(session.number, PubendList(request.request, [self.pubend.listing()]))
            )
        }

    def _on_open(self, submit: SubmitOpen, now: int, wall: int) -> None:
        if submit.request.ending is not None:
            self.source.end(submit.request, submit.reply_to, now)
        else:
            self.source.open_publisher(submit.request, submit.reply_to, now, wall)

    def start(self, now: int, wall: int) -> None:
        self.pubend.begin(now, wall)

    def on_durable(self, cookie: Hashable, now: int, wall: int) -> None:
        self._outbox.on_durable(cookie, now, wall)

    def on_read(self, result: ReadResult, now: int, wall: int) -> None:
        raise AssertionError("nothing of it is in the volume but rows")

    def on_space(self, now: int, wall: int, *, low: bool) -> None:
        """It is not this disk."""

    def deadline(self) -> int | None:
        """The log's answers come in a later turn; and it is looked at now and then, for others append to it."""
        return 0 if self._read or self.log.answers else min(self._timers.deadline, self._look_at)

    def on_deadline(self, now: int, wall: int) -> None:
        answers, self.log.answers = self.log.answers, []
        for answer in answers:
            self.source.on_answer(answer, now)
        results, self._read = self._read, []
        for result in results:
            self._outbox.on_read(result, now, wall)
        self.source.follow(now)
        self._timers.on_deadline(now, wall)
        self._look_at = now + LOOK_EVERY

    def take_effects(self, now: int, wall: int) -> Sequence[object]:
        """What goes to the log stays here; the node hears the rest."""
        effects: list[object] = []
        for effect in self._outbox.take():
            if isinstance(effect, Append):
                self.log.append(effect)
            elif isinstance(effect, Read):
                self._read.append(self.log.read(effect))
            else:
                effects.append(effect)
        return effects

    def gauges(self) -> Iterator[Gauge]:
        return self.pubend.gauges()
