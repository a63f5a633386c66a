"""I5: who may be told of a gap."""

from __future__ import annotations

from gapless.core.stream.ticks import tick_at
from gapless_sim.oracles.gaps import BELOW_OWN_ACKNOWLEDGEMENT, I5GapLegal
from gapless_sim.world.clocks import WALL_BEGIN
from gapless_sim.world.options import SECOND
from unit.gapless_sim.oracles.model_fixture import TOKEN, ModelFixture, violates

AT = tick_at(WALL_BEGIN)


def logged(**options: float) -> ModelFixture:
    """Two publications, of which the first is gone; the clock stands a second later."""
    fixture = ModelFixture(I5GapLegal, **options)
    fixture.opens()
    fixture.log((AT, 1), (AT + 10, 2))
    fixture.world.now = SECOND
    fixture.say(AT + 10, tick_at(WALL_BEGIN + 1000))
    return fixture


def test_a_gap_does_not_reach_beyond_what_is_lost() -> None:
    """But behind a place of events, where nothing can be logged, it may."""
    fixture = logged(max_retain_seconds=0.5)
    reader = fixture.attach(fixture.row(), p=AT - 5)
    fixture.chop(AT - 1)

    with violates("I5"):
        fixture.gap(reader, AT - 5, AT)


def test_who_comes_back_behind_his_own_acknowledgement_may_meet_one_and_is_counted() -> None:
    fixture = logged()
    row = fixture.row()
    reader = fixture.attach(row, p=AT - 5)
    fixture.acknowledge(reader, p=AT)
    fixture.chop(AT + 10)

    again = fixture.attach(row, p=AT - 5)
    fixture.gap(again, AT - 5, AT)
    assert fixture.world.hits[BELOW_OWN_ACKNOWLEDGEMENT] == 1
    fixture.gap(again, AT, AT + 1)  # at a place of events it is told up to the tick behind
    with violates("I5"):
        fixture.gap(again, AT + 1, AT + 2)


def test_a_token_of_what_was_lost_begins_with_a_gap() -> None:
    fixture = logged()
    fixture.chop(AT)
    reader = fixture.attach(fixture.row(start=TOKEN, start_token=fixture.token(p=AT - 5)), p=AT - 5)
    fixture.chop(AT + 10)

    fixture.gap(reader, AT - 5, AT)
    fixture.gap(reader, AT, AT + 5)
    with violates("I5"):
        fixture.gap(reader, AT + 7, AT + 10)


def test_so_does_a_token_that_makes_anew_what_a_lost_disk_had() -> None:
    """Found by the simulator (local 3999): its row said `latest`, and the token was of another one."""
    fixture = logged()
    fixture.chop(AT)
    row = fixture.row()
    row.token = fixture.token(p=AT - 5)
    reader = fixture.attach(row, p=AT - 5)

    fixture.gap(reader, AT - 5, AT)
    assert fixture.world.hits["oracle.gap before the start"] == 1


def test_the_earliest_does_not() -> None:
    fixture = logged()
    fixture.chop(AT)
    reader = fixture.attach(fixture.row(), p=AT - 5)

    with violates("I5"):
        fixture.gap(reader, AT - 5, AT)


def test_a_retired_broker_tells_of_what_it_missed() -> None:
    fixture = logged()
    reader = fixture.attach(fixture.row(), p=AT - 5)
    fixture.chop(AT)
    fixture.observe.retired("node1@other")

    with violates("I5"):
        fixture.gap(reader, AT - 5, AT - 1)
    fixture.observe.retired("node1@disk")
    fixture.gap(reader, AT - 1, AT)


def test_what_cannot_be_read_is_a_gap_once_an_operator_has_given_it_up_and_never_before() -> None:
    fixture = logged()
    reader = fixture.attach(fixture.row(), p=AT - 5)
    fixture.spoil(AT - 5, AT, 1)

    with violates("I5"):
        fixture.gap(reader, AT - 5, AT, reason="damaged")
    fixture.repair(AT - 5, AT)
    fixture.gap(reader, AT - 5, AT, reason="damaged")

    assert fixture.world.hits["oracle.gap of what an operator gave up"] == 1


def test_a_gap_of_what_was_given_up_has_no_other_event_that_matches() -> None:
    fixture = logged()
    reader = fixture.attach(fixture.row(k=1), p=AT - 5)
    fixture.spoil(AT - 5, AT, 1)
    fixture.repair(AT - 5, AT)

    with violates("I5"):
        fixture.gap(reader, AT - 5, AT + 10, reason="damaged")
