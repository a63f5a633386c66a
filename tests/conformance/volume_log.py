"""The log of a node's own volume, asked and answered as a numbered one is: for the suite of logs, and for nothing else.

In production nobody speaks of it in these words. What differs there:

- `Append` is an operation of a `Write`, and becomes durable with rows of tables. Nothing is refused or uncertain: a
  write that fails is the end of the machine.
- Its host numbers the records by times, and is alone. So it follows nothing: it knows what it has appended. There are
  no voids but its own, no transactions, no strangers and no family, and a place is found by arithmetic.
- `LogFacts`, in a recovery, are what `LogsFound` is; `Read` and `ReadResult` what `ReadLog` and `LogRead` are; `Chop`
  what `Trim` is. A `ReadResult` has the records that overlap the range. Each is linked to the one before it, and that
  says what it covers.
- A record carries no `after`, `tag` and `begins`: it has no duplicate.
- Which events may be in it its host checks, and no format.

What is here between is thin: the writing, the reading and the records are those of production.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec

from gapless.core.ports import (
    Append,
    Appended,
    Chop,
    Follow,
    Grown,
    Locate,
    Located,
    LogAnswer,
    LogMark,
    LogPiece,
    LogQuestion,
    LogRead,
    LogsFound,
    NumberedLog,
    ReadLog,
    Taken,
    Trim,
)
from gapless.core.stream.columns import EventBatch, EventColumns
from gapless.core.stream.ticks import STEP, Tick
from gapless.node.commit import VolumeWriter
from gapless.node.recovery import VolumeReader
from gapless.spi import Logs, LogVolume
from gapless_phb.core.own_log.log import stream_of
from gapless_phb.core.records import checksum, decode_record, encode_record, tag_of
from gapless_testing.log import LogHarness

PUBEND = "events@1"
TOPIC = "events"


class Draft(msgspec.Struct, array_like=True):
    """A batch before it has its ticks: those its host gives it when it appends."""

    publisher: str
    epoch: int
    first: int
    count: int
    lengths: bytes
    blob: bytes
    tokens: bytes
    crc: int


class VolumeFormat:
    """The records of production (`gapless_phb.core.records`)."""

    tag = tag_of("network", PUBEND)

    def decode(self, piece: LogPiece, rules: bytes) -> tuple[EventBatch, Sequence[tuple[Tick, LogMark]]]:
        """Returns a record's events, and whose they are."""
        record = decode_record(self.tag, piece.last, piece.raw or b"")
        mark = LogMark(
            record.publisher,
            record.epoch,
            record.first_sequence,
            record.count,
            record.crc,
            0,
            record.tokens,
            keyed=False,
            tag=self.tag,
            begins=False,
        )
        return record.within(piece.first - 1, piece.last), [(record.first_tick, mark)]

    def encode(self, mark: LogMark, events: EventColumns) -> bytes:
        """Returns a draft: a record is made of it when it has its ticks."""
        fields = (mark.publisher, mark.epoch, mark.first, mark.count, events.lengths, events.blob, mark.tokens)
        return msgspec.msgpack.encode(Draft(*fields, checksum(events, mark.tokens)))


class VolumeLogs:
    """One who reads and writes the log."""

    def __init__(self, harness: VolumeHarness, answer: Callable[[LogAnswer], None]) -> None:
        self._harness = harness
        self._tell = answer
        self._stream = harness.volume.stream(stream_of(PUBEND))
        self._writer = VolumeWriter(harness.volume)
        self._following: tuple[Tick, int] | None = None
        """How far it was told, and what room there is."""
        self._is_closed = False
        self._syncing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._soon(self.on_changed)

    def _soon(self, call: Callable[..., None], *arguments: object) -> None:
        asyncio.get_running_loop().call_soon(lambda: None if self._is_closed else call(*arguments))

    def on_changed(self) -> None:
        """The log is made, or something is in it that was not there before."""
        if self._harness.is_made and not self._harness.told.get(self):
            self._harness.told[self] = True
            self._describe()
        while self._following is not None and self._following[1] > 0 and self._following[0] < self._harness.durable:
            after, room = self._following
            pieces = self._pieces(after, self._harness.durable, 1)
            size = sum(len(piece.raw or b"") for piece in pieces)
            self._following = pieces[-1].last, room - size
            self._tell(Grown(PUBEND, after, pieces[-1].last, pieces, self._stream.first, size))

    def _describe(self) -> None:
        facts = VolumeReader(self._harness.volume).facts(stream_of(PUBEND))
        self._tell(
            LogsFound(
                [
                    NumberedLog(
                        PUBEND,
                        TOPIC,
                        TOPIC,
                        facts.first,
                        facts.decided,
                        (),
                        facts.capabilities,
                        VolumeFormat(),
                        b"",
                        "",
                        (),
                    )
                ]
            )
        )

    def _pieces(self, after: Tick, upto: Tick, max_bytes: int) -> list[LogPiece]:
        """Each record covers all from the one before it on."""
        pieces = []
        for index, raw in self._stream.read(after, upto, max_bytes):
            previous = decode_record(VolumeFormat.tag, index, raw).previous
            pieces.append(LogPiece(max(previous, self._stream.first, after) + 1, index, raw))
        return pieces

    def ask(self, question: LogQuestion) -> None:
        """Answers in a later turn."""
        self._soon(self._take, question)

    def _take(self, question: LogQuestion) -> None:
        match question:
            case Follow():
                self._following = max(question.after, self._stream.first), question.window
                if question.after < self._following[0]:
                    self._tell(Grown(PUBEND, question.after, self._following[0], (), self._stream.first, 0))
                self.on_changed()
            case Taken():
                if self._following is not None:
                    self._following = self._following[0], self._following[1] + question.size
                self.on_changed()
            case ReadLog():
                upto = min(question.upto, self._harness.durable)
                pieces = self._pieces(question.after, upto, question.max_bytes)
                hi = min(question.upto, pieces[-1].last if pieces else max(question.after, self._stream.first))
                first = self._stream.first
                self._tell(LogRead(question.cookie, question.after, max(question.after, hi), pieces, first, ""))
            case Locate():
                places = {"EARLIEST": self._stream.first}
                name = "" if isinstance(question.at, int) else question.at.name
                self._tell(Located(question.cookie, places.get(name, self._harness.durable)))
            case Trim():
                self._write(Chop(stream_of(PUBEND), question.upto), self._describe)
            case Append():
                self._append(question)

    def _append(self, append: Append) -> None:
        assert append.indices is not None
        records, previous = [], self._stream.last
        for raw, index in zip(append.records, append.indices, strict=True):
            draft = msgspec.msgpack.decode(raw, type=Draft)
            records.append(
                encode_record(
                    VolumeFormat.tag,
                    draft.publisher,
                    draft.epoch,
                    draft.first,
                    index - (draft.count - 1) * STEP,
                    previous,
                    EventColumns(draft.count, draft.lengths, draft.blob),
                    draft.tokens,
                    draft.crc,
                )
            )
            previous = index
        answer = Appended(append.cookie, append.indices)
        self._write(Append(stream_of(PUBEND), append.cookie, records, append.indices), lambda: self._tell(answer))

    def _write(self, operation: Append | Chop, then: Callable[[], None]) -> None:
        self._writer.write([operation])
        task = asyncio.get_running_loop().create_task(self._sync(then))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _sync(self, then: Callable[[], None]) -> None:
        """Makes what was written durable; one after the other, so that answers come in order."""
        async with self._syncing:
            written = self._stream.last
            await asyncio.to_thread(self._harness.volume.sync)
            self._harness.durable = written
        if not self._is_closed:
            then()
        for logs in self._harness.told:
            logs._soon(logs.on_changed)

    async def close(self) -> None:
        """Says nothing more."""
        self._is_closed = True
        await asyncio.gather(*self._tasks)


class VolumeHarness(LogHarness):
    """One log of a volume. Two who open it share the volume object: there it is one node."""

    quiet = 0.01

    def __init__(self, volume: LogVolume) -> None:
        self.volume = volume
        self.is_made = False
        self.durable: Tick = 0
        """The last index that is: nothing above it is told."""
        self.told: dict[VolumeLogs, bool] = {}
        """Who has opened it, and whether the log was described to them."""

    async def make(self) -> None:
        self.is_made = True
        for logs in self.told:
            logs.on_changed()

    def open(self, known: Mapping[str, str], answer: Callable[[LogAnswer], None]) -> Logs:
        logs = VolumeLogs(self, answer)
        self.told[logs] = False
        return logs

    def index(self, last: Tick, count: int) -> Tick:
        return last + count * STEP
