"""Logs that break one promise each: those of what is appended, of formats, of ends and of closing.

The rest of them is in `conformance.broken_logs`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import msgspec
from msgspec.structs import replace as with_fields

from conformance.broken_logs import BrokenHarness, Describes, Open, Relay
from gapless.core.ports import (
    Append,
    Appended,
    Grown,
    LogAnswer,
    LogEnded,
    LogMark,
    LogPiece,
    LogQuestion,
    LogTrouble,
    NumberedLog,
    Refused,
    Trim,
    Uncertain,
)
from gapless.core.stream.columns import EventBatch, EventColumns
from gapless.core.stream.events import Event, Extras
from gapless.core.stream.ticks import Tick
from gapless.errors import VolumeCorruptError
from gapless_log.kafka.records import Compression, NewRecord, batches, encode, records

# ----------------------------------------------------------------------------------------------- appending


class CountsFromOne(Relay):
    """Indices are one too high."""

    def changed(self, answer: LogAnswer) -> LogAnswer | None:
        if not isinstance(answer, Appended):
            return answer
        return with_fields(answer, indices=[index + 1 for index in answer.indices])


class AppendsOneByOne(Relay):
    """Each event of a batch is appended by itself."""

    def ask(self, question: LogQuestion) -> None:
        if not isinstance(question, Append):
            super().ask(question)
            return
        parts = [record for raw in question.records for batch in batches(raw) for record in records(batch)]
        for number, part in enumerate(parts):
            cookie = question.cookie if number == len(parts) - 1 else ("part", question.cookie, number)
            raw = encode([NewRecord(0, part.key, part.value, part.headers)], Compression.NONE)
            asyncio.get_running_loop().call_later(number * 0.01, super().ask, Append(question.log, cookie, [raw], None))

    def changed(self, answer: LogAnswer) -> LogAnswer | None:
        return None if isinstance(answer, Appended) and isinstance(answer.cookie, tuple) else answer


class AppendsTheLastFirst(Relay):
    """What was asked for in one turn is done from behind."""

    def __init__(self, harness: BrokenHarness, answer: Callable[[LogAnswer], None]) -> None:
        super().__init__(harness, answer)
        self.waiting: list[Append] = []

    def ask(self, question: LogQuestion) -> None:
        if not isinstance(question, Append):
            super().ask(question)
            return
        if not self.waiting:
            asyncio.get_running_loop().call_soon(self.go)
        self.waiting.append(question)

    def go(self) -> None:
        """Appends what has come."""
        while self.waiting:
            super().ask(self.waiting.pop())


class NeverRefuses(Relay):
    """Who knows whether a refusal is one."""

    def changed(self, answer: LogAnswer) -> LogAnswer | None:
        return Uncertain(answer.cookie, answer.why) if isinstance(answer, Refused) else answer


class RefusesWhatItLost(Relay):
    """Without an answer nothing was appended."""

    def changed(self, answer: LogAnswer) -> LogAnswer | None:
        return Refused(answer.cookie, answer.why) if isinstance(answer, Uncertain) else answer


class AppendsAgain(Relay):
    """Without an answer it is appended once more."""

    def __init__(self, harness: BrokenHarness, answer: Callable[[LogAnswer], None]) -> None:
        super().__init__(harness, answer)
        self.appends: dict[object, Append] = {}

    def ask(self, question: LogQuestion) -> None:
        if isinstance(question, Append):
            self.appends[question.cookie] = question
        super().ask(question)

    def changed(self, answer: LogAnswer) -> LogAnswer | None:
        if not isinstance(answer, Uncertain):
            return answer
        self.ask(self.appends[answer.cookie])
        return None


class ConfirmsTwice(Relay):
    """Says it again, to be sure."""

    def changed(self, answer: LogAnswer) -> LogAnswer | None:
        if isinstance(answer, Appended):
            self.tell(answer)
        return answer


class TrimsEverything(Relay):
    """What is to be removed is removed, and the rest with it."""

    def ask(self, question: LogQuestion) -> None:
        if isinstance(question, Trim):
            self.harness.partition(question.log).trim(1 << 40)
        super().ask(question)


# ------------------------------------------------------------------------------------------------ formats


class Reformats(Describes):
    """Has another format."""

    def described(self, log: NumberedLog) -> NumberedLog:
        return replace(log, format=Reformat(self, log))

    def events(self, found: Sequence[tuple[Tick, Event]]) -> Sequence[tuple[Tick, Event]]:
        """Other events."""
        return found

    def marks(self, found: Sequence[tuple[Tick, LogMark]]) -> Sequence[tuple[Tick, LogMark]]:
        """Other marks."""
        return found

    def fault(self, error: VolumeCorruptError) -> Exception:
        """Another error."""
        return error

    def encoded(self, log: NumberedLog, mark: LogMark, events: EventColumns) -> bytes:
        """Another record."""
        return log.format.encode(mark, events)


class Reformat:
    """The format of such a log."""

    def __init__(self, relay: Reformats, log: NumberedLog) -> None:
        self.relay = relay
        self.log = log

    def decode(self, piece: LogPiece, rules: bytes) -> tuple[EventBatch, Sequence[tuple[Tick, LogMark]]]:
        """Decodes otherwise."""
        try:
            batch, marks = self.log.format.decode(piece, rules)
        except VolumeCorruptError as error:
            raise self.relay.fault(error) from error
        found = self.relay.events([(tick, _decode(raw)) for tick, raw in zip(batch.ticks, batch.events, strict=True)])
        raws = [_encode((event.topic, event.properties, event.extras, event.body)) for _, event in found]
        columns = EventColumns.of(raws, [len(event.body) for _, event in found])
        return EventBatch.of([tick for tick, _ in found], [columns] if raws else []), self.relay.marks(marks)

    def encode(self, mark: LogMark, events: EventColumns) -> bytes:
        """Encodes otherwise."""
        return self.relay.encoded(self.log, mark, events)


_decode = msgspec.msgpack.Decoder(Event).decode
_encode = msgspec.msgpack.Encoder().encode


class NumbersWhatItDecodes(Reformats):
    """Each decoding has a number."""

    count = 0

    def events(self, found: Sequence[tuple[Tick, Event]]) -> Sequence[tuple[Tick, Event]]:
        self.count += 1
        for _, event in found:
            event.properties["decoding"] = self.count
        return found


class KnowsNoTimesOfEvents(Reformats):
    """Events have no times."""

    def events(self, found: Sequence[tuple[Tick, Event]]) -> Sequence[tuple[Tick, Event]]:
        for _, event in found:
            event.extras = None
        return found


class KnowsTextAlone(Reformats):
    """Properties are text."""

    def events(self, found: Sequence[tuple[Tick, Event]]) -> Sequence[tuple[Tick, Event]]:
        for _, event in found:
            event.properties = {name: str(value) for name, value in event.properties.items()}
        return found


class LosesPriorities(Reformats):
    """Of the extras the time is enough."""

    def events(self, found: Sequence[tuple[Tick, Event]]) -> Sequence[tuple[Tick, Event]]:
        for _, event in found:
            event.extras = Extras(timestamp=event.extras.timestamp if event.extras else 0)
        return found


class MovesTicks(Reformats):
    """Ticks are one too high."""

    def events(self, found: Sequence[tuple[Tick, Event]]) -> Sequence[tuple[Tick, Event]]:
        return [(tick + 1, event) for tick, event in found]


class LosesMarks(Reformats):
    """Whose a batch is, nobody knows."""

    def marks(self, found: Sequence[tuple[Tick, LogMark]]) -> Sequence[tuple[Tick, LogMark]]:
        return ()


class LosesTokens(Reformats):
    """Marks have no tokens."""

    def marks(self, found: Sequence[tuple[Tick, LogMark]]) -> Sequence[tuple[Tick, LogMark]]:
        return [(tick, replace(mark, tokens=b"")) for tick, mark in found]


class Crashes(Reformats):
    """What is no record is an IndexError."""

    def fault(self, error: VolumeCorruptError) -> Exception:
        return IndexError(str(error))


class TakesAnyTopic(Reformats):
    """What the log cannot contain is left out."""

    def encoded(self, log: NumberedLog, mark: LogMark, events: EventColumns) -> bytes:
        try:
            return super().encoded(log, mark, events)
        except ValueError:
            return b""


# -------------------------------------------------------------------------------------- the end, and closing


class StopsAtRetention(Relay):
    """What grows behind something that was removed does not come."""

    def changed(self, answer: LogAnswer) -> LogAnswer | None:
        return None if isinstance(answer, Grown) and answer.first else answer


class LivesForEver(Relay):
    """Logs do not end."""

    def changed(self, answer: LogAnswer) -> LogAnswer | None:
        return None if isinstance(answer, LogEnded) else answer


class EndsOnAGuess(Relay):
    """What one broker does not know has ended."""

    def on_hidden(self) -> None:
        for log in self.known:
            self.tell(LogEnded(log, "it is unknown"))


class EndsWhatItKnew(Relay):
    """What was found in a former life has ended."""

    def open(self, known: Mapping[str, str], open_logs: Open) -> None:
        super().open(known, open_logs)
        for log in known:
            asyncio.get_running_loop().call_soon(self.tell, LogEnded(log, "that was long ago"))


class ClosesNothing(Relay):
    """Closing is for others."""

    async def close(self) -> None:
        pass


class AnswersLate(Relay):
    """What it finds while it is closed it still tells."""

    async def close(self) -> None:
        await super().close()
        late = LogTrouble("", "it is being closed")
        asyncio.get_running_loop().call_later(self.harness.quiet / 2, self.tell, late)


class LeavesATask(Relay):
    """Something goes on when it is closed."""

    async def close(self) -> None:
        await super().close()
        self.left = asyncio.ensure_future(asyncio.sleep(1000))


class ClosesSlowly(Relay):
    """Closing takes its time."""

    async def close(self) -> None:
        await asyncio.sleep(50)
        await super().close()


class ClosesInTheEnd(Relay):
    """What is cancelled while it closes is not closed."""

    async def close(self) -> None:
        await asyncio.sleep(0.1)
        await super().close()


class ClosesForAll(Relay):
    """Who closes one closes all."""

    async def close(self) -> None:
        for relay in self.harness.opened:
            await relay.logs.close()
