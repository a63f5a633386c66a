"""The retention of a pubend, over a source that is not ours: it needs no clock, no lease and no publisher."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from gapless.core.gauges import Histogram
from gapless.core.network.facts import Enrolled, Held, Hold, Probe
from gapless.core.outbox import Outbox
from gapless.core.ports import Write
from gapless.core.stream.ticks import Tick
from gapless.security.allow_all import AllowAll
from gapless_phb.core.damage import Damage
from gapless_phb.core.gauges import PUBLISH_SECONDS
from gapless_phb.core.own_log.byte_index import ByteIndex
from gapless_phb.core.retention.members import AckExpected, Retention
from gapless_phb.core.rows import PubendRow, SavedPubend
from gapless_phb.core.settings import Settings
from gapless_phb.core.source import SECOND, PubendContext, Source, ThenFound, Timers
from unit.gapless_phb.harness import NO_RETENTION, TABLES

PUBEND = "orders.0@topic"


@dataclass
class NumberedFacts:
    """A log of ten records, numbered 1 to 10."""

    pubend: str = PUBEND
    grain: Tick = 1
    ready: bool = True
    lost: Tick = 0
    lost_asked: Tick = 0
    newest: Tick = 10
    stable: Tick = 10
    suspect: bool = False
    index: ByteIndex = field(default_factory=lambda: ByteIndex([(tick, 100 * tick) for tick in range(11)]))
    damage: Damage = field(default_factory=lambda: Damage(PUBEND))

    def read(self, after: Tick, upto: Tick, then: ThenFound) -> None:
        raise AssertionError("nobody reads it here")


@dataclass
class NumberedSource:
    """Says what it has, and notes what it is asked to give up."""

    log: NumberedFacts = field(default_factory=NumberedFacts)
    given_up: list[Tick] = field(default_factory=list)
    on_grown: Callable[[int], None] = lambda _now: None  # nobody listens yet

    def present(self, _now: int, _wall: int) -> Tick:
        return self.log.newest + 1

    def give_up(self, upto: Tick, _again: Callable[[int], None]) -> None:
        self.given_up.append(upto)


class World:
    def __init__(self) -> None:
        self.outbox: Outbox = Outbox()
        self.source = NumberedSource()
        context = PubendContext(
            "network",
            "broker",
            "volume",
            TABLES,
            Settings(),
            AllowAll(),
            self.outbox,
            "",
            audited=False,
            publish_seconds=Histogram(PUBLISH_SECONDS),
        )
        self.timers = Timers(self.outbox)
        saved = SavedPubend(0, PubendRow(PUBEND, 0, ("#",)))
        self.retention = Retention(context, cast("Source", self.source), saved, NO_RETENTION, self.timers)
        self.retention.start(0)

    def said(self) -> list[object]:
        """What is said once everything is durable."""
        said: list[object] = []
        while effects := self.outbox.take():
            for effect in effects:
                if isinstance(effect, Write):
                    assert isinstance(effect.cookie, int)
                    self.outbox.on_durable(effect.cookie, 0, 0)
                else:
                    said.append(effect)
        return said


def test_members_and_holds_are_counted_from_what_the_source_has_decided() -> None:
    world = World()

    world.retention.enrol("shb")
    world.retention.hold(Hold("shb", PUBEND, 1, {7: 4}))

    enrolled, held = world.said()
    assert isinstance(enrolled, Enrolled)
    assert isinstance(held, Held)
    assert (enrolled.at, held.at, held.stable) == (10, {7: 4}, 10)


def test_the_source_is_asked_to_give_up_what_all_are_done_with_and_nobody_holds() -> None:
    world = World()
    world.retention.enrol("shb")
    world.retention.hold(Hold("shb", PUBEND, 1, {7: 4}))
    world.said()

    world.retention.released(9, 9, SECOND)
    world.timers.on_deadline(SECOND, 0)

    assert world.source.given_up == [4]


def test_progress_is_asked_for_when_the_source_has_grown_and_nobody_reports() -> None:
    world = World()
    world.retention.enrol("shb")
    world.said()

    world.timers.on_deadline(4 * SECOND, 0)

    assert [one for one in world.said() if isinstance(one, Probe)] == [Probe(PUBEND, 10)]


def test_waits_for_an_acknowledgement_double() -> None:
    waits = AckExpected(3, 20)

    assert [waits.first(), waits.next(), waits.next(), waits.next(), waits.next()] == [3, 6, 12, 20, 20]
    assert waits.first() == 3
