"""I1, I2 and I3, each with something that breaks it and something that nearly does."""

from __future__ import annotations

import pytest

from gapless.core.network.facts import Enrolled
from gapless.core.stream.ticks import tick_at
from gapless_sim.clocks import WALL_BEGIN
from gapless_sim.options import SECOND
from gapless_sim.oracles.delivery import I1Match, I2Order, I3Gapless
from gapless_sim.oracles.gaps import I5GapLegal
from unit.gapless_sim.oracles.hands import SHB, TOKEN, Hands, violates

AT = tick_at(WALL_BEGIN)

# I1


def test_i1_what_is_handed_out_must_be_logged_there() -> None:
    hands = Hands(I1Match)
    hands.log((10, 1), (20, 2))
    reader = hands.attach(hands.row(), p=5)

    hands.hand(reader, (10, 1), (20, 2))
    with violates("I1"):
        hands.hand(reader, (30, 3))


def test_i1_and_be_the_event_that_was_logged() -> None:
    hands = Hands(I1Match)
    hands.log((10, 1), (20, 2))
    reader = hands.attach(hands.row(), p=5)

    with violates("I1"):
        hands.hand(reader, (10, 2))


def test_i1_and_be_what_the_application_wants() -> None:
    hands = Hands(I1Match)
    hands.letter(1, k=1)
    hands.letter(2, k=2)
    hands.log((10, 1), (20, 2))
    reader = hands.attach(hands.row(k=1), p=5)

    hands.hand(reader, (10, 1))
    with violates("I1"):
        hands.hand(reader, (20, 2))


# I2


def test_i2_ticks_rise() -> None:
    hands = Hands(I2Order)
    hands.log((10, 1), (20, 2))
    reader = hands.attach(hands.row(), p=5)

    hands.hand(reader, (10, 1))
    hands.silence(reader, 10, 15)
    hands.hand(reader, (20, 2))
    with violates("I2"):
        hands.hand(reader, (20, 2))


def test_i2_the_first_one_lies_above_the_token() -> None:
    hands = Hands(I2Order)
    hands.log((10, 1), (20, 2))
    reader = hands.attach(hands.row(), p=10)

    with violates("I2"):
        hands.hand(reader, (10, 1))


def test_i2_a_silence_does_not_go_back() -> None:
    hands = Hands(I2Order)
    hands.log((10, 1))
    reader = hands.attach(hands.row(), p=5)

    hands.silence(reader, 5, 9)
    with violates("I2"):
        hands.silence(reader, 8, 12)


# I3


def test_i3_nothing_is_left_out_of_a_delivery() -> None:
    hands = Hands(I3Gapless)
    hands.log((10, 1), (20, 2), (30, 3))
    reader = hands.attach(hands.row(), p=5)

    hands.hand(reader, (10, 1))
    with violates("I3"):
        hands.hand(reader, (30, 3))


def test_i3_what_does_not_match_may_be_left_out() -> None:
    hands = Hands(I3Gapless)
    hands.letter(2, k=7)
    hands.log((10, 1), (20, 2), (30, 3))
    reader = hands.attach(hands.row(k=1), p=5)

    hands.hand(reader, (10, 1))
    hands.hand(reader, (30, 3))


def test_i3_a_silence_hides_nothing() -> None:
    hands = Hands(I3Gapless)
    hands.log((10, 1), (20, 2))
    reader = hands.attach(hands.row(), p=5)

    hands.silence(reader, 5, 9)
    with violates("I3"):
        hands.silence(reader, 9, 10)


def test_i3_nor_does_a_token_that_moved_on_by_itself() -> None:
    hands = Hands(I3Gapless)
    hands.log((10, 1), (20, 2))
    reader = hands.attach(hands.row(), p=5)
    hands.hand(reader, (10, 1))

    hands.commit(reader, p=19)
    with violates("I3"):
        hands.commit(reader, p=20)


def test_i3_a_gap_may_hide_what_is_in_it_and_nothing_before() -> None:
    hands = Hands(I3Gapless)
    hands.log((10, 1), (20, 2), (30, 3))
    reader, other = hands.attach(hands.row(), p=5), hands.attach(hands.row(), p=5)

    hands.gap(reader, 9, 20)
    hands.hand(reader, (30, 3))
    with violates("I3"):
        hands.gap(other, 10, 20)


def test_i3_a_session_that_begins_beyond_the_token_hides_what_lies_between() -> None:
    hands = Hands(I3Gapless)
    hands.log((10, 1), (20, 2))
    row = hands.row()
    hands.attach(row, p=5)
    row.token = hands.token(p=5)

    with violates("I3"):
        hands.attach(row, p=12)


def test_i3_an_event_that_comes_to_light_too_late_was_hidden() -> None:
    hands = Hands(I3Gapless)
    reader = hands.attach(hands.row(), p=5)
    hands.say(0, 9)
    hands.silence(reader, 5, 9)

    hands.say(9, 20, (20, 1))
    with violates("I3"):
        hands.say(7, 9, (8, 2))


def released_early() -> Hands:
    """Everything up to AT is gone, and old enough for that; a letter that nobody was told of may have been there."""
    hands = Hands(I5GapLegal, I3Gapless, max_retain_seconds=0.5)
    hands.opens()
    hands.letter(1)
    hands.log((AT + 10, 2))
    hands.world.now = SECOND
    hands.chop(AT)
    return hands


def test_i3_an_event_may_come_to_light_in_a_gap_that_was_told() -> None:
    hands = released_early()
    row = hands.row()
    hands.gap(hands.attach(row, p=AT - 5), AT - 5, AT)
    hands.attach(row, p=AT)

    hands.receipt(1, AT - 2)


def test_i3_but_not_in_what_another_application_was_told() -> None:
    hands = released_early()
    hands.gap(hands.attach(hands.row(), p=AT - 5), AT - 5, AT)
    hands.silence(hands.attach(hands.row(), p=AT - 5), AT - 5, AT)

    with violates("I3"):
        hands.receipt(1, AT - 2)


def test_i3_nor_in_a_silence_where_its_application_was_told_of_a_gap_before_it_went_back() -> None:
    hands = released_early()
    row = hands.row()
    hands.gap(hands.attach(row, p=AT - 5), AT - 5, AT)
    hands.silence(hands.attach(row, p=AT - 5), AT - 5, AT)

    with violates("I3"):
        hands.receipt(1, AT - 2)


def test_i3_nor_where_a_gap_is_drawn_out_beyond_what_is_lost() -> None:
    hands = released_early()
    hands.gap(hands.attach(hands.row(), p=AT - 5), AT - 5, AT + 5)

    with violates("I3"):
        hands.receipt(1, AT + 1)


@pytest.mark.parametrize("counted", [True, False])
def test_i3_nor_after_its_broker_was_counted_where_nothing_is_released_early(*, counted: bool) -> None:
    hands = Hands(I5GapLegal, I3Gapless)
    hands.opens(members=[(SHB, 15 + counted)])
    hands.letter(1)
    hands.chop(20)
    hands.gap(hands.attach(hands.row(), p=5), 5, 20)

    if counted:
        hands.receipt(1, 16)
        return
    with violates("I3"):
        hands.receipt(1, 16)


@pytest.mark.parametrize("first", [True, False])
def test_i3_an_older_token_excuses_only_its_first_gap(*, first: bool) -> None:
    """The others may tell of no more than was lost when it began."""
    hands = Hands(I5GapLegal, I3Gapless)
    hands.opens()
    hands.letter(2)
    hands.chop(20)
    if not first:
        hands.log((10, 1))
    reader = hands.attach(hands.row(start=TOKEN, start_token=hands.token(p=5)), p=5)
    if not first:
        hands.hand(reader, (10, 1))
    hands.chop(30)
    hands.gap(reader, 12, 30)

    if first:
        hands.receipt(2, 25)
        return
    hands.receipt(3, 20)
    with violates("I3"):
        hands.receipt(2, 25)


def test_i3_of_a_pubend_found_later_all_is_owed_that_was_published_since_it_counts_the_broker() -> None:
    hands = Hands(I3Gapless)
    hands.opens(members=[])
    hands.log((10, 1))
    reader = hands.attach(hands.row())
    hands.world.now += 1
    hands.log((20, 2))
    hands.model.informed("node1", 0, Enrolled("p@1", "node1@disk", 25))
    hands.world.now += 1
    hands.log((30, 3), (40, 4))

    with violates("I3"):
        hands.hand(reader, (40, 4))


def test_i3_and_what_came_before_that_is_not() -> None:
    hands = Hands(I3Gapless)
    hands.opens(members=[])
    hands.log((10, 1))
    reader = hands.attach(hands.row())
    hands.world.now += 1
    hands.log((20, 2))
    hands.model.informed("node1", 0, Enrolled("p@1", "node1@disk", 25))
    hands.world.now += 1
    hands.log((30, 3), (40, 4))

    hands.hand(reader, (30, 3))
    hands.hand(reader, (40, 4))
