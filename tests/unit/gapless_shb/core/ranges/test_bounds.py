"""How far a budget goes, and how it is shared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.stream.columns import EventBatch
from gapless.core.stream.ticks import MILLISECOND
from gapless.core.wire import messages as m
from gapless_shb.core.pfs.blocks import Block, encode
from gapless_shb.core.ranges.bounds import Count, divided, shares
from unit.gapless_shb.core.harness import CACHED, PUBEND
from unit.gapless_shb.core.ranges.harness import RangeWorld, forgetful
from unit.gapless_shb.core.ranges.test_acknowledging import attached


def bound(world: RangeWorld, start: int, max_events: int | None = None, max_bytes: int | None = None) -> int:
    """The tick that is answered, while nothing goes wrong."""
    number = world.say(m.AskBound(world.number(), world.target, [m.Position(PUBEND, start)], max_events, max_bytes))
    for _ in range(8):
        world.read()
        world.answer_wants()
    answer = world.answers.pop(number)
    assert isinstance(answer, m.Ticks)
    return answer.positions[0].tick


@pytest.mark.parametrize("selector", ["", "w = 1"])
@pytest.mark.parametrize("most", [1, 3, 7])
def test_a_bound_holds_as_many_events_as_it_may(selector: str, most: int) -> None:
    world = attached(selector=selector)
    at = world.start
    counts = []
    while (end := bound(world, at, most)) > at:
        counts.append(len(world.matching(at, end)))
        at = end

    assert counts[:-1] == [most] * (len(counts) - 1)
    assert sum(counts) == len(world.matching(world.start, world.stable))
    assert counts[-1] <= most


def test_it_is_counted_from_the_middle_of_a_block_on() -> None:
    """And the blocks behind it are counted whole, without a look at where they begin."""
    world, lo = forgetful("w = 1")
    for _ in range(3):
        world.calm(300)
    matching = world.matching(lo, world.stable)
    assert len(matching) > 150

    for start in matching[::5]:
        behind = world.matching(start, world.stable)
        assert world.matching(start, bound(world, start, 90)) == behind[:90]


def test_what_is_lost_uses_nothing_up() -> None:
    """Or a lost range would be cut into as many batches as its events would have made, and be a gap in each."""
    world, lo = forgetful("w = 1")
    for _ in range(3):
        world.calm(300)
    matching = world.matching(lo, world.stable)
    world.retain = 1  # so this may be
    world.forget(matching[100])
    world.take(matching[90], matching[95])  # so the broker has heard of it

    end = bound(world, lo, 20)
    reading = world.take(lo, end)

    assert reading.ticks == matching[101:121]
    assert reading.gaps == [(lo, matching[100])]


def test_what_is_lost_and_still_in_memory_is_counted() -> None:
    """It will be handed out."""
    world = attached(CACHED)  # its broker keeps what it delivered
    matching = world.matching(world.start, world.stable)
    world.retain = 1
    world.forget(matching[4])
    world.stream.lost = world.lost

    end = bound(world, world.start, 3)

    assert world.take(world.start, end).ticks == matching[:3]


def test_a_bound_beyond_the_head_is_the_head() -> None:
    world = attached()

    assert bound(world, world.start, 1000) == world.stable
    assert bound(world, world.start, None, 1 << 30) == world.stable
    assert bound(world, world.stable, 1) == world.stable


def test_bytes_are_counted_with_their_rows() -> None:
    world = attached()
    one = len(world.log[0][2]) + 16

    assert len(world.matching(world.start, bound(world, world.start, None, 5 * one + 8))) == 5
    assert len(world.matching(world.start, bound(world, world.start, 3, 5 * one + 8))) == 3
    assert len(world.matching(world.start, bound(world, world.start, None, 1))) == 1, "one goes in any case"


def test_a_pubend_that_cannot_be_reached_is_taken_as_far_as_it_was_counted() -> None:
    """Its PHB may be gone for good: who plans a batch of several pubends must not wait for it for ever."""
    world = attached()
    start = [m.Position(PUBEND, world.start)]
    number = world.say(m.AskBound(world.number(), world.target, start, None, 1 << 20))
    world.pause(4999)
    world.wants.clear()
    assert number not in world.answers
    deadline = world.role.deadline()
    assert deadline is not None
    assert deadline <= world.now + 1_000_000
    world.pause(1)

    assert world.start <= world.answers[number].positions[0].tick <= world.stable


def test_it_is_counted_where_the_pfs_knows_nothing() -> None:
    world = RangeWorld(selector="").calm().calm(10)
    world.define(m.StartAt.EARLIEST)
    world.calm()

    assert len(world.matching(world.start, bound(world, world.start, 4))) == 4


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 1000)), st.integers(1, 2000))
def test_shares(wanted: dict[str, int], budget: int) -> None:
    parts = shares(wanted, budget)

    assert sum(parts.values()) == min(budget, sum(wanted.values()))
    assert all(0 <= parts[name] <= amount for name, amount in wanted.items())
    total = max(sum(wanted.values()), 1)
    assert all(abs(parts[name] - min(1, budget / total) * amount) < 1 + 1e-9 for name, amount in wanted.items())


def test_a_small_budget_goes_to_who_lacks_most() -> None:
    assert shares({"a": 10, "b": 30}, 1) == {"a": 0, "b": 1}
    assert shares({"b": 10, "a": 10}, 1) == {"a": 1, "b": 0}


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 7) | st.integers(1, (1 << 200) - 1)), max_size=20))
def test_a_count_knows_the_tick_of_each_event(parts: list[tuple[bool, int]]) -> None:
    """Whether it was told ticks or columns, and however many of a block's ticks are in them."""
    count = Count(None, None)
    told: list[int] = []
    for number, (whole, mask) in enumerate(parts):
        ticks = [1 + 1000 * number + at for at in range(200)]
        column = Block(ticks[-1], encode(ticks, {1: mask}, {}, MILLISECOND)).column(1)
        if whole:
            count.column(column)
        else:
            count.ticks(column.ticks())
        told += column.ticks()

    assert len(count) == len(told)
    assert [count.tick(number) for number in range(len(count))] == told


def counted(sizes: list[int], max_bytes: int) -> Count:
    """A count of events of these sizes."""
    count = Count(None, max_bytes)
    ticks = range(1, len(sizes) + 1)
    count.events(EventBatch(ticks, [b"x" * (size - 16) for size in sizes], [0] * len(sizes)))
    return count


def test_bytes_are_shared() -> None:
    counts = {"a": counted([100] * 30, 1000), "b": counted([100] * 10, 1000)}

    assert divided(counts, None, 1000) == {"a": 7, "b": 2}
    assert divided(counts, 4, 1000) == {"a": 3, "b": 1}


def test_whoever_has_the_budget_behind_it_gets_as_much_as_another_such() -> None:
    """However much of it came in one block."""
    assert divided({"a": counted([1] * 999, 10**6), "b": counted([1] * 100, 10**6)}, 100, None) == {"a": 50, "b": 50}


def test_an_event_larger_than_the_budget_goes_alone() -> None:
    assert divided({"a": counted([], 50), "b": counted([100], 50), "c": counted([90], 50)}, None, 50) == {
        "a": 0,
        "b": 1,
        "c": 0,
    }
