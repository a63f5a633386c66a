"""A log that numbers its records itself, in a list: what a log plugin would say of it, and a PHB on a rig above it.

A batch is one piece. Its ticks are `leader epoch << 44 | (offset + 1)`, as those of a Kafka partition are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gapless.core.network.facts import AskPubend, Know, Want
from gapless.core.ports import (
    Append,
    Appended,
    Follow,
    Grown,
    Locate,
    Located,
    LogCapabilities,
    LogEnded,
    LogMark,
    LogPiece,
    LogRead,
    LogsFound,
    LogStart,
    NumberedLog,
    OpenLogs,
    ReadLog,
    Refused,
    RoleContext,
    Taken,
    Trim,
    Uncertain,
)
from gapless.core.stream.columns import EMPTY, EventBatch, EventColumns
from gapless.core.stream.events import encode_event
from gapless.core.stream.ticks import EPOCH_MS, Tick
from gapless.errors import VolumeCorruptError
from gapless_phb.core.broker import PublisherHostingBroker
from gapless_phb.core.settings import Settings
from unit.gapless_phb.harness import BEGINNING, Harness

LOG = "orders.0@id"
EPOCH_BITS = 44


def at(epoch: int, offset: int) -> Tick:
    """The tick of the record at an offset, and of the position behind it."""
    return epoch << EPOCH_BITS | (offset + 1)


class ModelFormat:
    """A batch is msgpack: its mark or None, and the bodies of its events. The rules are the topic of all events."""

    def decode(self, piece: LogPiece, rules: bytes) -> tuple[EventBatch, Sequence[tuple[Tick, LogMark]]]:
        assert piece.raw is not None
        if piece.raw == b"garbage":
            raise VolumeCorruptError("it is garbage")
        mark, bodies = msgspec.msgpack.decode(piece.raw, type=tuple[LogMark | None, list[bytes]])
        events = [encode_event(rules.decode(), {}, None, body) for body in bodies]
        first = piece.last + 1 - len(bodies)
        batch = EventBatch(range(first, piece.last + 1), events, list(map(len, bodies)))
        return batch.slice(piece.first - first, len(bodies)), [] if mark is None else [(first, mark)]

    def encode(self, mark: LogMark, events: EventColumns) -> bytes:
        found, lengths = events.cut()
        bodies = [event[len(event) - length :] for event, length in zip(found, lengths, strict=True)]
        if b"unfit" in bodies:
            raise ValueError("the log cannot contain this")
        return msgspec.msgpack.encode((mark, bodies))


@dataclass
class Batch:
    """Records of one leader epoch, from an offset on. Without `raw` they are no events."""

    epoch: int
    base: int
    count: int
    raw: bytes | None

    @property
    def piece(self) -> LogPiece:
        return LogPiece(at(self.epoch, self.base), at(self.epoch, self.base + self.count - 1), self.raw)


@dataclass
class ModelLog:
    """The log. Tests append to it, cut it, and set what is decided."""

    name: str = LOG
    family: str = "orders"
    topic: str = "orders"
    epoch: int = 0
    batches: list[Batch] = field(default_factory=list)
    ends: list[tuple[int, int]] = field(default_factory=list)
    """(epoch, offset at which another epoch followed it)."""
    first: Tick = 0
    undecided: int = 0
    """How many batches at the end are not decided yet."""
    rules: bytes = b"orders"
    refuses: str = ""
    trims: bool = False
    record_max: int | None = 1000
    durable: bool = True
    times: dict[int, Tick] = field(default_factory=dict)
    """Where a wall time begins."""
    end: int = 0
    """The offset behind the last record."""

    def add(self, *bodies: str, mark: LogMark | None = None) -> Tick:
        """Somebody appends events. Returns the tick of the last one."""
        return self.put(len(bodies), msgspec.msgpack.encode((mark, [body.encode() for body in bodies])))

    def put(self, count: int, raw: bytes | None) -> Tick:
        self.batches.append(Batch(self.epoch, self.end, count, raw))
        self.end += count
        return at(self.epoch, self.end - 1)

    def elect(self, end: int | None = None) -> None:
        """Another leader follows; an unclean one has only what lies below the offset `end`."""
        if end is not None:
            self.batches = [batch for batch in self.batches if batch.base + batch.count <= end]
            self.end = end
        self.ends.append((self.epoch, self.end))
        self.epoch += 1

    @property
    def voids(self) -> tuple[tuple[Tick, Tick], ...]:
        return tuple((at(epoch, end - 1), at(epoch + 1, end - 1)) for epoch, end in self.ends)

    @property
    def decided(self) -> Tick:
        return self.position(len(self.batches) - self.undecided)

    @property
    def latest(self) -> Tick:
        return self.position(len(self.batches))

    def position(self, count: int) -> Tick:
        """Where one stands behind so many batches: in the epoch of the record before."""
        return self.batches[count - 1].piece.last if count else max(self.first, 0)

    def described(self) -> NumberedLog:
        capabilities = LogCapabilities(
            "log",
            alone=False,
            atomic=False,
            timed=False,
            trims=self.trims,
            record_max=self.record_max,
            durable=self.durable,
        )
        return NumberedLog(
            self.name,
            self.family,
            self.topic,
            self.first,
            self.decided,
            self.voids,
            capabilities,
            ModelFormat(),
            self.rules,
            self.refuses,
            (),
        )

    def pieces(self, after: Tick, upto: Tick) -> list[LogPiece]:
        pieces = [batch.piece for batch in self.batches]
        low = max(after, self.first)
        return [
            LogPiece(max(piece.first, low + 1), piece.last, piece.raw)
            for piece in pieces
            if piece.last > low and piece.first <= upto
        ]


class NumberedRig(Harness):
    """A PHB that is a gateway to some logs. What it asks of them waits in `asked` until a test serves it."""

    def __init__(self, *logs: ModelLog, **settings: Any) -> None:
        self.logs = {log.name: log for log in logs or (ModelLog(),)}
        self.asked: list[Any] = []
        self.following: dict[str, Tick] = {}
        self.uncertain: list[Append] = []
        self.lose_answers = self.lose_appends = False
        self.read_batches = 100
        topics = tuple({log.topic for log in self.logs.values()})
        self.settings = Settings(**{"pubends": (), "logs": (OpenLogs("model", {}, topics, {}),), **settings})
        super(Harness, self).__init__(self._make, role="phb", now=0, wall=EPOCH_MS + BEGINNING)

    def _make(self, context: RoleContext) -> PublisherHostingBroker:
        return PublisherHostingBroker(context, self.settings)

    @property
    def log(self) -> ModelLog:
        """The only log, or the first."""
        return next(iter(self.logs.values()))

    @property
    def pubend(self) -> str:
        return self.log.name

    def on_said(self, effect: object) -> None:
        if isinstance(effect, OpenLogs | Follow | Taken | ReadLog | Locate | Trim | Append):
            self.asked.append(effect)

    def boot(self) -> list[object]:
        self.asked = []
        self.following = {}
        return super().boot()

    def open(self) -> list[object]:
        """The logs are found, and followed."""
        before = len(self.said)
        self.serve()
        self.sync()
        self.serve()
        return self.said[before:]

    def serve(self) -> list[object]:
        """Answers all that was asked, and what is asked meanwhile; then sends what the logs have grown by."""
        before = len(self.said)
        while True:
            while self.asked:
                self.answer_log(self.asked.pop(0))
            for name, after in self.following.items():
                log = self.logs[name]
                if log.decided > after:
                    pieces = log.pieces(after, log.decided)
                    self.following[name] = log.decided
                    self.feed(
                        Grown(name, after, log.decided, pieces, log.first, sum(len(p.raw or b"") for p in pieces))
                    )
            self.sync()
            if not self.asked:
                return self.said[before:]

    def find(self, *names: str) -> list[object]:
        """The plugin describes logs, anew."""
        return self.feed(LogsFound([self.logs[name].described() for name in names or self.logs]))

    def answer_log(self, question: Any) -> None:
        if isinstance(question, OpenLogs):
            self.find()
        elif isinstance(question, Follow):
            self.following[question.log] = question.after
        elif isinstance(question, ReadLog):
            log = self.logs[question.log]
            pieces = log.pieces(question.after, question.upto)
            some = pieces[: self.read_batches]
            hi = question.upto if len(some) == len(pieces) else some[-1].last
            self.feed(LogRead(question.cookie, question.after, hi, some, log.first, ""))
        elif isinstance(question, Locate):
            log = self.logs[question.log]
            names = {LogStart.EARLIEST: log.first, LogStart.DECIDED: log.decided, LogStart.LATEST: log.latest}
            tick = names[question.at] if isinstance(question.at, LogStart) else log.times[question.at]
            self.feed(Located(question.cookie, tick))
        elif isinstance(question, Append):
            self._append(question)
        elif isinstance(question, Trim):
            self.logs[question.log].first = question.upto

    def _append(self, append: Append) -> None:
        assert append.indices is None
        log = self.logs[append.log]
        if self.lose_appends:
            self.feed(Uncertain(append.cookie, "nobody answers"))
            return
        if any(b"refused" in raw for raw in append.records):
            self.feed(Refused(append.cookie, "the log does not want this"))
            return
        ticks = self.land(append)
        if self.lose_answers:
            self.feed(Uncertain(append.cookie, "nobody answers"))
        else:
            assert log.record_max is None or sum(map(len, append.records)) <= log.record_max or len(append.records) == 1
            self.feed(Appended(append.cookie, ticks))

    def land(self, append: Append) -> list[Tick]:
        """The records of an append get into the log, now."""
        log = self.logs[append.log]
        return [log.put(len(msgspec.msgpack.decode(raw)[1]), raw) for raw in append.records]

    def end(self, name: str = LOG) -> list[object]:
        return self.feed(LogEnded(name, "the topic was deleted"))

    def ask(self, *ranges: tuple[Tick, Tick], reply_to: str = "shb") -> list[object]:
        """An SHB wants ranges; what has to be read for that is read."""
        before = len(self.said)
        self.feed(AskPubend(Want(self.pubend, ranges, None, "shb", again=False), reply_to))
        self.serve()
        return [effect for effect in self.said[before:] if isinstance(effect, Know)]


def spelt(know: object) -> str:
    """Knowledge as a line: (lo, hi], events, and what is lost, with ticks as epoch/offset behind them."""
    assert isinstance(know, Know)
    k = know.knowledge
    data = k.data or EMPTY
    events = [
        f"{place(t)}={e[len(e) - n :].decode()}"
        for t, e, n in zip(data.ticks, data.events, data.body_lengths, strict=True)
    ]
    lost = [f"lost={place(k.lost)}"] if k.lost else []
    return " ".join([f"({place(k.lo)}, {place(k.hi)}]", *(events or ["silence"]), *lost])


def place(tick: Tick) -> str:
    """A tick as `epoch/records`: of an event, the number of it; of a position, how many records are before it."""
    epoch, offset = divmod(tick, 1 << EPOCH_BITS)
    return f"{epoch}/{offset}" if epoch else f"{offset}"


def told(effects: Sequence[object]) -> list[str]:
    """The knowledge among effects, as lines."""
    return [spelt(effect) for effect in effects if isinstance(effect, Know)]
