"""The events of a knowledge stream against a dict of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.stream.columns import EMPTY, EventBatch
from gapless.core.stream.events import encode_event
from gapless.core.stream.segments import EventSegments, KnowledgeConflict

TICKS = 20

ticks = st.integers(0, TICKS)
masks = st.integers(0, 2 << TICKS)
intervals = st.tuples(ticks, ticks)


def event(tick: int) -> bytes:
    return encode_event("t", {"tick": tick}, None, b"x" * tick)


def batch(*ticks: int) -> EventBatch:
    return EventBatch(ticks, [event(tick) for tick in ticks], ticks)


def masked(mask: int) -> EventBatch:
    return batch(*(tick for tick in range(1, TICKS + 1) if mask >> tick & 1))


def filled(masks: list[int]) -> tuple[EventSegments, list[int]]:
    """Segments that got these batches one after the other, and all their ticks."""
    held, present = EventSegments(), 0
    for mask in masks:
        held.insert(masked(mask & ~present))
        present |= mask & (2 << TICKS) - 2
    return held, [tick for tick in range(TICKS + 1) if present >> tick & 1]


@given(st.lists(masks, max_size=4), intervals)
def test_events_come_out_in_order_however_they_came_in(masks: list[int], asked: tuple[int, int]) -> None:
    held, present = filled(masks)
    lo, hi = asked
    expected = [tick for tick in present if lo < tick <= hi]
    taken = held.take(lo, hi)

    assert taken == batch(*expected)
    assert list(taken.body_lengths) == expected
    assert held.count(lo, hi) == len(expected)
    assert [tick in held for tick in range(TICKS + 1)] == [tick in present for tick in range(TICKS + 1)]
    assert len(held) == len(present)
    assert held.size == sum(len(event(tick)) for tick in present)


@given(st.lists(masks, max_size=4), st.lists(st.tuples(st.booleans(), intervals), max_size=4))
def test_what_is_removed_is_gone(masks: list[int], removed: list[tuple[bool, tuple[int, int]]]) -> None:
    held, present = filled(masks)
    for trims, (lo, hi) in removed:
        if trims:
            held.trim(hi)
        else:
            held.remove(lo, hi)
        present = [tick for tick in present if not (trims or lo < tick) or tick > hi]

        assert held.take(0, TICKS) == batch(*present)
        assert held.size == sum(len(event(tick)) for tick in present)


@given(st.lists(masks, max_size=4), masks)
def test_fresh_events_are_those_that_are_not_here(masks: list[int], mask: int) -> None:
    held, present = filled(masks)
    offered = masked(mask)

    assert held.fresh(offered) == batch(*(tick for tick in offered.ticks if tick not in present))
    assert held.take(0, TICKS) == batch(*present)


@given(st.lists(masks, min_size=1, max_size=4), masks, ticks)
def test_an_event_that_differs_is_a_conflict(masks: list[int], mask: int, tick: int) -> None:
    held, present = filled(masks)
    offered = masked(mask)
    other = [event(99) if at == tick else event(at) for at in offered.ticks]
    changed = EventBatch(offered.ticks, other, offered.body_lengths)

    if tick in present and tick in offered.ticks:
        with pytest.raises(KnowledgeConflict, match=f"two different events at tick {tick}$"):
            held.fresh(changed)
    else:
        assert len(held.fresh(changed)) == len(set(offered.ticks) - set(present))


def test_a_batch_that_is_taken_whole_is_the_one_that_came() -> None:
    held, first, second = EventSegments(), batch(1, 3), batch(5, 9)
    held.append(first)
    held.append(second)

    assert held.take(0, 4) is first
    assert held.take(3, 9) is second
    assert held.fresh(batch(6, 7)).ticks == (6, 7)


def test_what_is_left_out_is_the_very_batch_that_was_taken_before() -> None:
    held, first, second = EventSegments(), batch(1, 3), batch(5, 9)
    held.append(first)
    held.append(second)

    assert held.take(0, 9, {5: second}) is first
    assert list(held.take(0, 7, {5: second}).ticks) == [1, 3, 5], "a part of it is another one"
    assert not held.take(0, 9, {1: first, 5: second})


def test_decoded_headers_go_along_when_a_batch_is_cut() -> None:
    """A batch is decoded once, whoever asks for which part of it."""
    held, whole = EventSegments(), batch(1, 3, 5)
    headers = whole.headers
    held.append(whole)
    held.insert(batch(4))

    assert held.take(0, 3).headers == headers[:2]
    assert held.take(0, 3).headers[0] is headers[0]


def test_the_first_event_of_an_interval() -> None:
    held = EventSegments()
    held.insert(batch(3, 5, 9))
    held.insert(batch(12))
    for lo in range(14):
        for hi in range(lo, 14):
            inside = [tick for tick in (3, 5, 9, 12) if lo < tick <= hi]
            assert held.first(lo, hi) == (inside[0] if inside else None)


def test_there_is_nothing_at_first() -> None:
    held = EventSegments()

    assert held.take(0, TICKS) is EMPTY
    assert held.fresh(EMPTY) is EMPTY
    assert (len(held), held.size, held.count(0, TICKS)) == (0, 0, 0)
