"""The byte index against a list of everything: exact while small, and never far off when large."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless_phb.core.own_log.byte_index import POINTS_MAX, POINTS_SAVED_MAX, ByteIndex

Sizes = st.lists(st.integers(1, 500), max_size=60)


def index_of(sizes: list[int]) -> ByteIndex:
    index = ByteIndex()
    for number, size in enumerate(sizes, start=1):
        index.add(10 * number, size)
    return index


@given(sizes=Sizes, tick=st.integers(0, 700), least=st.integers(0, 3000))
def test_a_small_index_is_exact(sizes: list[int], tick: int, least: int) -> None:
    index = index_of(sizes)
    records = list(zip(range(10, 10 * len(sizes) + 10, 10), sizes, strict=True))

    assert index.total == index.size == sum(sizes)
    assert index.above(tick) == sum(size for at, size in records if at > tick)
    assert index.next(tick) == min((at for at, _ in records if at > tick), default=None)
    ends = [0, *(at for at, _ in records)]
    enough = [end for end in ends if sum(size for at, size in records if at > end) > least]
    assert index.covered(least) == max(enough, default=0)


@given(sizes=Sizes, chop=st.integers(0, 700), more=Sizes)
def test_a_chop_takes_what_ends_at_or_below_it(sizes: list[int], chop: int, more: list[int]) -> None:
    index = index_of(sizes)
    left = sum(size for number, size in enumerate(sizes, start=1) if 10 * number > chop)

    index.chop(chop)

    assert index.size == left
    assert index.total == sum(sizes)
    for number, size in enumerate(more):
        index.add(1000 + number, size)
    assert index.size == left + sum(more)


def test_a_large_index_stays_small_and_nearly_right() -> None:
    index = index_of([7] * 100_000)

    assert len(index) <= POINTS_MAX
    assert index.total == 700_000
    for tick in range(0, 1_000_000, 9973):
        exact = 7 * (100_000 - tick // 10)
        assert exact <= index.above(tick) <= exact + 700_000 // (POINTS_MAX // 8)


def test_a_log_that_is_chopped_all_the_time_stays_finely_known() -> None:
    index = ByteIndex()
    for number in range(1, 50_001):
        index.add(10 * number, 100)
        if number % 100 == 0:
            index.chop(10 * (number - 1000))

    assert len(index) <= POINTS_MAX
    assert index.above(10 * 49_900) == 10_000


def test_a_sample_is_an_index_again() -> None:
    index = index_of([7] * 5000)
    index.chop(10_000)

    sample = index.sample(upto=40_000)
    again = ByteIndex(sample)

    assert len(sample) <= POINTS_SAVED_MAX
    assert sample[-1] == (40_000, 28_000)
    assert again.total == 28_000
    assert again.size == 21_000
    assert again.above(20_000) - 14_000 in range(7 * 100)


def test_a_sample_of_nothing_is_nothing() -> None:
    assert ByteIndex().sample(upto=5) == [(5, 0)]
