"""The small world of an SHB with one more application in it: one that reads its subscription by ranges.

It keeps its position itself, reads ranges again and again, several at a time and with little credit, acknowledges, goes
back behind what it acknowledged, and is told what is in every range. What it must find there, the world's log says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from gapless.core.ports import ClientSession
from gapless.core.principals import NOBODY
from gapless.core.stream.knowledge import Knowledge
from gapless.core.wire import messages as m
from gapless_shb.core.ranges.service import Ranges
from gapless_shb.core.state.broker_state import CatchUp
from unit.gapless_shb.core.harness import BASE, CACHED, FORGETFUL, PUBEND, World

SESSIONS = 100_000
"""The numbers of this application's sessions begin here."""
NAME = "ranges"


@dataclass
class Reading:
    """A range that is being read."""

    lo: int
    hi: int
    lost_before: int
    acked_before: int
    credit: int
    ticks: list[int] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)


class RangeWorld(World):
    """See the module."""

    def __init__(self, catch_up: CatchUp = CACHED, *, selector: str = "w = 1") -> None:
        self.session = SESSIONS
        self.selector = selector
        self.requests = 0
        self.attached: m.AttachedTo | None = None
        self.start = 0
        self.position = 0
        self.acked = 0
        self.head = 0
        self.readings: dict[int, Reading] = {}
        self.asked: dict[int, Any] = {}
        self.answers: dict[int, Any] = {}
        self.completed = 0
        super().__init__(catch_up)

    # ---------------------------------------------------------------------------------- the application

    @property
    def client(self) -> ClientSession:
        return ClientSession(self.session, "c", f"ranges-{self.session}", NOBODY)

    @property
    def ranges(self) -> Ranges:
        """The part of the broker that reads are asked of."""
        return self.role._ranges

    @property
    def target(self) -> m.Target:
        return m.Target(NAME)

    def say(self, message: Any, session: ClientSession | None = None) -> int:
        """Sends a message to the broker; returns its number."""
        self.role.requests()[type(message)](session or self.client, message, self.now, self.wall)
        self.pump()
        return int(message.request)

    def number(self) -> int:
        self.requests += 1
        return self.requests

    def ask(self, message: Any) -> Any:
        """The answer to a question that is answered at once."""
        return self.answers.pop(self.say(message))

    def define(self, start: m.StartAt = m.StartAt.LATEST) -> None:
        self.say(m.Attach(self.number(), NAME, ("#",), self.selector, start, 0, None, 0, 0, b""))

    def read_range(self, lo: int, hi: int, credit: int = 1000) -> int:
        number = self.number()
        self.readings[number] = Reading(lo, hi, self.lost, self.acked, credit)
        return self.say(m.ReadRange(number, self.target, PUBEND, lo, hi, credit, 1 << 20))

    def acknowledge(self, tick: int) -> int:
        self.acked = max(self.acked, tick)
        return self.say(m.AcknowledgeDurably(self.number(), self.target, b"", [m.Position(PUBEND, tick)]))

    def matching(self, lo: int, hi: int) -> list[int]:
        """What the log says of a range: whatever became of it."""
        return [
            tick for tick, properties, _ in self.log if lo < tick <= hi and (not self.selector or properties["w"] == 1)
        ]

    # ------------------------------------------------------------------------------------ what it is told

    def client_gets(self, session: int, message: object) -> None:
        if session < SESSIONS:
            super().client_gets(session, message)
            return
        if session != self.session:
            self.answers[-session] = message
            return
        if isinstance(message, m.RangeEvents):
            reading = self.readings[message.request]
            reading.ticks += message.columns.ticks()
            reading.credit -= message.columns.count
            assert reading.credit >= 0, "more was sent than the credit allows"
        elif isinstance(message, m.RangeGap):
            reading = self.readings[message.request]
            if reading.gaps:
                end = reading.gaps[-1][1]
                assert end <= message.start
                assert end < (reading.ticks or [0])[-1], "a lost range in pieces: nothing is between two gaps"
            reading.gaps.append((message.start, message.end))
        elif isinstance(message, m.RangeRead):
            self._has_read(self.readings.pop(message.request))
        elif isinstance(message, m.AttachedTo):
            self.attached = message
            positions = {p.pubend: p.tick for p in message.positions}
            if not self.start:
                self.start = self.position = self.acked = self.head = positions.get(PUBEND, BASE)
        elif isinstance(message, m.RequestFailed) and message.code is m.Code.RETRY:
            self.readings.pop(message.request, None)
        else:
            request: int = message.request  # type: ignore[attr-defined]
            self.answers[request] = message

    def _has_read(self, reading: Reading) -> None:
        """Checks a range against the log (I3, I4, I5)."""
        self.completed += 1
        owed = self.matching(reading.lo, reading.hi)
        inside = [tick for tick in owed if not any(lo < tick <= hi for lo, hi in reading.gaps)]
        assert reading.ticks == inside, (reading, sorted(set(inside) ^ set(reading.ticks)))
        for lo, hi in reading.gaps:
            assert reading.lo <= lo < hi <= max(self.lost, reading.hi)
            assert lo < self.lost, "a gap where nothing is lost"
            if self.retain is None:
                assert lo < max(reading.acked_before, self.acked), "a gap in what was never acknowledged"
        if reading.lo <= self.position < reading.hi:
            self.position = reading.hi

    # ------------------------------------------------------------------------------------- what happens

    def knowledge(self, lo: int, hi: int, *, raw: bool, reply: bool) -> Knowledge:
        """A pubend's own answer says all that it has lost."""
        knowledge = super().knowledge(lo, hi, raw=raw, reply=reply)
        return replace(knowledge, lost=self.lost) if reply and knowledge.lost else knowledge

    def crash(self, keep: int = 0) -> list[object]:
        self.new_session()
        return super().crash(keep)

    def new_session(self) -> None:
        """The application's connection is gone, and another one is there."""
        self.readings.clear()
        self.answers.clear()
        self.session += 1

    # ------------------------------------------------------------------------------------------- the end

    def calm(self, events: int = 0) -> RangeWorld:
        """Some events, and time in which nothing goes wrong."""
        for _ in range(events):
            self.publish()
        for _ in range(8):
            self.see()
            self.deliver(self.knowledge(BASE, self.stable, raw=True, reply=False))
            self.sync()
            self.answer_holds()
            self.read()
            self.answer_wants()
            self.pause(300)
        return self

    def forget(self, upto: int) -> None:
        """The pubend has released its log up to here."""
        self.lost = upto

    def take(self, lo: int, hi: int) -> Reading:
        """A whole range, read while nothing goes wrong."""
        number = self.number()
        reading = self.readings[number] = Reading(lo, hi, self.lost, self.acked, 1000)
        self.say(m.ReadRange(number, self.target, PUBEND, lo, hi, 1000, 1 << 30))
        for _ in range(8):
            self.read()
            self.answer_wants()
        assert number not in self.readings, "it is not complete"
        return reading


def forgetful(selector: str) -> tuple[RangeWorld, int]:
    """A world in which nothing that was delivered stays in memory, with its application; and from where on it reads."""
    world = RangeWorld(FORGETFUL, selector=selector).calm()
    world.define()
    return world, world.calm(1).stable
