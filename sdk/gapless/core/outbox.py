"""What a core asks of the world during one turn, and who waits for the answer.

All operations between two `take()`s leave as one `Write`, so a turn of publishes costs one atomic batch
and one answer; and all records of a log, as one `Append`. The node answers in the order of the writes, of each first
what was appended. Roles stand on that (at a PHB an opening that is durable means that everything assigned before it
is), so it is asserted.

Questions to a numbered log leave as effects of their own, and are answered in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeAlias

from gapless.core.ports import (
    Append,
    Appended,
    Locate,
    Located,
    LogRead,
    LogStart,
    Operation,
    Read,
    ReadLog,
    ReadResult,
    Refused,
    Uncertain,
    Write,
)
from gapless.core.stream.ticks import FOREVER, Tick

Then: TypeAlias = "Callable[[int, int], None]"
"""(now, wall): what was asked for is durable."""
ThenRead: TypeAlias = "Callable[[ReadResult, int, int], None]"
ThenAppended: TypeAlias = "Callable[[Sequence[int], int, int], None]"
"""(indices, now, wall): the log has these records, durably."""
ThenLogRead: TypeAlias = "Callable[[LogRead, int, int], None]"
ThenLocated: TypeAlias = "Callable[[Located, int, int], None]"
ThenTried: TypeAlias = "Callable[[Appended | Refused | Uncertain, int, int], None]"
"""(what became of records that a numbered log was to append, now, wall)."""


class Outbox:
    """Collects effects, writes and reads; remembers what each answer sets going."""

    def __init__(self) -> None:
        self._effects: list[object] = []
        self._operations: list[Operation] = []
        self._then: list[Then] = []
        self._appends: dict[str, tuple[list[int], list[bytes]]] = {}
        self._appending: dict[Hashable, ThenAppended] = {}
        self._writes: dict[Hashable, list[Then]] = {}
        self._reads: dict[Hashable, ThenRead] = {}
        self._asked: dict[Hashable, Callable[[Any, int, int], None]] = {}
        """What numbered logs were asked, by cookie."""
        self._cookie = 0
        self._before_take: list[Callable[[], None]] = []
        self.wake: int = FOREVER
        """The earliest time, in monotonic nanoseconds, at which somebody wants to be woken."""

    def emit(self, effect: object) -> None:
        """Asks for an effect that nothing answers."""
        self._effects.append(effect)

    def write(self, operations: Iterable[Operation], then: Then | None = None) -> None:
        """Asks for operations; once they, and all asked for before, are durable, `then` is called."""
        self._operations += operations
        if then is not None:
            self._then.append(then)

    def append(self, log: str, index: int, record: bytes, then: ThenAppended) -> None:
        """Asks for a record at the end of a log, under an index above all before.

        It is in one write with the operations of the turn. `then`, the same for all records of a log, is called once
        for all of a turn that are durable, before what the write itself sets going.
        """
        found = self._appends.get(log)
        if found is None:
            found = self._appends[log] = [], []
            self._cookie += 1
            self._appending[self._cookie] = then
            self._operations.append(Append(log, self._cookie, found[1], found[0]))
        assert not found[0] or index > found[0][-1], "the indices of a log ascend, also within a turn"
        found[0].append(index)
        found[1].append(record)

    def read(self, stream: str, after: Tick, upto: Tick, then: ThenRead, max_bytes: int = 1 << 20) -> None:
        """Asks for the records that overlap (after, upto], or the first of them; what is read is said to `then`."""
        self._cookie += 1
        self._reads[self._cookie] = then
        self._effects.append(Read(stream, after, upto, self._cookie, max_bytes))

    def read_log(self, log: str, after: Tick, upto: Tick, bytes_max: int, then: ThenLogRead) -> None:
        """Asks a numbered log for its pieces that overlap (after, upto], or the first of them: one at the least."""
        self._effects.append(ReadLog(log, after, upto, self._ask(then), bytes_max))

    def locate(self, log: str, at: LogStart | int, then: ThenLocated) -> None:
        """Asks a numbered log for a place."""
        self._effects.append(Locate(log, at, self._ask(then)))

    def append_to(self, log: str, records: Sequence[bytes], then: ThenTried) -> None:
        """Asks a numbered log to append records, all of them or none."""
        self._effects.append(Append(log, self._ask(then), records, None))

    def _ask(self, then: Callable[[Any, int, int], None]) -> Hashable:
        self._cookie += 1
        self._asked[self._cookie] = then
        return self._cookie

    def wake_at(self, time: int) -> None:
        """Asks to be woken at a time at the latest."""
        self.wake = min(self.wake, time)

    def before_take(self, call: Callable[[], None]) -> None:
        """Calls this before the next `take()`: once for all that became durable in the turn."""
        self._before_take.append(call)

    def on_appended(self, appended: Appended, now: int, wall: int) -> None:
        """A log has what it was asked to append."""
        if appended.cookie in self._asked:
            self.on_answer(appended, now, wall)
            return
        assert appended.cookie == next(iter(self._appending)), "records become durable in the order they were asked for"
        self._appending.pop(appended.cookie)(appended.indices, now, wall)

    def on_answer(self, answer: LogRead | Located | Appended | Refused | Uncertain, now: int, wall: int) -> None:
        """A numbered log answers."""
        self._asked.pop(answer.cookie)(answer, now, wall)

    def on_durable(self, cookie: Hashable, now: int, wall: int) -> None:
        """A write is durable."""
        assert cookie == next(iter(self._writes)), "writes become durable in the order they were asked for"
        for then in self._writes.pop(cookie):
            then(now, wall)

    def on_read(self, result: ReadResult, now: int, wall: int) -> None:
        """A read is answered."""
        self._reads.pop(result.cookie)(result, now, wall)

    def take(self) -> list[object]:
        """Everything asked for since the last call: the write first, so that every read sees it."""
        if self._before_take:
            calls, self._before_take = self._before_take, []
            for call in calls:
                call()
        effects, self._effects = self._effects, []
        if not self._operations and not self._then:
            return effects
        self._cookie += 1
        self._writes[self._cookie] = self._then
        write = Write(self._operations, self._cookie)
        self._operations, self._then, self._appends = [], [], {}
        return [write, *effects]
