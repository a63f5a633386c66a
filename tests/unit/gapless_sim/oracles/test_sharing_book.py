"""What the book of shared subscriptions notes of what is sent, taken, settled and left."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
from msgspec.msgpack import encode

from gapless.core.ports import Set
from gapless.core.wire.messages import Detach, Holds, Kind, Take, Taken
from gapless_sim.oracles.sharing_book import Sent
from gapless_sim.recording.expired_subscriptions import LAPSED
from unit.gapless_sim.oracles.model_fixture import NODE, P, Stand, violates
from unit.gapless_sim.oracles.test_sharing import SID, Stage

if TYPE_CHECKING:
    from gapless_sim.world.broker import SimBroker


@pytest.fixture
def stage() -> Stage:
    return Stage()


def noted(stage: Stage, number: int) -> Sent:
    return stage.book.stories[1].numbers[number]


def test_no_number_is_given_twice(stage: Stage) -> None:
    stage.one.sent(10, 1)
    with violates("J11"):
        stage.other.sent(20, 1)


def test_an_answer_to_take_is_about_all_that_it_named_but_what_is_lost(stage: Stage) -> None:
    """The numbers stand in the order of the ticks, and Taken repeats the one that stands first."""
    for tick, number in ((30, 1), (10, 2), (20, 3)):
        stage.one.sent(tick, number)
    stage.observe.received(NODE, stage.one.session, Take(SID, Holds(P, (10, 20), (2, 3))))
    stage.observe.received(NODE, stage.one.session, Take(SID, Holds(P, (30,), (1,))))

    stage.book.sent(NODE, stage.one.session, Taken(SID, 2, (3,)))

    assert [noted(stage, number).taken for number in (1, 2, 3)] == [False, True, False]
    assert [noted(stage, number).takes for number in (1, 2, 3)] == [1, 1, 1]
    stage.book.sent(NODE, stage.one.session, Taken(SID, 1))
    assert noted(stage, 1).taken


def test_a_verdict_is_noted_when_its_broker_receives_it_and_again_when_that_answers(stage: Stage) -> None:
    stage.one.sent(10, 1)
    settlement = stage.one.settles(stage.one.handed(10, 1, 1))
    events = stage.book.stories[1].at((P, 10))

    assert (noted(stage, 1).said, events.settled) == (Kind.ACKNOWLEDGE, False)
    assert (P, 10) not in stage.book.stories[1].open
    stage.one.answered(settlement)
    assert events.settled


def test_who_says_goodbye_leaves_what_it_has_said_nothing_of(stage: Stage) -> None:
    stage.one.sent(10, 1)
    stage.one.sent(20, 2)
    stage.one.settles(stage.one.handed(10, 1, 1))

    stage.observe.received(NODE, stage.one.session, Detach(SID))

    assert [noted(stage, number).left for number in (1, 2)] == [False, True]


def test_what_is_written_down_as_lapsed_is_owed_to_nobody(stage: Stage) -> None:
    """Also before somebody takes part in it again."""
    row = encode([SID, "c", "jobs"])
    another, broker = cast("SimBroker", Stand(name="another")), cast("SimBroker", Stand(name=NODE))
    stage.book.written(another, [Set(LAPSED, b"", row)])
    assert not stage.book.stories[1].lapsed

    stage.book.written(broker, [Set("another table", b"", row), Set(LAPSED, b"", row)])
    assert stage.book.stories[1].lapsed
