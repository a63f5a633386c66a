"""Ticks of leader epochs and offsets, voids between leader epochs, and where one goes on after a log was cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless_log.kafka.lineage import (
    EPOCHS_MAX,
    OFFSETS_MAX,
    Lineage,
    Place,
    TicksExhaustedError,
    epoch_of,
    offset_of,
    tick_at,
)
from gapless_log.kafka.messages import UNKNOWN

RESTARTED = Lineage([(0, 0), (2, 100), (5, 250)])
CUT = Lineage([(0, 0), (1, 600)])
"""Epoch 0 had 1,000 records, and of these 400 are lost."""


@given(st.integers(0, EPOCHS_MAX - 1), st.integers(0, OFFSETS_MAX - 1))
def test_a_tick_is_its_leader_epoch_and_its_offset(epoch: int, offset: int) -> None:
    tick = tick_at(epoch, offset)

    assert (epoch_of(tick), offset_of(tick)) == (epoch, offset)
    assert tick < 1 << 63


@pytest.mark.parametrize(("epoch", "offset"), [(EPOCHS_MAX, 0), (0, OFFSETS_MAX), (-1, 0), (0, -1)])
def test_what_is_too_large_for_a_tick_is_refused(epoch: int, offset: int) -> None:
    with pytest.raises(TicksExhaustedError):
        tick_at(epoch, offset)


def test_between_leader_epochs_there_are_voids() -> None:
    assert RESTARTED.voids == ((tick_at(0, 100), tick_at(2, 100)), (tick_at(2, 250), tick_at(5, 250)))
    assert Lineage([(3, 0)]).voids == ()


def test_a_leader_epoch_without_records_makes_one_void_with_its_neighbour() -> None:
    lineage = Lineage([(0, 0), (2, 100), (4, 100)])

    assert lineage.voids == ((tick_at(0, 100), tick_at(4, 100)),)
    assert lineage.position(100) == tick_at(0, 100)


def test_a_position_is_in_the_epoch_of_the_record_before() -> None:
    assert [RESTARTED.position(offset) for offset in (0, 100, 101, 250)] == [
        tick_at(0, 0),
        tick_at(0, 100),
        tick_at(2, 101),
        tick_at(2, 250),
    ]


def test_epochs_of_which_nothing_is_left_are_remembered_by_who_has_read_them() -> None:
    left, known = Lineage([(5, 250)]), Lineage([(0, 0), (2, 100)])

    assert known.told_anew(left, 250) == RESTARTED
    assert RESTARTED.told_anew(left, 300) == RESTARTED
    assert RESTARTED.told_anew(left, 300).position(250) == tick_at(2, 250)


@pytest.mark.parametrize("reached", [None, 200, 300])
def test_who_has_not_read_them_to_their_end_knows_nothing_of_them(reached: int | None) -> None:
    """Others may have been between, or the log may have been cut."""
    assert Lineage([(0, 0), (2, 100)]).told_anew(Lineage([(5, 250)]), reached) == Lineage([(5, 250)])


@pytest.mark.parametrize("reached", [None, 150, 250])
def test_an_epoch_of_which_the_beginning_is_gone_began_where_it_did(reached: int | None) -> None:
    """A leader tells it to begin where the log does. What is gone would be taken for a part of the epoch before."""
    assert RESTARTED.told_anew(Lineage([(2, 150), (5, 250)]), reached) == RESTARTED


def test_what_the_leader_tells_goes_before_what_was_known() -> None:
    assert RESTARTED.told_anew(Lineage([(2, 100), (6, 180)]), 250) == Lineage([(0, 0), (2, 100), (6, 180)])


def test_who_stands_in_what_was_cut_off_goes_on_at_the_cut() -> None:
    assert CUT.seek(tick_at(0, 599)) == Place(599, 0)
    assert CUT.seek(tick_at(0, 600)) == Place(600, 0)
    assert CUT.seek(tick_at(0, 1000)) == Place(600, 0)
    assert CUT.seek(tick_at(1, 1000)) == Place(1000, 1)


def test_who_stands_below_all_that_is_known_goes_on_at_its_beginning() -> None:
    lineage = Lineage([(3, 700), (4, 800)])

    assert lineage.seek(tick_at(1, 900)) == Place(700, UNKNOWN)
    assert lineage.seek(0) == Place(700, UNKNOWN)
    assert Lineage([(0, 0)]).seek(0) == Place(0, UNKNOWN)


def test_behind_a_void_and_not_elsewhere() -> None:
    lo, hi = RESTARTED.voids[0]

    assert [RESTARTED.behind(tick) for tick in (lo - 1, lo, lo + 7, hi)] == [lo - 1, hi, hi, hi]


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 100)), min_size=1, max_size=8), st.data())
def test_every_record_has_its_own_tick_that_rises_and_lies_in_no_void(
    steps: list[tuple[int, int]], data: st.DataObject
) -> None:
    begins, ticks, epoch, offset = list[tuple[int, int]](), list[int](), -1, 0
    for more, count in steps:
        epoch += more
        begins.append((epoch, offset))
        ticks += [tick_at(epoch, at + 1) for at in range(offset, offset + count)]
        offset += count
    lineage, place = Lineage(begins), data.draw(st.integers(0, len(ticks) - 1))

    assert ticks == sorted(set(ticks))
    assert not any(lo < tick <= hi for tick in ticks for lo, hi in lineage.voids)
    assert lineage.position(place + 1) == ticks[place]
    assert lineage.seek(ticks[place]) == Place(place + 1, epoch_of(ticks[place]))
