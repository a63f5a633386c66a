"""A host of numbered logs that notes everything, of topics of a Kafka, real or a model: the suite's own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TypeAlias, TypeVar

from typing_extensions import Self

from gapless.core.ports import (
    Appended,
    Grown,
    LogAnswer,
    LogEnded,
    LogPiece,
    LogRead,
    LogStart,
    LogTrouble,
    NumberedLog,
    Refused,
    Uncertain,
)
from gapless.core.stream.ticks import Tick
from gapless_log.kafka.lineage import epoch_of, offset_of
from gapless_log.kafka.logs import KafkaLogs
from gapless_log.kafka.options import section_from
from gapless_log.kafka.requests import Access, Connection, connect
from gapless_testing.kafka import KafkaCluster
from gapless_testing.log import LogHarness
from gapless_testing.log.host import Host, bodies_of
from gapless_testing.log.truth import Truth

Answer = TypeVar("Answer")
Connect: TypeAlias = "Callable[[str], Awaitable[Connection]]"


class KafkaSectionHarness(LogHarness):
    """Topics as a configuration has them, and the plugin that opens them."""

    quiet = 0.001
    patience = 9.0  # a broker that is killed takes its time

    def __init__(
        self,
        servers: Sequence[str],
        connect: Connect,
        topics: Sequence[object],
        gone_seconds: float,
    ) -> None:
        self._section = section_from({"servers": servers, "topics": list(topics)})
        self._connect = connect
        self._gone_seconds = gone_seconds
        self.plugin: KafkaLogs

    async def make(self) -> None:
        """Others make topics."""

    def open(self, known: Mapping[str, str], answer: Callable[[LogAnswer], None]) -> KafkaLogs:
        self.plugin = KafkaLogs(self._section, known, self._connect, answer, lambda: 1, gone_seconds=self._gone_seconds)
        return self.plugin


class LogHost:
    """The suite's host, for topics of Kafka: each log that is found is followed from where it is decided.

    At its end it fails for what the plugin has said and may not.
    """

    def __init__(
        self,
        servers: Sequence[str],
        connect: Connect,
        *topics: object,
        follow: bool = True,
        gone_seconds: float = 60.0,
        known: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`topics`: as a configuration has them. `known`: the logs of a former life, with their families."""
        self._harness = KafkaSectionHarness(servers, connect, topics, gone_seconds)
        self._follow = follow
        self._known = known
        self.host: Host

    async def __aenter__(self) -> Self:
        self.host = Host(self._harness, Truth(), self._known)
        if self._follow:
            self.host.on_new = self._on_new
        self.host.open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.host.close()
        assert kind is not None or self.host.breaches == [], self.host.breaches

    def _on_new(self, found: NumberedLog) -> None:
        self.host.follow(found.log, found.decided)

    @property
    def plugin(self) -> KafkaLogs:
        """What is tested."""
        return self._harness.plugin

    @property
    def logs(self) -> Mapping[str, NumberedLog]:
        """As they were described last."""
        return self.host.logs

    @property
    def said(self) -> Sequence[LogAnswer]:
        """What the plugin has answered, in order."""
        return self.host.said

    async def until(self, holds: Callable[[], Answer | None]) -> Answer:
        """Waits until this is true of what was said."""
        return await self.host.until(holds, lambda: "it did not happen")

    def all_of(self, kind: type[Answer]) -> list[Answer]:
        """Everything of a kind that was said."""
        return self.host.all_of(kind)

    async def found(self, partition: int = 0) -> NumberedLog:
        """The log of a partition, once it is found."""

        def there() -> NumberedLog | None:
            alive = [log for name, log in self.logs.items() if f".{partition}@" in name]
            return alive[-1] if alive else None

        return await self.until(there)

    def grown(self, log: str) -> list[Grown]:
        """How a log has grown."""
        return [each for each in self.all_of(Grown) if each.log == log]

    def reached(self, log: str) -> Tick:
        """Where it has been told to."""
        return self.grown(log)[-1].hi if self.grown(log) else 0

    def events(self, log: str) -> list[tuple[str, bytes]]:
        """The events that have come, each as place and body."""
        pieces = [piece for grown in self.grown(log) for piece in grown.pieces]
        return events_of(self.logs[log], pieces)

    async def behind(self, log: str, count: int) -> list[tuple[str, bytes]]:
        """The events that have come, once there are so many."""
        await self.until(lambda: len(self.events(log)) >= count or None)
        return self.events(log)

    async def read(self, log: str, after: Tick, upto: Tick, max_bytes: int = 1 << 20) -> LogRead:
        """Reads a part of a log."""
        return await self.host.read(log, after, upto, max_bytes)

    async def locate(self, log: str, at: LogStart | int) -> Tick:
        """Finds a place."""
        return await self.host.locate(log, at)

    async def append(self, log: str, *records: bytes) -> Appended | Refused | Uncertain:
        """Appends records."""
        return await self.host.append(log, *records)

    def troubles(self) -> list[tuple[str, str]]:
        """What stood still, and why."""
        return [(trouble.log, trouble.why) for trouble in self.all_of(LogTrouble)]

    def ended(self) -> list[str]:
        """The logs that are gone."""
        return [each.log for each in self.all_of(LogEnded)]


def host_of(kafka: KafkaCluster, *topics: object, follow: bool = True, gone_seconds: float = 60.0) -> LogHost:
    """A host of topics of a real Kafka."""
    connecting = partial(connect, access=Access(patience=20))
    return LogHost(kafka.bootstrap.split(","), connecting, *topics, follow=follow, gone_seconds=gone_seconds)


def events_of(log: NumberedLog, pieces: Sequence[LogPiece]) -> list[tuple[str, bytes]]:
    """The events of pieces, each as place and body."""
    return [(place(tick), body) for tick, body in bodies_of(log, pieces)]


def place(tick: Tick) -> str:
    """A tick as leader epoch and how many records are before its end."""
    return f"{epoch_of(tick)}/{offset_of(tick)}"
