"""How the sizes of streams are known without reading their records."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless_storage._rocksdb.streams import NOTE_BYTES, SizeNotes, StreamPosition


def test_the_end_is_beyond_the_last_note_where_it_is_known() -> None:
    notes = SizeNotes([StreamPosition(0, 0), StreamPosition(100, 10_000)], StreamPosition(150, 11_000))

    assert (notes.last, notes.total) == (150, 11_000)
    assert [notes.total_upto(index) for index in (50, 100, 125, 150, 999)] == [5_000, 10_000, 10_500, 11_000, 11_000]


def test_between_two_notes_lies_a_straight_line() -> None:
    notes = SizeNotes([StreamPosition(0, 0), StreamPosition(100, 10_000), StreamPosition(200, 40_000)])

    assert [notes.total_upto(index) for index in (0, 50, 100, 150, 200, 999)] == [
        0,
        5_000,
        10_000,
        25_000,
        40_000,
        40_000,
    ]


def test_a_note_is_due_now_and_then() -> None:
    notes = SizeNotes([StreamPosition(0, 0)])

    due = [index for index in range(1, 101) if notes.add(index, NOTE_BYTES // 10)]

    assert 8 <= len(due) <= 10
    assert notes.add(101, NOTE_BYTES) is True


@given(
    st.lists(st.tuples(st.integers(1, 1000), st.integers(0, NOTE_BYTES)), min_size=1, max_size=50),
    st.lists(st.integers(0, 100), max_size=5),
)
def test_totals_stay_near_the_truth(records: list[tuple[int, int]], percents: list[int]) -> None:
    """Off by no more than what lies between two notes, forgotten ones or not; exact at the end."""
    notes = SizeNotes([StreamPosition(0, 0)])
    totals = {0: 0}
    index = total = 0
    for gap, size in records:
        index += gap
        notes.add(index, size)
        total += size + 12
        totals[index] = total

    assert notes.total_upto(index) == notes.total == total
    for percent in sorted(percents):
        asked = index * percent // 100
        notes.forget(asked)
        truth = max(total for at, total in totals.items() if at <= asked)
        assert abs(notes.total_upto(asked) - truth) <= 2 * NOTE_BYTES + 12
