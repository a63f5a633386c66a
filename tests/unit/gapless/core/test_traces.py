"""Which events are chosen: as many as was said, the same wherever somebody looks, and at no steady pace."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless.core.stream.ticks import FOREVER, MILLISECOND
from gapless.core.traces import EVENTS_MAX, Sampler

GRAIN = 7
SHARES = st.sampled_from([1.0, 0.75, 0.5, 0.3, 0.1, 0.013, 0.001])
TICKS = st.integers(0, 2000 * GRAIN)


def chosen_units(share: float, first: int, count: int) -> set[int]:
    """The chosen ones of so many units, each looked at by itself."""
    return {unit for unit in range(first, first + count) if Sampler(share, GRAIN).chooses(unit * GRAIN, unit * GRAIN)}


@given(SHARES, st.integers(0, 1 << 40))
def test_as_many_are_chosen_as_was_said(share: float, first: int) -> None:
    assert abs(len(chosen_units(share, first, 2000)) - share * 2000) <= 2


@given(SHARES, st.lists(st.tuples(TICKS, st.integers(0, 90)), max_size=50))
def test_what_is_remembered_of_the_last_look_changes_nothing(share: float, spans: list[tuple[int, int]]) -> None:
    sampler = Sampler(share, GRAIN)
    for first, length in spans:
        units = range(first // GRAIN, (first + length) // GRAIN + 1)
        alone = [Sampler(share, GRAIN).chooses(unit * GRAIN, unit * GRAIN) for unit in units]
        assert sampler.chooses(first, first + length) is any(alone)


@given(SHARES, st.lists(TICKS, unique=True, max_size=300).map(sorted))
def test_the_places_are_those_of_events_in_chosen_units(share: float, ticks: list[int]) -> None:
    one_by_one = [place for place, tick in enumerate(ticks) if Sampler(share, GRAIN).chooses(tick, tick)]

    assert Sampler(share, GRAIN).places(ticks) == one_by_one[:EVENTS_MAX]


def test_without_a_share_nothing_is_chosen_and_nothing_computed() -> None:
    sampler = Sampler(0.0, MILLISECOND)

    assert not sampler.chooses(0, FOREVER - 1)
    assert sampler.places([1, 2, 3]) == []


def test_who_publishes_at_a_steady_pace_is_neither_always_chosen_nor_never() -> None:
    sampler = Sampler(0.01, MILLISECOND)
    each_second = [second * 1000 * MILLISECOND for second in range(10_000)]

    assert 50 < sum(sampler.chooses(tick, tick) for tick in each_second) < 150
