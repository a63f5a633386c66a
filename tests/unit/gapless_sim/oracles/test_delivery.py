"""I1, I2 and I3, each with something that breaks it and something that nearly does."""

from __future__ import annotations

import pytest

from gapless.core.network.facts import Enrolled
from gapless.core.stream.ticks import tick_at
from gapless_sim.oracles.delivery import I1Match, I2Order, I3Gapless
from gapless_sim.oracles.gaps import I5GapLegal
from gapless_sim.world.clocks import WALL_BEGIN
from gapless_sim.world.options import SECOND
from unit.gapless_sim.oracles.model_fixture import SHB, TOKEN, ModelFixture, violates

AT = tick_at(WALL_BEGIN)

# I1


def test_i1_what_is_handed_out_must_be_logged_there() -> None:
    fixture = ModelFixture(I1Match)
    fixture.log((10, 1), (20, 2))
    reader = fixture.attach(fixture.row(), p=5)

    fixture.hand_out(reader, (10, 1), (20, 2))
    with violates("I1"):
        fixture.hand_out(reader, (30, 3))


def test_i1_and_be_the_event_that_was_logged() -> None:
    fixture = ModelFixture(I1Match)
    fixture.log((10, 1), (20, 2))
    reader = fixture.attach(fixture.row(), p=5)

    with violates("I1"):
        fixture.hand_out(reader, (10, 2))


def test_i1_and_be_what_the_application_wants() -> None:
    fixture = ModelFixture(I1Match)
    fixture.publication(1, k=1)
    fixture.publication(2, k=2)
    fixture.log((10, 1), (20, 2))
    reader = fixture.attach(fixture.row(k=1), p=5)

    fixture.hand_out(reader, (10, 1))
    with violates("I1"):
        fixture.hand_out(reader, (20, 2))


# I2


def test_i2_ticks_rise() -> None:
    fixture = ModelFixture(I2Order)
    fixture.log((10, 1), (20, 2))
    reader = fixture.attach(fixture.row(), p=5)

    fixture.hand_out(reader, (10, 1))
    fixture.silence(reader, 10, 15)
    fixture.hand_out(reader, (20, 2))
    with violates("I2"):
        fixture.hand_out(reader, (20, 2))


def test_i2_the_first_one_lies_above_the_token() -> None:
    fixture = ModelFixture(I2Order)
    fixture.log((10, 1), (20, 2))
    reader = fixture.attach(fixture.row(), p=10)

    with violates("I2"):
        fixture.hand_out(reader, (10, 1))


def test_i2_a_silence_does_not_go_back() -> None:
    fixture = ModelFixture(I2Order)
    fixture.log((10, 1))
    reader = fixture.attach(fixture.row(), p=5)

    fixture.silence(reader, 5, 9)
    with violates("I2"):
        fixture.silence(reader, 8, 12)


# I3


def test_i3_nothing_is_left_out_of_a_delivery() -> None:
    fixture = ModelFixture(I3Gapless)
    fixture.log((10, 1), (20, 2), (30, 3))
    reader = fixture.attach(fixture.row(), p=5)

    fixture.hand_out(reader, (10, 1))
    with violates("I3"):
        fixture.hand_out(reader, (30, 3))


def test_i3_what_does_not_match_may_be_left_out() -> None:
    fixture = ModelFixture(I3Gapless)
    fixture.publication(2, k=7)
    fixture.log((10, 1), (20, 2), (30, 3))
    reader = fixture.attach(fixture.row(k=1), p=5)

    fixture.hand_out(reader, (10, 1))
    fixture.hand_out(reader, (30, 3))


def test_i3_a_silence_hides_nothing() -> None:
    fixture = ModelFixture(I3Gapless)
    fixture.log((10, 1), (20, 2))
    reader = fixture.attach(fixture.row(), p=5)

    fixture.silence(reader, 5, 9)
    with violates("I3"):
        fixture.silence(reader, 9, 10)


def test_i3_nor_does_a_token_that_moved_on_by_itself() -> None:
    fixture = ModelFixture(I3Gapless)
    fixture.log((10, 1), (20, 2))
    reader = fixture.attach(fixture.row(), p=5)
    fixture.hand_out(reader, (10, 1))

    fixture.commit(reader, p=19)
    with violates("I3"):
        fixture.commit(reader, p=20)


def test_i3_a_gap_may_hide_what_is_in_it_and_nothing_before() -> None:
    fixture = ModelFixture(I3Gapless)
    fixture.log((10, 1), (20, 2), (30, 3))
    reader, other = fixture.attach(fixture.row(), p=5), fixture.attach(fixture.row(), p=5)

    fixture.gap(reader, 9, 20)
    fixture.hand_out(reader, (30, 3))
    with violates("I3"):
        fixture.gap(other, 10, 20)


def test_i3_a_session_that_begins_beyond_the_token_hides_what_lies_between() -> None:
    fixture = ModelFixture(I3Gapless)
    fixture.log((10, 1), (20, 2))
    row = fixture.row()
    fixture.attach(row, p=5)
    row.token = fixture.token(p=5)

    with violates("I3"):
        fixture.attach(row, p=12)


def test_i3_an_event_that_comes_to_light_too_late_was_hidden() -> None:
    fixture = ModelFixture(I3Gapless)
    reader = fixture.attach(fixture.row(), p=5)
    fixture.say(0, 9)
    fixture.silence(reader, 5, 9)

    fixture.say(9, 20, (20, 1))
    with violates("I3"):
        fixture.say(7, 9, (8, 2))


def released_early() -> ModelFixture:
    """Everything up to AT is gone, and old enough for that; a publication that nobody heard of may have been there."""
    fixture = ModelFixture(I5GapLegal, I3Gapless, max_retain_seconds=0.5)
    fixture.opens()
    fixture.publication(1)
    fixture.log((AT + 10, 2))
    fixture.world.now = SECOND
    fixture.chop(AT)
    return fixture


def test_i3_an_event_may_come_to_light_in_a_gap_that_was_told() -> None:
    fixture = released_early()
    row = fixture.row()
    fixture.gap(fixture.attach(row, p=AT - 5), AT - 5, AT)
    fixture.attach(row, p=AT)

    fixture.receipt(1, AT - 2)


def test_i3_but_not_in_what_another_application_was_told() -> None:
    fixture = released_early()
    fixture.gap(fixture.attach(fixture.row(), p=AT - 5), AT - 5, AT)
    fixture.silence(fixture.attach(fixture.row(), p=AT - 5), AT - 5, AT)

    with violates("I3"):
        fixture.receipt(1, AT - 2)


def test_i3_nor_in_a_silence_where_its_application_was_told_of_a_gap_before_it_went_back() -> None:
    fixture = released_early()
    row = fixture.row()
    fixture.gap(fixture.attach(row, p=AT - 5), AT - 5, AT)
    fixture.silence(fixture.attach(row, p=AT - 5), AT - 5, AT)

    with violates("I3"):
        fixture.receipt(1, AT - 2)


def test_i3_nor_where_a_gap_is_drawn_out_beyond_what_is_lost() -> None:
    fixture = released_early()
    fixture.gap(fixture.attach(fixture.row(), p=AT - 5), AT - 5, AT + 5)

    with violates("I3"):
        fixture.receipt(1, AT + 1)


@pytest.mark.parametrize("counted", [True, False])
def test_i3_nor_after_its_broker_was_counted_where_nothing_is_released_early(*, counted: bool) -> None:
    fixture = ModelFixture(I5GapLegal, I3Gapless)
    fixture.opens(members=[(SHB, 15 + counted)])
    fixture.publication(1)
    fixture.chop(20)
    fixture.gap(fixture.attach(fixture.row(), p=5), 5, 20)

    if counted:
        fixture.receipt(1, 16)
        return
    with violates("I3"):
        fixture.receipt(1, 16)


@pytest.mark.parametrize("first", [True, False])
def test_i3_an_older_token_excuses_only_its_first_gap(*, first: bool) -> None:
    """The others may tell of no more than was lost when it began."""
    fixture = ModelFixture(I5GapLegal, I3Gapless)
    fixture.opens()
    fixture.publication(2)
    fixture.chop(20)
    if not first:
        fixture.log((10, 1))
    reader = fixture.attach(fixture.row(start=TOKEN, start_token=fixture.token(p=5)), p=5)
    if not first:
        fixture.hand_out(reader, (10, 1))
    fixture.chop(30)
    fixture.gap(reader, 12, 30)

    if first:
        fixture.receipt(2, 25)
        return
    fixture.receipt(3, 20)
    with violates("I3"):
        fixture.receipt(2, 25)


def test_i3_of_a_pubend_found_later_all_is_owed_that_was_published_since_it_counts_the_broker() -> None:
    fixture = ModelFixture(I3Gapless)
    fixture.opens(members=[])
    fixture.log((10, 1))
    reader = fixture.attach(fixture.row())
    fixture.world.now += 1
    fixture.log((20, 2))
    fixture.model.informed("node1", 0, Enrolled("p@1", "node1@disk", 25))
    fixture.world.now += 1
    fixture.log((30, 3), (40, 4))

    with violates("I3"):
        fixture.hand_out(reader, (40, 4))


def test_i3_and_what_came_before_that_is_not() -> None:
    fixture = ModelFixture(I3Gapless)
    fixture.opens(members=[])
    fixture.log((10, 1))
    reader = fixture.attach(fixture.row())
    fixture.world.now += 1
    fixture.log((20, 2))
    fixture.model.informed("node1", 0, Enrolled("p@1", "node1@disk", 25))
    fixture.world.now += 1
    fixture.log((30, 3), (40, 4))

    fixture.hand_out(reader, (30, 3))
    fixture.hand_out(reader, (40, 4))
