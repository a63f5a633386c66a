"""A host of numbered logs that notes everything: it opens topics of a Kafka, real or a model, and follows them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

from typing_extensions import Self

from gapless.core.ports import (
    Append,
    Appended,
    Follow,
    Grown,
    Locate,
    Located,
    LogAnswer,
    LogEnded,
    LogPiece,
    LogRead,
    LogsFound,
    LogStart,
    LogTrouble,
    NumberedLog,
    ReadLog,
    Refused,
    Taken,
    Uncertain,
)
from gapless.core.stream.ticks import Tick
from gapless_log.kafka.lineage import epoch_of, offset_of
from gapless_log.kafka.logs import KafkaLogs
from gapless_log.kafka.options import section_from
from gapless_log.kafka.requests import Access, Connection, connect
from gapless_testing.kafka import KafkaCluster

Answer = TypeVar("Answer")

WINDOW = 1 << 20
PATIENCE = 45.0


class LogHost:
    """What the plugin has answered, in order; each log that is found is followed from where it is decided."""

    def __init__(
        self,
        server: str,
        connect: Callable[[str], Awaitable[Connection]],
        *topics: object,
        follow: bool = True,
        gone_seconds: float = 60.0,
        known: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`topics`: as a configuration has them. `known`: the logs of a former life, with their families."""
        self._section = section_from({"servers": [server], "topics": list(topics)})
        self._connect = connect
        self._follow = follow
        self._gone_seconds = gone_seconds
        self._known = known
        self.said: list[LogAnswer] = []
        self.logs: dict[str, NumberedLog] = {}
        """As they were described last."""
        self.takes = True
        """Whether what comes is taken at once."""
        self._came = asyncio.Event()
        self._count = 0
        self.plugin: KafkaLogs

    async def __aenter__(self) -> Self:
        self.plugin = KafkaLogs(
            self._section, self._known, self._connect, self._on_answer, lambda: 1, gone_seconds=self._gone_seconds
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.plugin.close()

    def _on_answer(self, answer: LogAnswer) -> None:
        self.said.append(answer)
        self._came.set()
        if isinstance(answer, LogsFound):
            for found in answer.logs:
                is_new = found.log not in self.logs
                self.logs[found.log] = found
                if is_new and self._follow:
                    self.plugin.ask(Follow(found.log, found.decided, WINDOW))
        elif isinstance(answer, Grown) and self.takes:
            self.plugin.ask(Taken(answer.log, answer.size))

    async def until(self, holds: Callable[[], Answer]) -> Answer:
        """Waits until this is true of what was said."""
        loop = asyncio.get_running_loop()
        due = loop.time() + PATIENCE
        while not (found := holds()):
            self._came.clear()
            waiting = asyncio.ensure_future(self._came.wait())
            await asyncio.wait([waiting], timeout=max(0, due - loop.time()))
            waiting.cancel()
            assert loop.time() < due, f"it did not happen: {self.said}"
        return found

    def all_of(self, kind: type[Answer]) -> list[Answer]:
        """Everything of a kind that was said."""
        return [each for each in self.said if isinstance(each, kind)]

    async def found(self, partition: int = 0) -> NumberedLog:
        """The log of a partition, once it is found."""

        def there() -> NumberedLog | None:
            alive = [log for name, log in self.logs.items() if f".{partition}@" in name]
            return alive[-1] if alive else None

        found = await self.until(there)
        assert found is not None
        return found

    def grown(self, log: str) -> list[Grown]:
        """How a log has grown; each begins where the one before has ended."""
        grown = [each for each in self.all_of(Grown) if each.log == log]
        assert [each.lo for each in grown[1:]] == [each.hi for each in grown[:-1]]
        return grown

    def reached(self, log: str) -> Tick:
        """Where it has been told to."""
        return self.grown(log)[-1].hi if self.grown(log) else 0

    def events(self, log: str) -> list[tuple[str, bytes]]:
        """The events that have come, each as place and body."""
        pieces = [piece for grown in self.grown(log) for piece in grown.pieces]
        return events_of(self.logs[log], pieces)

    async def behind(self, log: str, count: int) -> list[tuple[str, bytes]]:
        """The events that have come, once there are so many."""
        await self.until(lambda: len(self.events(log)) >= count)
        return self.events(log)

    async def read(self, log: str, after: Tick, upto: Tick, max_bytes: int = 1 << 20) -> LogRead:
        """Reads a part of a log."""
        return await self._ask(LogRead, lambda cookie: ReadLog(log, after, upto, cookie, max_bytes))

    async def locate(self, log: str, at: LogStart | int) -> Tick:
        """Finds a place."""
        return (await self._ask(Located, lambda cookie: Locate(log, at, cookie))).tick

    async def append(self, log: str, *records: bytes) -> Appended | Refused | Uncertain:
        """Appends records."""
        kinds: Any = (Appended, Refused, Uncertain)
        answer: Appended | Refused | Uncertain = await self._ask(
            kinds, lambda cookie: Append(log, cookie, records, None)
        )
        return answer

    async def _ask(self, kind: type[Answer], question: Callable[[int], Any]) -> Answer:
        self._count += 1
        cookie = self._count
        self.plugin.ask(question(cookie))
        answered = await self.until(
            lambda: [each for each in self.all_of(kind) if getattr(each, "cookie", 0) == cookie]
        )
        return answered[0]

    def troubles(self) -> list[tuple[str, str]]:
        """What stood still, and why."""
        return [(trouble.log, trouble.why) for trouble in self.all_of(LogTrouble)]

    def ended(self) -> list[str]:
        """The logs that are gone."""
        return [each.log for each in self.all_of(LogEnded)]


def host_of(kafka: KafkaCluster, *topics: object, follow: bool = True, gone_seconds: float = 60.0) -> LogHost:
    """A host of topics of a real Kafka."""
    connecting = partial(connect, access=Access(patience=20))
    server, *_ = kafka.bootstrap.split(",")
    return LogHost(server, connecting, *topics, follow=follow, gone_seconds=gone_seconds)


def events_of(log: NumberedLog, pieces: Sequence[LogPiece]) -> list[tuple[str, bytes]]:
    """The events of pieces, each as place and body."""
    found = []
    for piece in pieces:
        if piece.raw is not None:
            batch, _ = log.format.decode(piece, log.rules)
            pairs = zip(batch.ticks, batch.events, batch.body_lengths, strict=True)
            found += [(place(tick), event[len(event) - length :]) for tick, event, length in pairs]
    return found


def place(tick: Tick) -> str:
    """A tick as leader epoch and how many records are before its end."""
    return f"{epoch_of(tick)}/{offset_of(tick)}"
