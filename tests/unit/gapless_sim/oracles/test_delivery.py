"""I3, and I2 as consumers see it: where excuses end, and what comes late."""

from __future__ import annotations

import pytest

from gapless.core.network.facts import Enrolled
from gapless.core.stream.ticks import tick_at
from gapless_sim.oracles.delivery import I3Gapless
from gapless_sim.oracles.gaps import I5GapLegal
from gapless_sim.world.clocks import WALL_BEGIN
from gapless_sim.world.options import SECOND
from unit.gapless_sim.oracles.model_fixture import SHB, TOKEN, ModelFixture, violates

AT = tick_at(WALL_BEGIN)

# I1


# I2


# I3


def test_i3_a_gap_may_hide_what_is_in_it_and_nothing_before() -> None:
    fixture = ModelFixture(I3Gapless)
    fixture.log((10, 1), (20, 2), (30, 3))
    reader, other = fixture.attach(fixture.row(), p=5), fixture.attach(fixture.row(), p=5)

    fixture.gap(reader, 9, 20)
    fixture.hand_out(reader, (30, 3))
    with violates("I3"):
        fixture.gap(other, 10, 20)


def released_early() -> ModelFixture:
    """Everything up to AT is gone, and old enough for that; a publication that nobody heard of may have been there."""
    fixture = ModelFixture(I5GapLegal, I3Gapless, max_retain_seconds=0.5)
    fixture.opens()
    fixture.publication(1)
    fixture.log((AT + 10, 2))
    fixture.world.now = SECOND
    fixture.chop(AT)
    return fixture


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
