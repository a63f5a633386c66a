"""Logs that break one promise each, to see that the suite notices.

Each is our plugin over the model of Kafka, with somebody between it and its host who changes one thing.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pytest
from msgspec.structs import replace as with_fields

from conformance.logs import ModelHarness
from gapless.core.ports import (
    Follow,
    Grown,
    Locate,
    Located,
    LogAnswer,
    LogEnded,
    LogPiece,
    LogQuestion,
    LogRead,
    LogsFound,
    LogStart,
    LogTrouble,
    NumberedLog,
    ReadLog,
    Taken,
)
from gapless.core.stream.intervals import IntervalSet
from gapless.spi import Logs
from gapless_log.kafka.messages import Fetch
from gapless_testing import running

Open: TypeAlias = "Callable[[Mapping[str, str], Callable[[LogAnswer], None]], Logs]"


class Relay:
    """Between a host and its logs; each kind below changes one thing on the way."""

    def __init__(self, harness: BrokenHarness, answer: Callable[[LogAnswer], None]) -> None:
        self.harness = harness
        self.tell = answer
        self.logs: Logs
        self.known: dict[str, NumberedLog] = {}

    def open(self, known: Mapping[str, str], open_logs: Open) -> None:
        """Opens the logs."""
        self.logs = open_logs(known, self.on_answer)

    def on_answer(self, answer: LogAnswer) -> None:
        """The plugin says something."""
        if isinstance(answer, LogsFound):
            self.known |= {log.log: log for log in answer.logs}
        changed = self.changed(answer)
        if changed is not None:
            self.tell(changed)

    def changed(self, answer: LogAnswer) -> LogAnswer | None:
        """What the host is told; None: nothing."""
        return answer

    def ask(self, question: LogQuestion) -> None:
        """The host asks."""
        self.logs.ask(question)

    async def close(self) -> None:
        """The host closes the logs."""
        await self.logs.close()

    def on_disconnected(self) -> None:
        """All connections have broken."""

    def on_hidden(self) -> None:
        """Some do not know the log for a while, or do again."""


class BrokenHarness(ModelHarness):
    """The model, asked through a relay."""

    def __init__(self, relay: type[Relay]) -> None:
        super().__init__()
        self.relay = relay
        self.opened: list[Relay] = []

    def open(self, known: Mapping[str, str], answer: Callable[[LogAnswer], None]) -> Logs:
        relay = self.relay(self, answer)
        self.opened.append(relay)
        relay.open(known, super().open)
        return relay

    async def disconnect(self) -> None:
        await super().disconnect()
        for relay in self.opened:
            relay.on_disconnected()

    async def hide(self, *, hidden: bool) -> None:
        await super().hide(hidden=hidden)
        for relay in self.opened:
            relay.on_hidden()


@dataclass(frozen=True)
class Breach:
    """One thing done wrong, and a test of the suite that has to fail then."""

    relay: type[Relay]
    test: Callable[..., object]
    says: str = ""
    """What has to be in the message."""

    def __str__(self) -> str:
        return f"{self.relay.__name__}-{self.test.__name__}"

    def check(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The test passes without the breach and fails with it."""
        assert complaint(self.test, Relay) is None
        monkeypatch.setattr(running, "WAIT_SECONDS_MAX", 2.0)
        message = complaint(self.test, self.relay)
        assert message is not None, f"{self.test.__name__} does not notice {self.relay.__name__}: {self.relay.__doc__}"
        assert self.says in message, message


def complaint(test: Callable[..., object], relay: type[Relay]) -> str | None:
    """With what message a test of the suite fails on a broken log; None: it passes."""
    try:
        test(None, BrokenHarness(relay))
    except (AssertionError, pytest.fail.Exception, LookupError, RuntimeError, ValueError, TypeError) as error:
        return str(error) or type(error).__name__
    return None


# ------------------------------------------------------------------------------------------ what is found


class Describes(Relay):
    """Describes logs otherwise."""

    def changed(self, answer: LogAnswer) -> LogAnswer | None:
        return LogsFound([self.described(log) for log in answer.logs]) if isinstance(answer, LogsFound) else answer

    def described(self, log: NumberedLog) -> NumberedLog:
        """Another description."""
        raise NotImplementedError


class DecidesAhead(Describes):
    """What comes next is decided already."""

    def described(self, log: NumberedLog) -> NumberedLog:
        return replace(log, decided=log.decided + 5)


class DecidesNothing(Describes):
    """What is there already counts as new."""

    def described(self, log: NumberedLog) -> NumberedLog:
        return replace(log, decided=log.first)


class ForgetsVoids(Describes):
    """Voids are no affair of the host's."""

    def described(self, log: NumberedLog) -> NumberedLog:
        return replace(log, voids=())


class BeginsAtNothing(Describes):
    """A log begins at 0 for ever."""

    def described(self, log: NumberedLog) -> NumberedLog:
        return replace(log, first=0)


class BoastsOfRoom(Describes):
    """It takes records of any size."""

    def described(self, log: NumberedLog) -> NumberedLog:
        return replace(log, capabilities=replace(log.capabilities, record_max=2 << 20))


class TakesAnotherTopic(Describes):
    """The topic is not that of its events."""

    def described(self, log: NumberedLog) -> NumberedLog:
        return replace(log, topic="other")


class Renames(Relay):
    """Logs have other names."""

    def renamed(self, log: str) -> str:
        """The other name."""
        raise NotImplementedError

    def __init__(self, harness: BrokenHarness, answer: Callable[[LogAnswer], None]) -> None:
        super().__init__(harness, answer)
        self.names: dict[str, str] = {}

    def changed(self, answer: LogAnswer) -> LogAnswer | None:
        if isinstance(answer, LogsFound):
            for log in answer.logs:
                self.names[self.renamed(log.log)] = log.log
            return LogsFound([replace(log, log=self.renamed(log.log)) for log in answer.logs])
        if isinstance(answer, Grown | LogTrouble | LogEnded) and answer.log in self.names.values():
            return with_fields(answer, log=self.renamed(answer.log))
        return answer

    def ask(self, question: LogQuestion) -> None:
        assert not hasattr(question, "plugin")
        super().ask(with_fields(question, log=self.names[question.log]))


class NamesItself(Renames):
    """A log is called after who reads it."""

    def renamed(self, log: str) -> str:
        return f"{log}-{self.harness.opened.index(self)}"


class GoesByName(Renames):
    """A log made anew is called like the old one."""

    def renamed(self, log: str) -> str:
        return log.partition("@")[0] + "@always"


class FollowsUnasked(Relay):
    """Sends what there is."""

    def on_answer(self, answer: LogAnswer) -> None:
        super().on_answer(answer)
        if isinstance(answer, LogsFound):
            for log in answer.logs:
                self.logs.ask(Follow(log.log, log.first, 1000))


class GivesUp(Relay):
    """A log that is not there at first is none."""

    has_failed = False

    def changed(self, answer: LogAnswer) -> LogAnswer | None:
        self.has_failed = self.has_failed or isinstance(answer, LogTrouble)
        return None if self.has_failed else answer


class FindsOnce(Relay):
    """What it has found first is all there is."""

    found = 0

    def changed(self, answer: LogAnswer) -> LogAnswer | None:
        self.found += isinstance(answer, LogsFound)
        return None if isinstance(answer, LogsFound) and self.found > 1 else answer


class FindsOneByOne(Relay):
    """Each log has a message of its own."""

    def on_answer(self, answer: LogAnswer) -> None:
        if isinstance(answer, LogsFound):
            for log in answer.logs:
                super().on_answer(LogsFound([log]))
        else:
            super().on_answer(answer)


class TellsVoidsLate(Relay):
    """Descriptions come after what has grown."""

    late: LogsFound | None = None

    def changed(self, answer: LogAnswer) -> LogAnswer | None:
        if isinstance(answer, LogsFound) and answer.logs[0].voids:
            self.late = answer
            return None
        if isinstance(answer, Grown) and self.late is not None:
            self.tell(answer)
            late, self.late = self.late, None
            return late
        return answer


# --------------------------------------------------------------------------------------------- following


class GrowsTwice(Relay):
    """Says it again, to be sure."""

    def changed(self, answer: LogAnswer) -> LogAnswer | None:
        if isinstance(answer, Grown):
            self.tell(answer)
        return answer


class LeavesOne(Relay):
    """The third growth gets lost."""

    count = 0

    def changed(self, answer: LogAnswer) -> LogAnswer | None:
        self.count += isinstance(answer, Grown)
        return None if isinstance(answer, Grown) and self.count == 3 else answer


class BeginsAtTheBeginning(Relay):
    """A reader begins where the log does."""

    def ask(self, question: LogQuestion) -> None:
        if isinstance(question, Follow):
            question = with_fields(question, after=self.known[question.log].first)
        super().ask(question)


class IgnoresTheWindow(Relay):
    """Sends what there is."""

    def ask(self, question: LogQuestion) -> None:
        super().ask(with_fields(question, window=1 << 30) if isinstance(question, Follow) else question)


class ForgetsWhatIsTaken(Relay):
    """Windows are never given back."""

    def ask(self, question: LogQuestion) -> None:
        if not isinstance(question, Taken):
            super().ask(question)


class WaitsForRoom(Relay):
    """What is larger than the window does not come."""

    window = 0

    def ask(self, question: LogQuestion) -> None:
        if isinstance(question, Follow):
            self.window = question.window
        super().ask(question)

    def changed(self, answer: LogAnswer) -> LogAnswer | None:
        return None if isinstance(answer, Grown) and answer.size > self.window else answer


class FollowsOnce(Relay):
    """One `Follow` is enough for ever."""

    is_following = False

    def ask(self, question: LogQuestion) -> None:
        if not isinstance(question, Follow) or not self.is_following:
            super().ask(question)
        self.is_following = self.is_following or isinstance(question, Follow)


class SaysNothingOfSilence(Relay):
    """Where no event is there is nothing to say."""

    def changed(self, answer: LogAnswer) -> LogAnswer | None:
        is_silence = isinstance(answer, Grown) and all(piece.raw is None for piece in answer.pieces)
        return None if is_silence else answer


class DiesWithItsConnections(Relay):
    """When connections break it says nothing any more."""

    is_dead = False

    def on_disconnected(self) -> None:
        self.is_dead = True

    def changed(self, answer: LogAnswer) -> LogAnswer | None:
        return None if self.is_dead else answer


class ReadsUncommitted(Relay):
    """What is in the log is in the log."""

    def open(self, known: Mapping[str, str], open_logs: Open) -> None:
        dial = self.harness.dial

        async def dialed(address: str) -> Any:
            connection = await dial(address)
            ask = connection.ask

            async def asked(request: Any) -> Any:
                return await ask(with_fields(request, is_committed=False) if isinstance(request, Fetch) else request)

            connection.ask = asked  # type: ignore[method-assign]
            return connection

        self.harness.dial = dialed  # type: ignore[method-assign]
        super().open(known, open_logs)


class HidesFirst(Relay):
    """Where the log begins is said in descriptions alone."""

    def changed(self, answer: LogAnswer) -> LogAnswer | None:
        if isinstance(answer, LogsFound) and answer.logs[0].first and len(self.known) and self.seen:
            return None
        self.seen = True
        return with_fields(answer, first=0) if isinstance(answer, Grown | LogRead) else answer

    seen = False


class TellsOnAnotherThread(Relay):
    """Answers come from a thread of its own."""

    def changed(self, answer: LogAnswer) -> LogAnswer | None:
        if isinstance(answer, Grown):
            thread = threading.Thread(target=self.tell, args=(answer,))
            thread.start()
            thread.join()
            return None
        return answer


class WeighsNothing(Relay):
    """What comes takes nothing of the window."""

    def changed(self, answer: LogAnswer) -> LogAnswer | None:
        return with_fields(answer, size=0) if isinstance(answer, Grown) else answer


# ----------------------------------------------------------------------------------------------- reading


class Reads(Relay):
    """Reads otherwise."""

    def __init__(self, harness: BrokenHarness, answer: Callable[[LogAnswer], None]) -> None:
        super().__init__(harness, answer)
        self.asked: dict[object, ReadLog] = {}

    def ask(self, question: LogQuestion) -> None:
        if isinstance(question, ReadLog):
            self.asked[question.cookie] = question
        super().ask(question)

    def changed(self, answer: LogAnswer) -> LogAnswer | None:
        return self.read(answer, self.asked[answer.cookie]) if isinstance(answer, LogRead) else answer

    def read(self, answer: LogRead, question: ReadLog) -> LogAnswer:
        """What is read."""
        raise NotImplementedError


class LeavesOutTheLastPiece(Reads):
    """One piece less than is covered."""

    def read(self, answer: LogRead, question: ReadLog) -> LogAnswer:
        return with_fields(answer, pieces=answer.pieces[:-1])


class SaysSilenceAhead(Reads):
    """What was asked for is covered."""

    def read(self, answer: LogRead, question: ReadLog) -> LogAnswer:
        return with_fields(
            answer, hi=question.upto, pieces=[*answer.pieces, LogPiece(answer.hi + 1, question.upto, None)]
        )


class CallsHolesSilence(Reads):
    """What is not there is silence."""

    def read(self, answer: LogRead, question: ReadLog) -> LogAnswer:
        covered = IntervalSet((piece.first - 1, piece.last) for piece in answer.pieces)
        holes = [LogPiece(lo + 1, hi, None) for lo, hi in covered.gaps(answer.lo, answer.hi)]
        return with_fields(answer, pieces=sorted([*answer.pieces, *holes], key=lambda piece: piece.first))


class SkipsWhatItCannotRead(Reads):
    """An error helps nobody."""

    def read(self, answer: LogRead, question: ReadLog) -> LogAnswer:
        if not answer.error:
            return answer
        return with_fields(answer, hi=question.upto, pieces=[LogPiece(answer.lo + 1, question.upto, None)], error="")


class ReadsNothingOfOldRecords(Reads):
    """What was there before it came is silence."""

    def read(self, answer: LogRead, question: ReadLog) -> LogAnswer:
        decided = self.known[question.log].decided
        pieces = [replace(piece, raw=None) if piece.last <= decided else piece for piece in answer.pieces]
        return with_fields(answer, pieces=pieces)


class ReadsEverything(Relay):
    """Memory is cheap."""

    def ask(self, question: LogQuestion) -> None:
        super().ask(with_fields(question, max_bytes=1 << 30) if isinstance(question, ReadLog) else question)


class MixesCookies(Relay):
    """Two answers that are ready get each other's cookie."""

    waits: LogRead | None = None

    def changed(self, answer: LogAnswer) -> LogAnswer | None:
        if not isinstance(answer, LogRead):
            return answer
        if self.waits is None:
            self.waits = answer
            return None
        other, self.waits = self.waits, None
        self.tell(with_fields(other, cookie=answer.cookie))
        return with_fields(answer, cookie=other.cookie)


class DoesOneThing(Relay):
    """Who reads does not follow any more."""

    has_read = False

    def ask(self, question: LogQuestion) -> None:
        self.has_read = self.has_read or isinstance(question, ReadLog)
        super().ask(question)

    def changed(self, answer: LogAnswer) -> LogAnswer | None:
        return None if self.has_read and isinstance(answer, Grown) else answer


class ReadsTheDead(Relay):
    """A log that is gone is an empty one."""

    def changed(self, answer: LogAnswer) -> LogAnswer | None:
        return with_fields(answer, error="") if isinstance(answer, LogRead) else answer


# ----------------------------------------------------------------------------------------------- locating


class Locates(Relay):
    """Takes one place for another."""

    def ask(self, question: LogQuestion) -> None:
        if isinstance(question, Locate):
            question = with_fields(question, at=self.place(question.at))
        super().ask(question)

    def place(self, at: LogStart | int) -> LogStart | int:
        """The other place."""
        raise NotImplementedError


class BeginsAtTheEnd(Locates):
    """The earliest is the end."""

    def place(self, at: LogStart | int) -> LogStart | int:
        return LogStart.DECIDED if at is LogStart.EARLIEST else at


class KnowsNoTimes(Locates):
    """Whatever time is asked for, it is the end."""

    def place(self, at: LogStart | int) -> LogStart | int:
        return LogStart.DECIDED if isinstance(at, int) else at


class BelievesWhatIsDecided(Locates):
    """What is not decided is not there."""

    def place(self, at: LogStart | int) -> LogStart | int:
        return LogStart.DECIDED if at is LogStart.LATEST else at


class RemembersTheBeginning(Relay):
    """Where a log begins it has looked up once."""

    def ask(self, question: LogQuestion) -> None:
        if isinstance(question, Locate) and question.at is LogStart.EARLIEST:
            asyncio.get_running_loop().call_soon(self.tell, Located(question.cookie, 0))
        else:
            super().ask(question)


class LocatesTheLast(Relay):
    """Only the latest question counts."""

    latest: object = None

    def ask(self, question: LogQuestion) -> None:
        if isinstance(question, Locate):
            self.latest = question.cookie
        super().ask(question)

    def changed(self, answer: LogAnswer) -> LogAnswer | None:
        return None if isinstance(answer, Located) and answer.cookie != self.latest else answer


class AnswersAtOnce(Relay):
    """What it knows already it says from within the question."""

    def ask(self, question: LogQuestion) -> None:
        if isinstance(question, Locate):
            self.tell(Located(question.cookie, 0))
        else:
            super().ask(question)
