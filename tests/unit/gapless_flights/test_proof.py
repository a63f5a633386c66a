"""The proof fails on every kind of wrong row, and says which is the first."""

from __future__ import annotations

import random

import pytest

from gapless_flights.proof import SubscriptionProof, prove, prove_streams

EXPECTED = ["a", "b", "c", "d"]


def verdict(consumed: list[str]) -> SubscriptionProof:
    return prove("late", "delay > 60", EXPECTED, iter(consumed))


def counts(verdict: SubscriptionProof) -> tuple[int, int, int, int]:
    return verdict.missing, verdict.doubled, verdict.unselected, verdict.reordered


def test_exactly_the_expected_rows_are_right() -> None:
    found = verdict(["a", "b", "c", "d"])

    assert found == SubscriptionProof("late", "delay > 60", 4, 4, 0, 0, 0, 0, "")
    assert found.is_right


def test_nothing_of_nothing_is_right() -> None:
    assert prove("late", "", [], []).is_right


@pytest.mark.parametrize(
    ("consumed", "expected_counts", "first_difference"),
    [
        (["a", "c", "d"], (1, 0, 0, 0), "row 2: expected b; consumed c"),
        (["a", "b", "c"], (1, 0, 0, 0), "row 4: expected d; consumed nothing"),
        ([], (4, 0, 0, 0), "row 1: expected a; consumed nothing"),
        (["a", "b", "b", "c", "d"], (0, 1, 0, 0), "row 3: expected c; consumed b"),
        (["a", "b", "c", "d", "a"], (0, 1, 0, 0), "row 5: expected nothing; consumed a"),
        (["a", "b", "c", "d", "a", "a"], (0, 2, 0, 0), "row 5: expected nothing; consumed a"),
        (["a", "c", "b", "d"], (0, 0, 0, 1), "row 2: expected b; consumed c"),
        (["d", "a", "b", "c"], (0, 0, 0, 3), "row 1: expected a; consumed d"),
        (["a", "b", "x", "c", "d"], (0, 0, 1, 0), "row 3: expected c; consumed x"),
        (["x", "b", "b", "a"], (2, 1, 1, 1), "row 1: expected a; consumed x"),
    ],
    ids=[
        "missing", "missing-at-the-end", "nothing", "doubled", "doubled-at-the-end", "tripled", "swapped", "moved",
        "not-selected", "all-at-once",
    ],
)  # fmt: skip
def test_a_wrong_row_is_found(
    consumed: list[str], expected_counts: tuple[int, int, int, int], first_difference: str
) -> None:
    found = verdict(consumed)

    assert counts(found) == expected_counts
    assert found.first_difference == first_difference
    assert not found.is_right


def test_right_is_what_equals_the_expected() -> None:
    """Whatever is done to the rows: the counts are all 0 only if the rows are the expected ones."""
    draw = random.Random(1)
    for _ in range(2000):
        consumed = list(EXPECTED)
        for _ in range(draw.randrange(3)):
            place = draw.randrange(len(consumed) + 1)
            consumed[place : place + draw.randrange(3)] = draw.choices("abcdx", k=draw.randrange(3))

        assert verdict(consumed).is_right == (consumed == EXPECTED)
        assert bool(verdict(consumed).first_difference) == (consumed != EXPECTED)


STREAMS = {"x": ["a", "b"], "y": ["c", "d"]}


def test_streams_may_interleave_in_any_way() -> None:
    for consumed in (["a", "b", "c", "d"], ["c", "a", "d", "b"]):
        assert prove_streams("late", "s", STREAMS, consumed) == SubscriptionProof("late", "s", 4, 4, 0, 0, 0, 0, "")


@pytest.mark.parametrize(
    ("consumed", "expected_counts"),
    [
        (["a", "c", "d"], (1, 0, 0, 0)),
        (["a", "b", "b", "c", "d"], (0, 1, 0, 0)),
        (["a", "b", "c", "z", "d"], (0, 0, 1, 0)),
        (["b", "c", "a", "d"], (0, 0, 0, 1)),
        ([], (4, 0, 0, 0)),
    ],
    ids=["missing", "doubled", "not-selected", "swapped", "nothing"],
)
def test_in_each_stream_a_wrong_row_is_found(consumed: list[str], expected_counts: tuple[int, int, int, int]) -> None:
    found = prove_streams("late", "s", STREAMS, consumed)

    assert counts(found) == expected_counts
    assert found.first_difference
    assert (found.expected, found.consumed) == (4, len(consumed))
