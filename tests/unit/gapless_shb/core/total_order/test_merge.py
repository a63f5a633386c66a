"""The merge of a group: one order, ties by pubend, gaps where they begin, and nothing before its time (I11, T14)."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from gapless.core.stream.columns import EventBatch
from gapless.core.stream.events import encode_event
from gapless.core.wire.messages import GapReason
from gapless_shb.core.state.segments import GapSegment, Segment
from gapless_shb.core.total_order.merge import OrderedMerge

A, B, C = "a@1", "b@1", "c@1"
FAR = 1000


def batch(*ticks: int) -> EventBatch:
    """Events at these ticks."""
    return EventBatch(list(ticks), [encode_event("t", {"n": tick}, None, b"x") for tick in ticks], [1] * len(ticks))


def gap(start: int, end: int) -> GapSegment:
    return GapSegment(start, end, GapReason.RELEASED_EARLY)


def everything(events: EventBatch) -> int:
    return len(events)


def left(merge: OrderedMerge, room: Callable[[EventBatch], int] = everything) -> list[tuple[int, str]]:
    """What leaves now: each event at its tick, each gap at the first tick in it."""
    found: list[tuple[int, str]] = []
    while (item := merge.take(room)) is not None:
        pubend, segment = item
        ticks = [segment.start + 1] if isinstance(segment, GapSegment) else segment.ticks
        found += [(tick, pubend) for tick in ticks]
    return found


def test_events_wait_until_no_other_member_can_have_an_earlier_one() -> None:
    merge = OrderedMerge({A: 0, B: 0}, {})
    merge.put(A, batch(10, 20, 30))
    before = left(merge)
    merge.know(B, 20)
    then = left(merge)
    merge.put(B, batch(25))

    assert (before, then, left(merge)) == ([], [(10, A), (20, A)], [(25, B)])


def test_of_equal_ticks_the_lower_pubend_goes_first() -> None:
    """So the higher one waits for the lower one at that very tick, and the lower one does not."""
    merge = OrderedMerge({A: 9, B: 9}, {})
    merge.put(B, batch(10))
    lower_unknown = left(merge)
    merge.put(A, batch(10))

    assert (lower_unknown, left(merge)) == ([], [(10, A), (10, B)])


def test_a_dead_member_holds_all_others() -> None:
    merge = OrderedMerge({A: 0, B: 0, C: 5}, {})
    merge.know(A, FAR)
    merge.put(B, batch(*range(1, 100)))
    merge.know(B, FAR)

    assert left(merge) == [(tick, B) for tick in range(1, 7)]
    assert merge.bound == (6, C)
    assert (merge.events, len(left(merge))) == (93, 0)


def test_a_gap_leaves_where_it_begins_and_nothing_from_within_it_before() -> None:
    """Else a consumer that comes back in between could meet what a cache still has of the gap, behind its place."""
    merge = OrderedMerge({A: 0, B: 0}, {})
    merge.put(A, gap(5, 30))
    merge.put(B, batch(3, 10, 20, 40))

    assert left(merge) == [(3, B), (6, A), (10, B), (20, B)]
    assert (merge.silent_upto(A), merge.silent_upto(B)) == (30, 30)


def test_after_an_item_the_positions_of_pubends_behind_it_are_one_less() -> None:
    """A commit between two events of one tick must not lose the second."""
    merge = OrderedMerge({A: 0, B: 0, C: 0}, {})
    merge.put(B, batch(10))
    merge.put(C, batch(10))
    merge.know(A, FAR)
    taken = merge.take(everything)

    assert taken is not None
    assert taken[0] == B
    assert [merge.silent_upto(pubend) for pubend in (A, B, C)] == [10, 10, 9]


def test_what_comes_too_late_is_a_gap_at_its_place_and_the_rest_is_delivered() -> None:
    merge = OrderedMerge({A: 0, B: 50}, {A: 50})
    merge.know(B, FAR)
    merge.put(A, batch(10))
    assert (merge.take(everything), merge.member(A).is_ahead) == (None, False), "it may become longer"
    merge.put(A, batch(40, 60))
    merge.put(A, batch(70))
    gone = merge.take(everything)

    assert gone == (A, GapSegment(9, 40, GapReason.TOO_LATE))
    assert left(merge) == [(60, A), (70, A)]
    assert (merge.events, merge.bytes) == (0, 0)


def test_what_there_is_no_room_for_stays() -> None:
    merge = OrderedMerge({A: 0, B: FAR}, {})
    merge.put(A, batch(1, 2, 3))

    assert merge.take(lambda _events: 0) is None
    assert left(merge, lambda events: min(2, len(events))) == [(1, A), (2, A), (3, A)]
    assert (merge.events, merge.bytes) == (0, 0)


MEMBERS = (A, B, C)
STREAM = st.lists(st.integers(1, 30), max_size=12, unique=True).map(sorted)


@st.composite
def histories(draw: st.DrawFn) -> list[list[tuple[str, Segment | int]]]:
    """For each member what it gives, in order: events in pieces, gaps between them, and how far it is known."""
    found: list[list[tuple[str, Segment | int]]] = []
    for pubend in MEMBERS:
        given_: list[tuple[str, Segment | int]] = []
        ticks, at = draw(STREAM), 0
        while ticks:
            kind = draw(st.sampled_from(("events", "gap", "know")))
            if kind == "events":
                count = draw(st.integers(1, len(ticks)))
                given_.append((pubend, batch(*ticks[:count])))
                at, ticks = ticks[count - 1], ticks[count:]
            elif ticks[0] - 1 > at:
                upto = draw(st.integers(at + 1, ticks[0] - 1))
                given_.append((pubend, gap(at, upto) if kind == "gap" else upto))
                at = upto
        found.append([*given_, (pubend, 99)])
    return found


def places_of(pubend: str, given_: Segment | int) -> list[tuple[int, str]]:
    if isinstance(given_, int):
        return []
    return [(tick, pubend) for tick in ([given_.start + 1] if isinstance(given_, GapSegment) else given_.ticks)]


@given(st.data(), histories(), st.integers(1, 5))
def test_whatever_comes_in_whatever_pieces_leaves_sorted_and_as_soon_as_it_may(
    data: st.DataObject, history: list[list[tuple[str, Segment | int]]], room: int
) -> None:
    expected = sorted(place for member in history for each in member for place in places_of(*each))
    merge = OrderedMerge(dict.fromkeys(MEMBERS, 0), {})
    out: list[tuple[int, str]] = []
    known = dict.fromkeys(MEMBERS, 0)
    while any(history):
        pubend, given_ = data.draw(st.sampled_from([member for member in history if member])).pop(0)
        if isinstance(given_, int):
            merge.know(pubend, given_)
            known[pubend] = given_
        else:
            merge.put(pubend, given_)
            known[pubend] = given_.end if isinstance(given_, GapSegment) else given_.ticks[-1]
        out += left(merge, lambda events: min(room, len(events)))
        may_leave = min((upto + 1, each) for each, upto in known.items())
        assert out == [place for place in expected if place < may_leave]
        for each in MEMBERS:
            assert all(place in out for place in expected if place[1] == each and place[0] <= merge.silent_upto(each))

    assert out == expected
    assert (merge.events, merge.bytes) == (0, 0)
