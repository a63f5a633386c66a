"""A host of logs, for tests: it asks, notes every answer, and notices what no plugin may say."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from gapless.core.ports import (
    Append,
    Appended,
    Follow,
    Grown,
    Locate,
    Located,
    LogAnswer,
    LogEnded,
    LogMark,
    LogPiece,
    LogQuestion,
    LogRead,
    LogsFound,
    LogStart,
    LogTrouble,
    NumberedLog,
    ReadLog,
    Refused,
    Taken,
    Trim,
    Uncertain,
)
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.events import Extras, Properties, encode_event
from gapless.core.stream.intervals import IntervalSet
from gapless.core.stream.ticks import Tick
from gapless.spi import Logs
from gapless_testing import running
from gapless_testing.comparing import difference
from gapless_testing.log.harness import LogHarness, overrides
from gapless_testing.log.truth import Truth, events_of
from gapless_testing.running import BREACHES

Answer = TypeVar("Answer")

WINDOW = 1 << 20
TAG = 7
"""The tag in the marks of what the suite publishes."""


class Following:
    """What `Follow` has brought."""

    def __init__(self, after: Tick, window: int, before: Following | None) -> None:
        """`before`: the `Follow` that it replaces. What was under way of that may still come, until this one begins."""
        self.reached = after
        self.window = window
        self.before = before
        self.grown: list[Grown] = []
        self.untaken = 0


class Host:
    """One that opens the logs of a harness."""

    def __init__(self, harness: LogHarness, truth: Truth, known: Mapping[str, str]) -> None:
        """`truth`: what others say of the same logs. `known`: the logs of its former life, with their families."""
        self.harness = harness
        self._known = known
        self.truth = truth
        self.said: list[LogAnswer] = []
        self.logs: dict[str, NumberedLog] = {}
        """As they were described last, in the order in which they were found."""
        self.first: dict[str, Tick] = {}
        """Everything at or below it was removed, as far as was told."""
        self.ended: dict[str, str] = {}
        """The logs that are gone, and why."""
        self.takes = True
        """Whether what comes is taken at once."""
        self.on_new: Callable[[NumberedLog], None] = _nothing
        """Called with each log that is new."""
        self.has_holes = False
        """Whether records are missing."""
        self.following: dict[str, Following] = {}
        self._plugin: Logs
        self._inside = ""
        self._is_closed = False
        self._asked: dict[Hashable, LogQuestion] = {}
        """What is not answered yet."""
        self._answers: dict[Hashable, LogAnswer] = {}
        self._count = 0
        self._published = 0
        self._reserved: dict[str, Tick] = {}
        """Where the host numbers the records: up to where it did."""
        self.breaches = BREACHES.get([])
        """What no plugin may say, and this one has."""
        self._thread = threading.get_ident()
        self._came = asyncio.Event()

    # ------------------------------------------------------------------------------------ opening and closing

    def open(self) -> None:
        """Opens the logs."""
        self._inside = "open"
        self._plugin = self.harness.open(self._known, self._on_answer)
        self._inside = ""

    async def close(self) -> None:
        """Closes them, which has to be done in time."""
        if self._is_closed:
            return
        await running.within(self._plugin.close(), "close() did not return")
        self._is_closed = True
        await asyncio.sleep(self.harness.quiet)

    async def close_cancelled(self) -> None:
        """Begins to close them, and is cancelled."""
        closing = asyncio.ensure_future(self._plugin.close())
        await asyncio.sleep(0)
        self._is_closed = True
        closing.cancel()
        await asyncio.wait([closing])
        await asyncio.sleep(self.harness.quiet)

    # ------------------------------------------------------------------------------------ asking

    def ask(self, question: LogQuestion) -> None:
        """Asks, whatever it is."""
        self._inside = type(question).__name__
        self._plugin.ask(question)
        self._inside = ""

    def follow(self, log: str, after: Tick, window: int = WINDOW) -> None:
        """Follows a log; what came of an earlier `Follow` is forgotten."""
        self.following[log] = Following(after, window, self.following.get(log))
        self.ask(Follow(log, after, window))

    def take_all(self, log: str) -> None:
        """Everything that came is done with."""
        following = self.following[log]
        self.ask(Taken(log, following.untaken))
        following.untaken = 0

    async def read(self, log: str, after: Tick, upto: Tick, max_bytes: int = 1 << 20) -> LogRead:
        """Reads a part of a log, or the beginning of that."""
        read = await self.question(lambda cookie: ReadLog(log, after, upto, cookie, max_bytes))
        assert isinstance(read, LogRead)
        return read

    async def read_all(self, log: str, after: Tick, upto: Tick, max_bytes: int = 1 << 20) -> list[tuple[Tick, bytes]]:
        """The events in (after, upto], each as tick and body, read bit by bit."""
        found: list[tuple[Tick, bytes]] = []
        at = after
        while at < upto:
            read = await self.read(log, at, upto, max_bytes)
            assert not read.error, f"what is in ({at}, {upto}] cannot be read: {read.error}"
            assert read.hi > at, f"a read of ({at}, {upto}] brings nothing, and no error"
            found += [pair for pair in bodies_of(self.logs[log], read.pieces) if at < pair[0] <= read.hi]
            at = read.hi
        return found

    async def locate(self, log: str, at: LogStart | int) -> Tick:
        """Finds a place."""
        located = await self.question(lambda cookie: Locate(log, at, cookie))
        assert isinstance(located, Located)
        return located.tick

    def trim(self, log: str, upto: Tick) -> None:
        """Asks for the removal of everything up to a tick."""
        self.ask(Trim(log, upto))

    async def append(self, log: str, *records: bytes, counts: Sequence[int] = ()) -> Appended | Refused | Uncertain:
        """Appends records; `counts`: the events of each, one if it is not given."""
        answer = await self.question(lambda cookie: self._append_of(log, cookie, records, counts))
        assert isinstance(answer, Appended | Refused | Uncertain)
        return answer

    def _append_of(self, log: str, cookie: Hashable, records: Sequence[bytes], counts: Sequence[int]) -> Append:
        """The question."""
        if self.logs[log].capabilities.numbers == "log":
            return Append(log, cookie, records, None)
        indices: list[Tick] = []
        for count in counts or [1] * len(records):
            last = indices[-1] if indices else self._reserved.get(log, self.logs[log].decided)
            indices.append(self.harness.index(last, count))
        self._reserved[log] = indices[-1]
        return Append(log, cookie, records, indices)

    def encoded(
        self, log: str, *bodies: bytes, properties: Properties | None = None, extras: Extras | None = None
    ) -> tuple[LogMark, bytes]:
        """A batch of a publisher, with its mark."""
        found = self.logs[log]
        self._published += 1
        mark = LogMark("suite", 1, self._published, len(bodies), 99, found.decided, b"", False, TAG, True)
        self._published += len(bodies) - 1
        events = [encode_event(found.topic, properties or {}, extras, body) for body in bodies]
        return mark, found.format.encode(mark, EventColumns.of(events, map(len, bodies)))

    async def put(self, log: str, *bodies: bytes) -> None:
        """Sees to it that the log gets these events, in one piece: by a stranger, or through the plugin."""
        if overrides(self.harness, "append"):
            await self.harness.append(log, bodies)
            return
        _, record = self.encoded(log, *bodies)
        answer = await self.append(log, record, counts=[len(bodies)])
        assert isinstance(answer, Appended), f"the suite cannot append: {answer}"

    async def question(self, make: Callable[[int], LogQuestion]) -> LogAnswer:
        """Asks what has a cookie; returns the answer."""
        return await self.answered(self.send(make))

    def has_answer(self, cookie: int) -> bool:
        """Whether what was asked under a cookie is answered."""
        return cookie in self._answers

    async def answered(self, cookie: int) -> LogAnswer:
        """Waits for the answer to what was asked under a cookie."""
        return await self.until(lambda: self._answers.get(cookie), lambda: f"{self._asked[cookie]} was not answered")

    def send(self, make: Callable[[int], LogQuestion]) -> int:
        """Asks what has a cookie; returns that."""
        self._count += 1
        cookie = self._count
        question = self._asked[cookie] = make(cookie)
        self.ask(question)
        return cookie

    def send_read(self, log: str, after: Tick, upto: Tick) -> int:
        """Asks for a part of a log."""
        return self.send(lambda cookie: ReadLog(log, after, upto, cookie))

    def send_locate(self, log: str, at: LogStart | int) -> int:
        """Asks for a place."""
        return self.send(lambda cookie: Locate(log, at, cookie))

    def send_append(self, log: str, record: bytes, count: int) -> int:
        """Appends a record with so many events."""
        return self.send(lambda cookie: self._append_of(log, cookie, [record], [count]))

    # ------------------------------------------------------------------------------------ waiting

    async def until(self, holds: Callable[[], Answer | None], what: Callable[[], str]) -> Answer:
        """Waits until this is true of what was said."""
        loop = asyncio.get_running_loop()
        seconds = running.WAIT_SECONDS_MAX * self.harness.patience
        due = loop.time() + seconds
        timer = loop.call_at(due, self._came.set)
        try:
            while not (found := holds()):
                assert loop.time() < due, f"{what()} within {seconds:g} s; {self._last_said()}"
                self._came.clear()
                await self._came.wait()
        finally:
            timer.cancel()
        return found

    async def still(self) -> None:
        """Waits until nothing comes any more."""
        count = -1
        while count < len(self.said):
            count = len(self.said)
            await asyncio.sleep(self.harness.quiet)

    async def found(self, count: int = 1) -> list[NumberedLog]:
        """The logs that there are, once there are so many."""

        def there() -> list[NumberedLog]:
            alive = [log for log in self.logs.values() if log.log not in self.ended]
            return alive if len(alive) >= count else []

        return await self.until(there, lambda: f"{len(self.logs)} logs were found, and {count} did not come")

    async def gets(self, log: str, bodies: Sequence[bytes]) -> list[Tick]:
        """Waits until what is followed has brought exactly these events; returns their ticks."""
        await self.until(
            lambda: len(self.events(log)) >= len(bodies) or None,
            lambda: difference([body for _, body in self.events(log)], bodies, "events"),
        )
        wrong = difference([body for _, body in self.events(log)], bodies, "events")
        assert not wrong, wrong
        return [tick for tick, _ in self.events(log)]

    async def reaches(self, log: str, tick: Tick) -> None:
        """Waits until what is followed was told up to a tick."""
        await self.until(
            lambda: self.following[log].reached >= tick or None,
            lambda: f"it was told up to {self.following[log].reached}, and not up to {tick}",
        )

    async def ends(self, log: str) -> str:
        """Waits until a log is gone; returns why."""
        return await self.until(lambda: self.ended.get(log), lambda: f"{log} has not ended")

    def events(self, log: str) -> list[tuple[Tick, bytes]]:
        """The events that the present `Follow` has brought, each as tick and body."""
        pieces = [(grown.lo, piece) for grown in self.following[log].grown for piece in grown.pieces]
        return [pair for lo, piece in pieces for pair in bodies_of(self.logs[log], [piece]) if pair[0] > lo]

    def all_of(self, kind: type[Answer]) -> list[Answer]:
        """Everything of a kind that was said."""
        return [each for each in self.said if isinstance(each, kind)]

    def _last_said(self) -> str:
        return f"the last answers are {[_short(each) for each in self.said[-3:]]}"

    # ------------------------------------------------------------------------------------ what is said

    def _on_answer(self, answer: LogAnswer) -> None:
        kind = type(answer).__name__
        if self._inside:
            self._breach(f"{kind} came from within the call of {self._inside}, which must return before")
        if threading.get_ident() != self._thread:
            self._breach(f"{kind} came on another thread than the loop's")
            return
        if self._is_closed:
            self._breach(f"{kind} came after close()")
        self.said.append(answer)
        log = getattr(answer, "log", "")
        if log in self.ended:
            self._breach(f"{kind} came of {log}, which has ended")
        if isinstance(answer, LogsFound):
            self._on_found(answer)
        elif isinstance(answer, Grown):
            self._on_grown(answer)
        elif isinstance(answer, LogEnded):
            self.ended[log] = answer.why
            if (log not in self.logs and log not in self._known) or not answer.why:
                self._breach(f"{answer}: there is no such log, or no reason")
        elif not isinstance(answer, LogTrouble):
            self._on_cookie(answer)
        self._came.set()

    def _on_found(self, found: LogsFound) -> None:
        if not found.logs:
            self._breach("LogsFound names no log")
        for log in found.logs:
            before = self.logs.get(log.log)
            name, _, rest = log.log.rpartition("@")
            if not (name and rest and log.family and log.topic):
                self._breach(f"a log needs an id NAME@INCARNATION, a family and a topic: {log.log!r}, {log.family!r}")
            voids = list(log.voids)
            if any(lo >= hi for lo, hi in voids) or any(one[1] >= other[0] for one, other in pairwise(voids)):
                self._breach(f"voids rise, and lie apart: {voids}")
            if before is not None:
                constant = ("family", "topic", "rules")
                for name in constant:
                    if getattr(log, name) != getattr(before, name):
                        self._breach(f"{name} of {log.log} has changed to {getattr(log, name)!r}")
                kept = IntervalSet(voids)
                if gone := [(lo, hi) for lo, hi in before.voids if lo >= log.first and not kept.covers(lo, hi)]:
                    self._breach(f"voids are gone: {gone} of {before.voids}, now {voids}")
            self._raise_first(log.log, log.first)
            self.logs[log.log] = log
            self.truth.forget(log.log, voids)
            if before is None:
                self.on_new(log)

    def _raise_first(self, log: str, first: Tick) -> None:
        before = self.first.setdefault(log, first)
        if first < before:
            self._breach(f"the beginning of {log} went back, from {before} to {first}")
        self.first[log] = max(first, before)

    def _on_grown(self, grown: Grown) -> None:
        log = grown.log
        following = self.following.get(log)
        if log not in self.logs or following is None:
            self._breach(f"{log} has grown, and nobody follows it")
            return
        before = following.before
        if grown.lo == following.reached:
            following.before = None
        elif before is not None and grown.lo == before.reached:
            before.reached = grown.hi  # it was under way when the `Follow` was replaced
            self._ask_later(Taken(log, grown.size))
            return
        else:
            self._breach(f"{log} has grown from {grown.lo}, and before it was told up to {following.reached}")
        if grown.hi <= grown.lo:
            self._breach(f"{log} has grown from {grown.lo} to {grown.hi}")
        self._raise_first(log, grown.first)
        self._on_pieces(log, grown.lo, grown.hi, grown.pieces, grown.first)
        self._on_size(following, grown)
        following.reached = grown.hi
        following.grown.append(grown)
        if self.takes:
            self._ask_later(Taken(log, grown.size))
        else:
            following.untaken += grown.size

    def _on_size(self, following: Following, grown: Grown) -> None:
        raws = [piece.raw for piece in grown.pieces if piece.raw is not None]
        if grown.size < sum(map(len, raws)):
            self._breach(f"{sum(map(len, raws))} bytes came, and take {grown.size} of the window")
        room = following.window - following.untaken
        if room <= 0:
            self._breach(f"{grown.log} has grown although its window of {following.window} bytes is full")
        elif raws and grown.size - len(raws[-1]) > room:  # a piece comes whole, so the last one may go beyond
            self._breach(f"{len(raws)} pieces of {grown.size} bytes came, and there was room for {room}")

    def _ask_later(self, question: LogQuestion) -> None:
        """Asks once the plugin's call has returned."""
        asyncio.get_running_loop().call_soon(lambda: None if self._is_closed else self.ask(question))

    def _on_pieces(self, log: str, lo: Tick, hi: Tick, pieces: Sequence[LogPiece], first: Tick) -> None:
        """The pieces rise, belong to (lo, hi], and cover all of it but what was removed and voids."""
        found = self.logs[log]
        at = lo
        for piece in pieces:
            if piece.last <= lo or piece.first > hi:
                self._breach(f"a piece of ticks {piece.first} to {piece.last} is none of ({lo}, {hi}]")
            if piece.first <= at and piece is not pieces[0]:
                self._breach(f"a piece begins at {piece.first}, and the one before ends at {at}")
            at = piece.last
            if piece.last <= first:
                self._breach(f"ticks {piece.first} to {piece.last} come, and all up to {first} was removed")
            for wrong in self.truth.take(found, piece):
                self._breach(f"{log}: {wrong}")
        covered = IntervalSet([*found.voids, *((piece.first - 1, piece.last) for piece in pieces)])
        covered.add(-1, max(first, self.first[log]))
        if (missing := covered.gaps(lo, hi)) and not self.has_holes:
            self._breach(f"in ({lo}, {hi}] of {log}, {missing} is in no piece and in no void that was told")

    def _on_cookie(self, answer: Any) -> None:
        cookie: Hashable = answer.cookie
        said: LogAnswer = answer
        question = self._asked.pop(cookie, None)
        if question is None:
            self._breach(f"{answer} is a second answer, or nobody has asked")
            return
        right: tuple[type, ...] = (Appended, Refused, Uncertain)
        if isinstance(question, ReadLog | Locate):
            right = (LogRead,) if isinstance(question, ReadLog) else (Located,)
        if not isinstance(answer, right):
            self._breach(f"{question} was answered with {answer}")
            return
        self._answers[cookie] = said
        if isinstance(answer, LogRead) and isinstance(question, ReadLog):
            if answer.lo != question.after or not question.after <= answer.hi <= question.upto:
                self._breach(f"({question.after}, {question.upto}] was asked for, and ({answer.lo}, {answer.hi}] came")
            if question.log not in self.ended:
                self.first[question.log] = max(self.first[question.log], answer.first)
                self._on_pieces(question.log, answer.lo, answer.hi, answer.pieces, answer.first)
        elif isinstance(answer, Appended) and isinstance(question, Append):
            indices = list(answer.indices)
            if len(indices) != len(question.records) or indices != sorted(set(indices)):
                self._breach(f"{len(question.records)} records were appended, under indices {indices}")
            if question.indices is not None and indices != list(question.indices):
                self._breach(f"indices {list(question.indices)} were proposed, and {indices} were taken")

    def _breach(self, what: str) -> None:
        self.breaches.append(what)


def bodies_of(log: NumberedLog, pieces: Sequence[LogPiece]) -> list[tuple[Tick, bytes]]:
    """The events of pieces, each as tick and body."""
    return [(event.tick, event.body) for piece in pieces for event in events_of(log, piece)]


def _nothing(_: NumberedLog) -> None:
    """Nobody waits for it."""


def _short(answer: LogAnswer) -> str:
    text = repr(answer)
    return text if len(text) <= 200 else f"{text[:200]}…"


@contextlib.asynccontextmanager
async def opened(
    harness: LogHarness, beside: Host | None = None, known: Mapping[str, str] | None = None
) -> AsyncIterator[Host]:
    """A host that has opened the logs; `beside`: another one of the same logs, which must be told the same.

    `known`: the logs of its former life, with their families.
    """
    host = Host(harness, Truth() if beside is None else beside.truth, known or {})
    host.open()
    try:
        yield host
    finally:
        await host.close()


@contextlib.asynccontextmanager
async def one_log(harness: LogHarness) -> AsyncIterator[tuple[Host, str]]:
    """A host, and the log that it has found."""
    await harness.make()
    async with opened(harness) as host:
        (found,) = await host.found()
        yield host, found.log
