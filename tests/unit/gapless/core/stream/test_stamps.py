"""The order of stamps against its definition over all SHBs (protocol: stamps)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless.core.stream.stamps import RAW, Stamp, covers, join, meet, restrict

SHBS = ("a", "b", "c")
stamps = st.none() | st.dictionaries(st.sampled_from(SHBS), st.integers(0, 3))
INFINITE = 99
"""The version that RAW honours of every SHB."""


def versions(stamp: Stamp) -> tuple[int, ...]:
    """The version of each SHB."""
    return tuple(INFINITE if stamp is None else stamp.get(shb, 0) for shb in SHBS)


@given(stamps, stamps)
def test_a_stamp_covers_what_is_lower_everywhere(left: Stamp, right: Stamp) -> None:
    expected = all(one >= other for one, other in zip(versions(left), versions(right), strict=True))

    assert covers(left, right) == expected


@given(stamps, stamps)
def test_meet_is_the_pointwise_minimum(left: Stamp, right: Stamp) -> None:
    lower = meet(left, right)

    assert versions(lower) == tuple(map(min, versions(left), versions(right)))
    assert lower in (left, right) or 0 not in (lower or {}).values(), "a version of 0 says nothing"


@given(stamps, stamps)
def test_join_is_the_pointwise_maximum(left: Stamp, right: Stamp) -> None:
    assert versions(join(left, right)) == tuple(map(max, versions(left), versions(right)))


@given(stamps, stamps, stamps)
def test_what_covers_two_covers_their_join(left: Stamp, right: Stamp, upper: Stamp) -> None:
    assert covers(upper, join(left, right)) == (covers(upper, left) and covers(upper, right))


@given(stamps, stamps, stamps)
def test_what_two_cover_their_meet_covers(left: Stamp, right: Stamp, lower: Stamp) -> None:
    assert covers(meet(left, right), lower) == (covers(left, lower) and covers(right, lower))


@given(stamps, st.sets(st.sampled_from(SHBS)))
def test_a_restricted_stamp_says_nothing_of_others(stamp: Stamp, shbs: set[str]) -> None:
    restricted = restrict(stamp, shbs)

    if stamp is RAW:
        assert restricted is RAW
    else:
        expected = tuple(version if shb in shbs else 0 for shb, version in zip(SHBS, versions(stamp), strict=True))
        assert versions(restricted) == expected


def test_nothing_but_raw_covers_raw() -> None:
    assert covers(RAW, RAW)
    assert not covers({"a": INFINITE, "b": INFINITE, "c": INFINITE}, RAW)


def test_no_operation_changes_its_stamps() -> None:
    left, right = {"a": 1, "b": 2}, {"b": 1, "c": 4}
    join(left, right), meet(left, right), restrict(left, {"a"})

    assert (left, right) == ({"a": 1, "b": 2}, {"b": 1, "c": 4})
