"""What the suite's host of logs notices of answers, whatever is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from gapless.core.ports import (
    Appended,
    Follow,
    Grown,
    Located,
    LogAnswer,
    LogCapabilities,
    LogEnded,
    LogPiece,
    LogQuestion,
    LogRead,
    LogsFound,
    LogStart,
    NumberedLog,
)
from gapless.spi import Logs
from gapless_log.kafka.format import KafkaFormat
from gapless_log.kafka.mapping import Rules
from gapless_testing.log import LogHarness
from gapless_testing.log.host import Host
from gapless_testing.log.truth import Truth

LOG = "orders.0@1"


class Says(LogHarness):
    """A log that says what a test lets it say."""

    quiet = 0.001

    def __init__(self) -> None:
        self.tell: Callable[[LogAnswer], None]
        self.asked: list[LogQuestion] = []

    async def make(self) -> None:
        """It is nothing."""

    def open(self, known: Mapping[str, str], answer: Callable[[LogAnswer], None]) -> Logs:
        self.tell = answer
        return self

    def ask(self, question: LogQuestion) -> None:
        """Notes it."""
        self.asked.append(question)

    async def close(self) -> None:
        """It is nothing."""


class Rig:
    """A host, what it is told, and what it has noticed."""

    def __init__(self) -> None:
        self.log = Says()
        self.host = Host(self.log, Truth(), {})
        self.breaches = self.host.breaches
        self.host.open()

    def tell(self, *answers: LogAnswer) -> list[str]:
        """What the host notices of these answers."""
        self.breaches.clear()
        for answer in answers:
            self.log.tell(answer)
        return self.breaches


def described(
    first: int = 0, voids: tuple[tuple[int, int], ...] = (), log: str = LOG, family: str = "orders@1"
) -> LogsFound:
    """A description."""
    capabilities = LogCapabilities("log", alone=False, atomic=False, timed=False, trims=True, record_max=1000)
    rules = Rules("orders")
    found = NumberedLog(
        log, family, "orders", first, first, voids, capabilities, KafkaFormat("orders"), rules.encode(), "", ()
    )
    return LogsFound([found])


def silence(*parts: tuple[int, int]) -> list[LogPiece]:
    """Pieces without events."""
    return [LogPiece(lo + 1, hi, None) for lo, hi in parts]


@pytest.fixture
async def rig() -> Rig:
    rig = Rig()
    assert rig.tell(described()) == []
    rig.host.follow(LOG, 0, window=100)
    return rig


async def test_what_is_right_is_no_breach(rig: Rig) -> None:
    grown = Grown(LOG, 0, 5, silence((0, 2), (2, 5)), 0, 10)
    beyond_a_void = Grown(LOG, 5, 20, silence((10, 20)), 0, 0)

    assert rig.tell(grown, described(voids=((5, 10),)), beyond_a_void) == []
    await asyncio.sleep(0)
    assert rig.host.following[LOG].reached == 20


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (LogsFound([]), "names no log"),
        (described(log="orders"), "NAME@INCARNATION"),
        (described(voids=((3, 3),)), "voids rise, and lie apart: [(3, 3)]"),
        (described(voids=((3, 9), (9, 12))), "voids rise, and lie apart: [(3, 9), (9, 12)]"),
        (described(family="others"), "family of"),
        (Grown("other@1", 0, 5, silence((0, 5)), 0, 0), "nobody follows"),
        (Grown(LOG, 1, 5, silence((1, 5)), 0, 0), "has grown from 1"),
        (Grown(LOG, 0, 0, (), 0, 0), "has grown from 0 to 0"),
        (Grown(LOG, 0, 5, silence((0, 4)), 0, 0), "(4, 5)"),
        (Grown(LOG, 0, 5, silence((0, 3), (2, 5)), 0, 0), "the one before ends at 3"),
        (Grown(LOG, 0, 5, silence((0, 5), (5, 7)), 0, 0), "is none of"),
        (Grown(LOG, 0, 5, [LogPiece(1, 5, None), LogPiece(7, 6, None)], 0, 0), "none"),
        (LogEnded("other@1", "why"), "no such log"),
        (LogEnded(LOG, ""), "no reason"),
        (Located(99, 5), "nobody has asked"),
    ],
    ids=lambda it: it if isinstance(it, str) else type(it).__name__,
)
async def test_a_wrong_answer_is_noticed(rig: Rig, answer: LogAnswer, says: str) -> None:
    assert any(says in breach for breach in rig.tell(answer)), rig.breaches


async def test_what_was_told_before_counts(rig: Rig) -> None:
    rig.tell(described(first=5, voids=((7, 9),)))

    assert "went back" in rig.tell(described(first=3, voids=((7, 9),)))[0]
    assert "voids are gone" in rig.tell(described(first=5))[0]
    assert "was removed" in rig.tell(Grown(LOG, 0, 5, silence((0, 5)), 5, 0))[0]
    assert "which has ended" in rig.tell(LogEnded(LOG, "why"), Grown(LOG, 5, 6, silence((5, 6)), 0, 0))[0]


async def test_a_full_window_is_noticed(rig: Rig) -> None:
    rig.host.takes = False

    assert rig.tell(Grown(LOG, 0, 5, silence((0, 5)), 0, 150)) == []  # a piece comes whole
    assert "is full" in rig.tell(Grown(LOG, 5, 6, silence((5, 6)), 0, 1))[0]


async def test_an_answer_of_another_kind_is_noticed(rig: Rig) -> None:
    cookie = rig.host.send_locate(LOG, LogStart.EARLIEST)

    assert "was answered with" in rig.tell(Appended(cookie, [1]))[0]


async def test_a_read_keeps_to_what_was_asked_for(rig: Rig) -> None:
    for read in (LogRead(1, 1, 5, silence((1, 5)), 0, ""), LogRead(1, 0, 6, silence((0, 6)), 0, "")):
        cookie = rig.host.send_read(LOG, 0, 5)
        answer = LogRead(cookie, read.lo, read.hi, read.pieces, read.first, "")

        assert "was asked for, and" in rig.tell(answer)[0]


async def test_what_was_under_way_when_a_follow_was_replaced_may_come_until_that_begins(rig: Rig) -> None:
    rig.tell(Grown(LOG, 0, 5, silence((0, 5)), 0, 0))
    rig.host.follow(LOG, 2)
    late, begins = Grown(LOG, 5, 7, silence((5, 7)), 0, 0), Grown(LOG, 2, 7, silence((2, 7)), 0, 0)

    assert rig.tell(late, begins) == []
    assert rig.host.following[LOG].reached == 7
    assert "has grown from 9" in rig.tell(Grown(LOG, 9, 10, silence((9, 10)), 0, 0))[0]
    assert [question.after for question in rig.log.asked if isinstance(question, Follow)] == [0, 2]
