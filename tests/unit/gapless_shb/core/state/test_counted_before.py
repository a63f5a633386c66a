"""What readers found before the PFS knew of a subscription: never more than is due, and whole where it says so."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless_shb.core.state.counted_before import RUNS_MAX, CountedBefore


def counted(*ticks: int, upto: int = 1000) -> CountedBefore:
    """A reader found these in (0, upto]."""
    before = CountedBefore(0)
    before.note(0, upto, ticks, whole=True)
    return before


def test_few_events_are_counted_one_by_one() -> None:
    before = counted(10, 20, 30)

    assert before.due(0) == (3, 10)
    assert before.due(10) == (2, 20)
    assert before.covers(10, 1000)
    assert before.due(30) == (0, 0)
    assert before.covers(30, 1000)


def test_of_many_events_a_position_among_them_leaves_a_lower_bound() -> None:
    """The rest of the run around it counts as one, and the age is that of its last event."""
    before = counted(*range(1, 641))

    assert before.due(20) == (620, 21)
    assert before.covers(20, 1000)
    assert before.due(25) == (601, 40)
    assert not before.covers(25, 1000)
    assert before.due(40) == (600, 41)
    assert before.covers(40, 1000)


def test_what_is_read_once_more_counts_once() -> None:
    """The next consumer goes on from the position that is acknowledged, and finds the same."""
    before = counted(10, 20, 30, upto=35)
    before.note(10, 50, (20, 30, 40), whole=True)

    assert before.due(0) == (4, 10)
    assert before.covers(0, 50)
    assert not before.covers(0, 51)


def test_what_nobody_has_read_is_not_said_to_be_counted() -> None:
    """Neither below a consumer that began later, nor where the log has lost something."""
    ahead = CountedBefore(100)
    ahead.note(100, 200, (150,), whole=True)
    skipped = counted(10, upto=50)
    skipped.note(70, 90, (80,), whole=True)
    lost = counted(10, upto=50)
    lost.note(50, 90, (80,), whole=False)

    assert not ahead.covers(0, 200)
    assert skipped.due(0) == (2, 10)
    assert not skipped.covers(0, 90)
    assert skipped.covers(70, 90)
    assert lost.due(0) == (2, 10)
    assert not lost.covers(0, 90)


def test_a_consumer_that_goes_back_behind_all_of_it_counts_anew() -> None:
    before = CountedBefore(100)
    before.note(100, 200, (150,), whole=True)
    before.note(0, 200, (50, 150), whole=True)

    assert before.due(0) == (2, 50)
    assert before.covers(0, 200)


@given(
    parts=st.lists(st.lists(st.integers(1, 90), max_size=60, unique=True).map(sorted), max_size=12),
    done=st.integers(0, 1100),
)
def test_it_never_says_more_than_is_due(parts: list[list[int]], done: int) -> None:
    """Against all ticks in a list; and what it says to cover is exact."""
    before, ticks = CountedBefore(0), []
    for number, part in enumerate(parts):
        found = [100 * number + tick for tick in part]
        before.note(100 * number, 100 * number + 100, found, whole=True)
        ticks += found
    due = [tick for tick in ticks if tick > done]
    upto = 100 * len(parts)

    events, first = before.due(done)

    assert events <= len(due)
    assert (events == 0) == (not due)
    assert first in due or not events
    if before.covers(done, upto):
        assert (events, first) == (len(due), due[0] if due else 0)
    if len(ticks) <= RUNS_MAX:
        assert before.covers(min(done, upto), upto)
