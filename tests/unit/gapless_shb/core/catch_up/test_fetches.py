"""What comes back for a reader becomes events and gaps in order (protocol: readers; T13, T29)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless.core.stream.columns import EventBatch
from gapless.core.stream.events import encode_event
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import MILLISECOND
from gapless.core.wire.messages import GapReason
from gapless.selectors.filters import Filter
from gapless.selectors.index import BatchMatcher
from gapless_shb.core.catch_up.fetches import SHORTEST, RangeFetch, TickFetch, Window, interleave, nearness
from gapless_shb.core.state.segments import GapSegment, Segment


def batch(*ticks: int) -> EventBatch:
    """Events at these ticks whose property n is the tick."""
    events = [encode_event("t", {"n": tick}, None, b"x") for tick in ticks]
    return EventBatch(list(ticks), events, [1] * len(ticks))


def shown(segments: list[Segment]) -> list[object]:
    """Segments as plain values."""
    return [(s.start, s.end) if isinstance(s, GapSegment) else list(s.ticks) for s in segments]


def test_ticks_are_complete_when_each_is_an_event_or_lost() -> None:
    """And only then: a hole in the middle is waited for."""
    fetch = TickFetch("p@1", 0, [10, 20, 30], 40, nearness(MILLISECOND), None)
    fetch.offer(Knowledge("p@1", 15, 40, batch(20, 25, 30)))
    early = fetch.complete

    fetch.offer(Knowledge("p@1", 0, 40, lost=12))

    assert (early, fetch.complete) == (False, True)
    assert shown(fetch.segments(())) == [(0, 10), [20, 30]]


def test_a_gap_covers_no_more_than_lost_ticks_of_the_subscription() -> None:
    """T29: the PFS knows where it had none, so the gap ends at the last one that is lost."""
    fetch = TickFetch("p@1", 5, [10, 20], 400, nearness(MILLISECOND), None)
    fetch.offer(Knowledge("p@1", 0, 400, lost=300))

    assert shown(fetch.segments(())) == [(5, 20)]


def test_what_was_released_quietly_is_no_gap() -> None:
    """(acked_event, released] is silence although the pubend does not know it any more."""
    fetch = TickFetch("p@1", 5, [10, 20], 400, nearness(MILLISECOND), None)
    fetch.offer(Knowledge("p@1", 0, 400, lost=300))

    assert shown(fetch.segments(((9, 100),))) == []


def test_an_event_that_a_cache_kept_is_delivered_between_two_gaps() -> None:
    """L fills only what nobody knows: a known event stays an event (1.2)."""
    fetch = TickFetch("p@1", 0, [10, 20, 30], 40, nearness(MILLISECOND), None)
    fetch.offer(Knowledge("p@1", 15, 25, batch(20)))
    fetch.offer(Knowledge("p@1", 0, 40, lost=40))

    assert shown(fetch.segments(())) == [(0, 10), [20], (20, 30)]


def test_pieces_that_come_out_of_order_are_put_in_order() -> None:
    """The network may reorder."""
    fetch = TickFetch("p@1", 0, [10, 20, 30, 40], 40, nearness(MILLISECOND), None)
    fetch.offer(Knowledge("p@1", 25, 40, batch(30, 40)))
    fetch.offer(Knowledge("p@1", 0, 25, batch(10, 20)))
    fetch.offer(Knowledge("p@1", 0, 25, batch(10, 20)))

    assert shown(fetch.segments(())) == [[10, 20, 30, 40]]


def test_ticks_of_which_some_may_not_have_matched_are_filtered_again() -> None:
    """What is lost of them may have matched."""
    matcher = BatchMatcher()
    matcher.add(1, Filter(("#",), "n > 12"))
    fetch = TickFetch("p@1", 0, [5, 10, 20, 30], 40, nearness(MILLISECOND), matcher)
    fetch.offer(Knowledge("p@1", 5, 40, batch(10, 20, 30), lost=5))

    assert shown(fetch.segments(())) == [(0, 5), [20, 30]]


def test_far_ticks_are_asked_for_one_by_one_and_near_ones_together() -> None:
    """A sparse subscriber does not fetch what lies between."""
    assert TickFetch("p@1", 0, [1 << 10, 2 << 10, 1 << 40], 1 << 41, nearness(MILLISECOND), None).ranges() == (
        (1023, 2 << 10),
        ((1 << 40) - 1, 1 << 40),
    )


def test_a_range_is_filtered_again_and_handed_out_as_far_as_it_is_known() -> None:
    """A range fetch makes progress with every answer."""
    matcher = BatchMatcher()
    matcher.add(1, Filter(("#",), "n > 12"))
    fetch = RangeFetch("p@1", 0, 100, matcher)
    fetch.offer(Knowledge("p@1", 0, 50, batch(10, 20)))

    assert fetch.complete
    assert fetch.upto == 50
    assert shown(fetch.segments(())) == [[20]]


def test_what_arrived_behind_a_hole_is_not_asked_for_again() -> None:
    """The next fetch goes on with it, and forgets what lies above its own range."""
    before = RangeFetch("p@1", 0, 100, BatchMatcher())
    for said in (Knowledge("p@1", 0, 20), Knowledge("p@1", 29, 50, batch(30)), Knowledge("p@1", 80, 100)):
        before.offer(said)
    assert before.upto == 20

    fetch = RangeFetch("p@1", 20, 90, BatchMatcher())
    fetch.go_on_from(before)

    assert fetch.ranges() == ((20, 29), (50, 80))
    fetch.offer(Knowledge("p@1", 20, 29))
    assert fetch.upto == 50
    fetch.offer(Knowledge("p@1", 50, 80))
    assert fetch.upto == 90


def test_a_lost_range_is_one_gap_that_ends_where_silence_begins() -> None:
    """Of an unknown range every lost tick may have been an event; silence at its end is no part of the gap."""
    fetch = RangeFetch("p@1", 0, 100, BatchMatcher())
    fetch.offer(Knowledge("p@1", 0, 100, lost=60))

    assert shown(fetch.segments(((40, 80),))) == [(0, 40)]


def test_what_the_pubend_has_given_up_is_waited_for_until_it_is_answered() -> None:
    """A push says how much that is, and a cache on the way may have it all."""
    said = Knowledge("p@1", 400, 500, lost=300)
    ticks = TickFetch("p@1", 0, [10, 20], 100, 1, None)
    whole = RangeFetch("p@1", 0, 100, BatchMatcher())
    for fetch, expected in ((ticks, [[10], (10, 20)]), (whole, [(0, 100)])):
        fetch.offer(said)
        early = fetch.complete

        fetch.offer(Knowledge("p@1", 0, 15, batch(10), reply=True))
        fetch.offer(Knowledge("p@1", 15, 100, lost=300, reply=True))
        assert (early, fetch.complete) == (False, True)
        assert shown(fetch.segments(())) == expected


@given(
    st.lists(st.integers(1, 40), unique=True).map(sorted),
    st.lists(st.integers(1, 40), unique=True).map(sorted),
)
def test_segments_tell_everything_in_order(events: list[int], lost: list[int]) -> None:
    """Every event once, every lost tick inside a gap, no event inside a gap, everything ascending."""
    lost = [tick for tick in lost if tick not in events]
    segments = interleave(0, batch(*events), [(tick - 1, tick, GapReason.RETIRED) for tick in lost])

    told = [tick for segment in shown(segments) if isinstance(segment, list) for tick in segment]
    gaps = [segment for segment in shown(segments) if isinstance(segment, tuple)]
    assert told == events
    assert all(any(lo < tick <= hi for lo, hi in gaps) for tick in lost)
    assert not any(lo < tick <= hi for lo, hi in gaps for tick in events)
    ends = [segment[-1] if isinstance(segment, list) else segment[1] for segment in shown(segments)]  # type: ignore[index]
    assert ends == sorted(ends)


def test_a_range_that_is_cut_short_leaves_the_rest_to_the_next_fetch() -> None:
    """What the home of a guest has not looked at is told later; it is not asked for twice."""
    fetch = RangeFetch("p@1", 0, 100, BatchMatcher())
    fetch.offer(Knowledge("p@1", 0, 100, lost=100))
    fetch.end_at(40)
    found = shown(fetch.segments(((0, 20), (21, 40))))
    rest = RangeFetch("p@1", 40, 100, BatchMatcher())
    rest.go_on_from(fetch)

    assert (fetch.upto, found) == (40, [(0, 21)])
    assert (rest.ranges(), rest.upto) == ((), 100)


def test_the_window_grows_over_idle_time_and_shrinks_under_load() -> None:
    """Nobody knows how many events a second holds."""
    window = Window(MILLISECOND, 1000)
    span = window.span
    window.learn(span, 0)
    assert window.span == 4 * span
    window.learn(4 * span, 64 << 20)
    window.learn(span, 64 << 20)
    assert window.span == span // 4
    assert window.upto(10, 20) == 20


def test_the_window_grows_no_further_than_to_what_should_come() -> None:
    window = Window(MILLISECOND, 1000)
    span = window.span
    window.learn(span, 400_000, 600_000)
    assert window.span == span * 3 // 2
    window.learn(1, 400_000, 600_000)
    assert window.span == span * 3 // 2, "a hole with an event in it says nothing about the rest"


def test_an_answer_that_was_cut_shows_how_dense_it_is() -> None:
    """Idle time makes a range long; where the events begin, a small part of it is as much as should come."""
    window = Window(MILLISECOND, 1000)
    for _ in range(10):
        window.learn(window.span, 0)
    window.learn(100 * MILLISECOND, 64 << 10, 1 << 20, cut=True)

    assert window.span == 1_600 * MILLISECOND
    window.learn(1_000 * MILLISECOND, 64 << 10, 1 << 20, cut=True)
    assert window.span == 1_600 * MILLISECOND, "idle time in front of it says nothing about what was not looked at"


def test_of_a_dense_batch_no_more_is_asked_for_than_there_is_room_for() -> None:
    """Where the batch is over, a few places say nothing about what follows."""
    window = Window(MILLISECOND, SHORTEST)
    shortest = window.span
    window.learn(3, 300, 300, cut=True)
    assert window.span == 3
    window.learn(3, 300, 300)
    assert window.span == 3
    window.learn(3, 700, 300)
    assert window.span == 3, "one event may be larger than all that there is room for"
    window.learn(2, 700, 300, cut=True)
    assert window.span == 2, "a shorter range would bring no event, and not show how dense they are"

    window.learn(3, 0, 300)
    assert window.span == shortest


def test_what_was_given_up_is_a_gap_of_its_own_reason() -> None:
    fetch = TickFetch("p@1", 0, [10, 20, 30, 40], 50, nearness(MILLISECOND), None)
    fetch.offer(Knowledge("p@1", 0, 25, batch(20), 12, None))
    before = fetch.complete

    fetch.offer(Knowledge.of_damage("p@1", 25, 60, 12))

    assert (before, fetch.complete) == (False, True)
    gaps = [segment for segment in fetch.segments(()) if isinstance(segment, GapSegment)]
    assert gaps == [GapSegment(0, 10, GapReason.RELEASED_EARLY), GapSegment(20, 40, GapReason.DAMAGED)]


def test_lost_ranges_of_two_reasons_are_two_gaps() -> None:
    segments = interleave(
        0, batch(), [(0, 5, GapReason.RETIRED), (5, 9, GapReason.DAMAGED), (12, 15, GapReason.DAMAGED)]
    )

    assert segments == [GapSegment(0, 5, GapReason.RETIRED), GapSegment(5, 15, GapReason.DAMAGED)]


def test_distances_are_measured_in_grains() -> None:
    """64 places of events between two ticks are near, whether a place is a tick or a thousand of them."""
    assert (nearness(MILLISECOND), nearness(1)) == (64 << 10, 64)
    assert (Window(MILLISECOND, 1000).upto(0, 1 << 60), Window(1, 1000).upto(0, 1 << 60)) == (1000 * MILLISECOND, 1000)


def test_what_the_log_has_lost_is_a_gap_for_whom_it_had_matched() -> None:
    """TK19."""
    fetch = TickFetch("p@1", 0, [10, 20, 30], 50, nearness(1), None)
    fetch.offer(Knowledge("p@1", 0, 25, batch(20), 0, None))
    fetch.lose(5, 15)
    before = fetch.complete

    fetch.lose(25, 40)

    assert (before, fetch.complete) == (False, True)
    gaps = [segment for segment in fetch.segments(()) if isinstance(segment, GapSegment)]
    assert gaps == [GapSegment(0, 10, GapReason.CUT), GapSegment(20, 30, GapReason.CUT)]
