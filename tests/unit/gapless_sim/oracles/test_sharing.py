"""J10, J11, J12 and V1 of shared subscriptions: what is settled, who holds it, what is marked, what is left."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gapless.core.wire.messages import (
    DeliverHeldGap,
    Detach,
    HoldLost,
    Holds,
    Kind,
    PubendNumber,
    Settle,
    Settled,
    StartAt,
    Take,
    Taken,
    Verdict,
)
from gapless_sim.oracles.sharing import J10Windows, J11Released, J11Settled, J12Marked, V1SharedDelivery
from gapless_sim.oracles.sharing_book import SharingBook
from gapless_sim.world.options import SECOND
from gapless_sim.world.sharing import Habits, Holding, Outcome, SharedRow
from unit.gapless_sim.oracles.model_fixture import NODE, ModelFixture, P, Stand, violates

SID = 7


class Worker:
    """A consumer in a process of its own."""

    def __init__(self, stage: Stage, name: str, **habits: Any) -> None:
        self.stage, self.name = stage, name
        self.client = SimpleNamespace(name=name, addresses=[NODE], running=True)
        self.consumer: Any = Stand(
            client=self.client,
            row=stage.row,
            habits=Habits(**habits),
            key=(f"{name}/1", 1),
            lane=f"{name}:jobs",
            alive=True,
            attached=True,
            held={},
        )
        self.consumer.holds = lambda number: self.consumer.alive and number in self.consumer.held
        self.session = 0
        self.settlements = 0
        stage.observe.sharing(self.consumer)
        self.connect()
        stage.observe.shared(self.consumer, SimpleNamespace(sid=SID))

    def connect(self) -> None:
        """It has a session."""
        stage = self.stage
        stage.sessions += 1
        self.session = stage.sessions
        stage.book.join(NODE, self.session, SID, self.consumer.key)
        stage.book.sent(NODE, self.session, PubendNumber(0, P))

    def lose_link(self) -> None:
        self.stage.observe.left(NODE, self.session)

    def sent(self, tick: int, number: int, attempts: int = 0, *, careful: bool = False) -> None:
        """It is sent an event."""
        story = self.stage.book.stories[1]
        self.stage.book.send(
            story, NODE, self.session, self.consumer.key, (P, tick), number, careful=careful, attempts=attempts
        )

    def takes(self, tick: int, number: int) -> None:
        """It says that it is about to hand it out, and that is counted."""
        self.stage.observe.received(NODE, self.session, Take(SID, Holds(P, (tick,), (number,))))
        self.stage.book.sent(NODE, self.session, Taken(SID, number))

    def handed(self, tick: int, number: int, key: int, count: int = 1) -> Holding:
        """Its application is handed it."""
        holding = Holding(P, tick, number, count, count > 1, body=key.to_bytes(8, "big"))
        self.consumer.held[number] = holding
        self.stage.observe.held(self.consumer, holding)
        return holding

    def settles(self, holding: Holding, kind: Kind = Kind.ACKNOWLEDGE) -> int:
        """It says something of it, which its broker receives."""
        self.settlements += 1
        self.consumer.held.pop(holding.number)
        holding.said = kind
        self.stage.observe.settling(self.consumer, holding)
        holds = Holds(P, (holding.tick,), (holding.number,))
        self.stage.observe.received(NODE, self.session, Settle(SID, self.settlements, (Verdict(kind, holds),)))
        return self.settlements

    def answered(self, settlement: int, *lost: int) -> None:
        """Its broker answers."""
        holds = (Holds(P, (1,) * len(lost), lost),) if lost else ()
        self.stage.book.sent(NODE, self.session, Settled(SID, settlement, holds))

    def told(self, holding: Holding, outcome: Outcome) -> None:
        """Its application is told."""
        holding.outcome = outcome
        self.stage.observe.verdict_answered(self.consumer, holding)

    def dies(self) -> None:
        self.consumer.alive = False
        self.lose_link()


class Stage:
    """Three events, and a shared subscription to all of them."""

    def __init__(self) -> None:
        fixture = self.fixture = ModelFixture()
        self.observe, self.model = fixture.observe, fixture.model
        self.book = SharingBook(self.model)
        self.settled, self.marked = J11Settled(self.model, self.book), J12Marked(self.model, self.book)
        self.windows, self.delivery = J10Windows(self.model, self.book), V1SharedDelivery(self.model, self.book)
        self.book.lookers = (self.settled, self.marked)
        released = J11Released(self.model, self.book)
        for oracle in (self.book, self.settled, released, self.marked, self.windows, self.delivery):
            self.observe.add(oracle)
        fixture.opens()
        self.model.shb_of[NODE] = "shb"
        self.model.members[P] = {"shb": 0}
        self.row = SharedRow(1, "c", "jobs", ("#",), "", lambda _: True, StartAt.LATEST, 2)
        self.sessions = 0
        self.one, self.other = Worker(self, "one"), Worker(self, "two")
        fixture.world.now += SECOND
        fixture.log((10, 1), (20, 2), (30, 3))

    def later(self, seconds: float) -> None:
        self.fixture.world.now += int(seconds * SECOND)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_what_is_settled_may_be_told_once(stage: Stage) -> None:
    one, other = stage.one, stage.other
    one.sent(10, 1)
    holding = one.handed(10, 1, 1)
    one.answered(one.settles(holding))
    one.told(holding, Outcome.DURABLE)

    with violates("J11"):
        other.sent(10, 2, careful=True)


def test_two_work_on_one_event(stage: Stage) -> None:
    stage.one.sent(10, 1)
    stage.one.handed(10, 1, 1)
    stage.other.sent(10, 2, careful=True)
    stage.other.takes(10, 2)
    with violates("J11"):
        stage.other.handed(10, 2, 1, count=2)


@pytest.mark.parametrize("seconds", [1, 6])
def test_who_was_away_for_long_may_have_lost_it(stage: Stage, seconds: int) -> None:
    stage.one.sent(10, 1)
    stage.one.handed(10, 1, 1)
    stage.one.lose_link()
    stage.later(seconds)
    stage.other.sent(10, 2, careful=True)
    stage.other.takes(10, 2)
    if seconds > 5:
        stage.other.handed(10, 2, 1, count=2)
        return
    with violates("J11"):
        stage.other.handed(10, 2, 1, count=2)


def test_nobody_is_told_to_have_lost_what_he_works_on(stage: Stage) -> None:
    stage.one.sent(10, 1)
    stage.one.handed(10, 1, 1)
    with violates("J11"):
        stage.book.sent(NODE, stage.one.session, HoldLost(SID, (Holds(P, (10,), (1,)),)))


def test_a_verdict_that_was_answered_is_answered_so_again(stage: Stage) -> None:
    stage.one.sent(10, 1)
    settlement = stage.one.settles(stage.one.handed(10, 1, 1))
    stage.one.answered(settlement)
    stage.one.answered(settlement)
    with violates("J11"):
        stage.one.answered(settlement, 1)


def test_a_verdict_of_who_has_lost_it_counts_no_more(stage: Stage) -> None:
    stage.one.sent(10, 1)
    first = stage.one.handed(10, 1, 1)
    stage.one.lose_link()
    stage.later(6)
    stage.other.sent(10, 2, careful=True)
    stage.other.takes(10, 2)
    stage.other.handed(10, 2, 1, count=2)
    stage.one.connect()
    settlement = stage.one.settles(first)
    with violates("J11"):
        stage.one.answered(settlement)


def test_a_number_is_given_once(stage: Stage) -> None:
    stage.one.sent(10, 1)
    with violates("J11"):
        stage.other.sent(20, 1)


def test_nothing_is_released_before_it_is_settled(stage: Stage) -> None:
    released = SimpleNamespace(shb="shb", pubend=P, released=10, delivered=30)
    with violates("J11"):
        stage.observe.progressed(NODE, released)


def test_what_comes_again_is_marked(stage: Stage) -> None:
    stage.one.sent(10, 1)
    stage.one.handed(10, 1, 1)
    stage.one.dies()
    stage.other.sent(10, 2)
    with violates("J12"):
        stage.other.handed(10, 2, 1)


def test_what_was_never_sent_is_not_marked(stage: Stage) -> None:
    with violates("J12"):
        stage.one.sent(10, 1, careful=True)


def test_attempts_are_of_those_who_had_it_in_hand(stage: Stage) -> None:
    stage.one.sent(10, 1)
    stage.one.dies()
    with violates("J12"):
        stage.other.sent(10, 2, 1, careful=True)


def test_a_durable_attempt_is_never_forgotten(stage: Stage) -> None:
    stage.one.sent(10, 1)
    stage.one.dies()
    stage.other.sent(10, 2, careful=True)
    stage.other.takes(10, 2)
    stage.other.dies()
    with violates("J12"):
        Worker(stage, "three").sent(10, 3, careful=True)


def test_what_somebody_died_with_goes_alone(stage: Stage) -> None:
    stage.one.sent(10, 1)
    stage.one.dies()
    stage.other.sent(10, 2, careful=True)
    stage.other.takes(10, 2)
    stage.other.dies()
    three = Worker(stage, "three")
    three.sent(20, 3)
    with violates("J12"):
        three.sent(10, 4, 1, careful=True)


def test_no_more_is_given_out_than_there_is_room_for(stage: Stage) -> None:
    for number, tick in enumerate((10, 20), 1):
        stage.one.sent(tick, number)
    stage.observe.checkpoint()
    stage.other.sent(30, 3)
    with violates("J10"):
        stage.observe.checkpoint()


def test_it_waits_until_all_is_settled(stage: Stage) -> None:
    assert not stage.delivery.settled()
    assert "publication 3" in stage.delivery.unsettled()
    for number, (tick, key) in enumerate(((10, 1), (20, 2), (30, 3)), 1):
        stage.one.sent(tick, number)
        holding = stage.one.handed(tick, number, key)
        stage.one.answered(stage.one.settles(holding))
        stage.one.told(holding, Outcome.DURABLE)
    assert stage.delivery.settled()


def test_what_was_told_to_be_lost_has_to_come_again(stage: Stage) -> None:
    stage.one.sent(10, 1)
    holding = stage.one.handed(10, 1, 1)
    stage.one.answered(stage.one.settles(holding), 1)
    stage.one.told(holding, Outcome.LOST)
    assert "was told that it was lost" in stage.delivery.unsettled()


def test_who_says_goodbye_has_had_it_in_hand(stage: Stage) -> None:
    stage.one.sent(10, 1)
    stage.observe.received(NODE, stage.one.session, Detach(SID, 1))
    stage.other.sent(10, 2, 1, careful=True)


def test_a_gap_is_of_what_is_lost(stage: Stage) -> None:
    gap: Any = SimpleNamespace(start=0, end=10, reason="released early")
    stage.book.sent(NODE, stage.one.session, DeliverHeldGap(SID, 0, 1, False, 0, 0, 10, "released early"))
    with violates("J11"):
        stage.observe.held(stage.one.consumer, Holding(P, 10, 1, 1, redelivered=False, gap=gap))


def test_what_somebody_removes_and_dies_is_needed_as_long_as_nobody_was_told_that_it_is_gone(stage: Stage) -> None:
    stage.row.ended = True
    assert stage.delivery.is_needed(P, {NODE: None})

    stage.row.removed = True
    assert not stage.delivery.is_needed(P, {NODE: None})
    stage.other.consumer.attached, stage.other.consumer.error = False, None
    assert stage.delivery.is_needed(P, {NODE: None}), "its request may come after the removal"
