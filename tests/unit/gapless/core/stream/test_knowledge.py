"""The knowledge stream against a table with one row per tick (protocol: knowledge)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.stream.columns import EMPTY, EventBatch
from gapless.core.stream.intervals import IntervalSet, Ranges
from gapless.core.stream.knowledge import Delta, Kind, Knowledge, KnowledgeConflict, KnowledgeStream, Run
from gapless.core.stream.stamps import RAW, Stamp, covers, join, meet

TICKS = 14
"""The streams of these tests end here."""
NEEDS: tuple[Stamp, ...] = (RAW, {}, {"a": 1}, {"a": 2}, {"b": 1}, {"a": 1, "b": 2})


def batch(*ticks: int, mark: str = "") -> EventBatch:
    """An event per tick; under another mark, another event."""
    return EventBatch(ticks, [f"event {tick}{mark}".encode() for tick in ticks], [0] * len(ticks))


def say(lo: int, hi: int, *ticks: int, lost: int = 0, stamp: Stamp = RAW) -> Knowledge:
    return Knowledge("p@1", lo, hi, batch(*ticks), lost, stamp)


def stream(*statements: Knowledge, base: int = 0) -> KnowledgeStream:
    held = KnowledgeStream("p@1", base)
    for statement in statements:
        held.accumulate(statement)
    return held


def test_events_where_none_can_be_take_only_what_is_said_there_with_them() -> None:
    said = say(2, 12, 3, 5, 9, lost=2)

    assert said.without_events_in(((5, 8), (9, 11))) == [said]
    assert said.without_events_in(((4, 8), (9, 11))) == [say(2, 4, 3), say(8, 12, 9)]
    assert say(2, 12, 9, lost=5).without_events_in(((8, 20),)) == [say(2, 8, lost=5)]
    assert say(2, 12, 9).without_events_in(((0, 20),)) == []


# ------------------------------------------------------------------------------------------ the table


@dataclass
class Table:
    """What is known, tick by tick."""

    events: dict[int, bytes] = field(default_factory=dict)
    silence: dict[int, Stamp] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    """What was stated to be lost."""
    lost: int = 0
    base: int = 0

    def contradicts(self, said: Knowledge) -> bool:
        data = dict(zip(said.data.ticks, said.data.events, strict=True))
        return any(
            (tick in data and self.events.get(tick, data[tick]) != data[tick])
            or (tick in data and tick not in self.events and self.silence.get(tick, {}) is RAW)
            or (tick not in data and tick in self.events and said.stamp is RAW and tick > said.lost)
            for tick in range(max(said.lo, self.base) + 1, said.hi + 1)
        )

    def accumulate(self, said: Knowledge) -> tuple[list[int], set[int]]:
        """Take a statement in; which events are new, and which other ticks are silent anew."""
        data = dict(zip(said.data.ticks, said.data.events, strict=True))
        news = [tick for tick in data if tick not in self.events and tick > self.base]
        anew = set()
        for tick in range(max(said.lo, self.base) + 1, said.hi + 1):
            if tick in data:
                self.events[tick] = data[tick]
            elif tick > said.lost:
                before = self.silence.get(tick, "nothing")
                joined = said.stamp if before == "nothing" else join(self.silence[tick], said.stamp)
                self.silence[tick] = joined
                if joined != before:
                    anew.add(tick)
            if tick <= said.lost:
                self.gone.add(tick)
        self.lost = max(self.lost, said.lost)
        return news, anew - set(self.events)

    def forget(self, lo: int, hi: int) -> None:
        for tick in range(lo + 1, hi + 1):
            self.events.pop(tick, None)
            self.silence.pop(tick, None)
            self.gone.discard(tick)

    def let_go(self, lo: int, hi: int, kept: tuple[int, ...], stamp: Stamp, silent_from: int) -> None:
        for tick in range(silent_from + 1, hi + 1):
            if tick > lo and tick not in kept:
                self.events.pop(tick, None)
            if tick > lo:
                self.gone.discard(tick)
            self.silence[tick] = stamp

    def trim(self, upto: int) -> None:
        self.forget(0, upto)
        self.base = max(self.base, upto)

    def is_silent(self, tick: int, need: Stamp) -> bool:
        return tick not in self.events and tick in self.silence and covers(self.silence[tick], need)

    def is_known(self, tick: int, need: Stamp) -> bool:
        """Whether a tick above `base` is D, L or silence that covers the need."""
        return tick in self.events or tick in self.gone or self.is_silent(tick, need)

    def unknown(self, lo: int, hi: int, need: Stamp) -> set[int]:
        return {tick for tick in range(max(lo, self.base) + 1, hi + 1) if not self.is_known(tick, need)}

    def horizon(self, start: int, need: Stamp) -> int:
        horizon = max(start, self.base)
        while self.is_known(horizon + 1, need):
            horizon += 1
        return horizon


# ---------------------------------------------------------------------------------- how it comes about


VERSIONS: tuple[dict[str, int], ...] = ({"a": 1, "b": 2}, {"a": 2}, {"b": 1}, {})
"""From which version on an event matches a subscription of an SHB; of one that is absent: never."""


@dataclass(frozen=True)
class Truth:
    """What a pubend logged; drawn as numbers with a digit per tick: far faster than dictionaries."""

    logged: int
    matched_from: int
    mark: str

    def state(self, lo: int, hi: int, stamp: Stamp, lost: int, extra: int) -> Knowledge:
        """A true statement: events that the stamp lets out or that are lost are in it only if extra."""
        ticks = [
            tick
            for tick in range(lo + 1, hi + 1)
            if self.logged >> tick & 1 and (extra >> tick & 1 or (tick > lost and self._must(tick, stamp)))
        ]
        return Knowledge("p@1", lo, hi, batch(*ticks, mark=self.mark), lost, stamp)

    def _must(self, tick: int, stamp: Stamp) -> bool:
        versions = VERSIONS[self.matched_from >> 2 * tick & 3]
        return stamp is None or any(stamp.get(shb, 0) >= version for shb, version in versions.items())


ticks = st.integers(0, TICKS)
stamps = st.sampled_from(NEEDS)
digits = st.integers(0, 2 << TICKS)
intervals = st.tuples(ticks, ticks).map(lambda pair: (min(pair), max(pair)))
losses = st.just(0) | st.just(0) | ticks
truths = st.builds(Truth, digits, st.integers(0, 4 << 2 * TICKS), st.just(""))


@st.composite
def statements(draw: st.DrawFn) -> list[Knowledge]:
    """True statements, for the most part: sometimes another pubend speaks in between."""
    truth = draw(truths)
    other = replace(truth, logged=draw(digits), mark=draw(st.sampled_from(("", "'"))))
    liar = draw(st.integers(0, 12))
    parts = draw(st.lists(st.tuples(intervals, stamps, losses, digits), max_size=8))
    return [
        (other if place == liar else truth).state(lo, hi, stamp, lost, extra)
        for place, ((lo, hi), stamp, lost, extra) in enumerate(parts)
    ]


@st.composite
def told(draw: st.DrawFn) -> tuple[KnowledgeStream, Table]:
    """A stream and its table after some statements, with some of it trimmed or forgotten on the way."""
    held, table = KnowledgeStream("p@1"), Table()
    for said in draw(statements()):
        if table.contradicts(said):
            continue
        held.accumulate(said)
        table.accumulate(said)
        match draw(st.sampled_from(("", "", "", "", "forget", "trim", "let go"))):
            case "let go":
                for silent_from, hi, stamp in silent(held, *draw(intervals))[:1]:
                    lo = draw(st.integers(silent_from, hi - 1))
                    kept = held.take(lo, hi)
                    kept = kept.select(draw(digits) % (1 << len(kept))) if kept else kept
                    held.let_go(lo, hi, kept, stamp, silent_from)
                    table.let_go(lo, hi, tuple(kept.ticks), stamp, silent_from)
            case "forget":
                lo, hi = draw(intervals)
                held.forget(lo, hi)
                table.forget(lo, hi)
            case "trim":
                upto = draw(ticks)
                held.trim(upto)
                table.trim(upto)
    return held, table


def silent(held: KnowledgeStream, lo: int, hi: int) -> list[tuple[int, int, Stamp]]:
    """The runs of silence under versions in an interval, where neighbours are silence, too: under what both cover."""
    found: list[tuple[int, int, Stamp]] = []
    for run in held.runs(lo, hi):
        if run.kind is Kind.SILENCE and run.stamp is not RAW:
            joins = bool(found) and found[-1][1] == run.lo
            start, stamp = (found[-1][0], meet(found.pop()[2], run.stamp)) if joins else (run.lo, run.stamp)
            found.append((start, run.hi, stamp))
    return found


def members(ranges: Ranges) -> set[int]:
    return {tick for lo, hi in ranges for tick in range(lo + 1, hi + 1)}


# ----------------------------------------------------------------------------------------- what is stated


@given(statements(), st.lists(ticks, max_size=8))
def test_a_delta_is_what_the_table_did_not_know(said: list[Knowledge], trims: list[int]) -> None:
    held, table = KnowledgeStream("p@1"), Table()
    for place, statement in enumerate(said):
        if table.contradicts(statement):
            continue
        lost, delta = table.lost, held.accumulate(statement)
        news, anew = table.accumulate(statement)

        assert list(delta.events.ticks) == news
        assert list(delta.events.events) == [table.events[tick] for tick in news]
        assert members(delta.known) - set(table.events) == anew
        assert delta.known == IntervalSet(delta.known).ranges
        assert delta.lost == (table.lost if table.lost > lost else 0)

        held.trim(trims[place] if place < len(trims) else 0)
        table.trim(trims[place] if place < len(trims) else 0)


def contents(held: KnowledgeStream) -> object:
    """All that a stream can be asked."""
    events = held.take(0, TICKS)
    return list(held.runs(0, TICKS)), events.ticks, events.events, held.lost, held.base, held.known_upto


@given(statements())
def test_a_contradiction_is_refused_and_changes_nothing(said: list[Knowledge]) -> None:
    held, table = KnowledgeStream("p@1"), Table()
    for statement in said:
        before = contents(held)
        if table.contradicts(statement):
            with pytest.raises(KnowledgeConflict):
                held.accumulate(statement)

            assert contents(held) == before
        else:
            held.accumulate(statement)
            table.accumulate(statement)


def test_two_events_at_one_tick_are_a_conflict() -> None:
    held = stream(say(0, 10, 5))

    with pytest.raises(KnowledgeConflict, match="two different events at tick 5"):
        held.accumulate(Knowledge("p@1", 4, 10, batch(5, mark="'")))


def test_an_event_in_raw_silence_is_a_conflict() -> None:
    held = stream(say(0, 10))

    with pytest.raises(KnowledgeConflict, match=r"p@1: an event in RAW silence \(4, 5\]"):
        held.accumulate(say(4, 10, 5, stamp={"a": 1}))


def test_raw_silence_over_an_event_is_a_conflict() -> None:
    held = stream(say(0, 10, 5, stamp={"a": 1}))

    with pytest.raises(KnowledgeConflict, match=r"p@1: RAW silence in \(3, 8\] where an event is known"):
        held.accumulate(say(3, 8))


def test_a_conflict_is_an_assertion() -> None:
    """Nothing catches those by accident, and they are reported as what they are."""
    assert issubclass(KnowledgeConflict, AssertionError)


def test_filtered_silence_over_an_event_hides_nothing() -> None:
    held = stream(say(0, 10, 5))
    held.accumulate(say(0, 10, stamp={"a": 1}))

    assert held.take(0, 10).ticks == (5,)


def test_events_outside_of_their_interval_are_our_mistake() -> None:
    with pytest.raises(AssertionError, match="events outside of their knowledge"):
        KnowledgeStream("p@1").accumulate(say(5, 10, 5))


def test_in_order_nothing_is_copied() -> None:
    """The batch that came in is the batch that goes out, whole."""
    held = stream(say(0, 10, 5, stamp={"a": 1}))
    statement = say(10, 20, 12, 17, 20, stamp={"a": 1})
    delta = held.accumulate(statement)

    assert delta == Delta(statement.data, ((10, 20),), 0)
    assert delta.events is statement.data
    assert held.take(10, 20) is statement.data
    assert list(held.runs(0, 20)) == [Run(0, 20, Kind.SILENCE, {"a": 1})]


def test_what_is_said_twice_is_new_once() -> None:
    statement = say(0, 10, 5, stamp={"a": 1})
    held = stream(statement)

    assert held.accumulate(statement) == Delta(EMPTY, (), 0)


def test_two_stamps_for_one_tick_are_both_true() -> None:
    held = stream(say(0, 10, stamp={"a": 2}), say(0, 10, stamp={"b": 3}))

    assert held.horizon(0, {"a": 2, "b": 3}) == 10


# ------------------------------------------------------------------------------------------ what is known


@given(told())
def test_the_horizon_ends_at_the_first_unknown_tick(known: tuple[KnowledgeStream, Table]) -> None:
    held, table = known
    for need in NEEDS:
        for start in range(TICKS + 2):
            assert held.horizon(start, need) == table.horizon(start, need)


@given(told(), intervals)
def test_the_events_of_an_interval(known: tuple[KnowledgeStream, Table], asked: tuple[int, int]) -> None:
    held, table = known
    lo, hi = asked
    expected = sorted(tick for tick in table.events if lo < tick <= hi)

    assert list(held.take(lo, hi).ticks) == expected
    assert list(held.take(lo, hi).events) == [table.events[tick] for tick in expected]
    assert held.event_count == len(table.events)
    assert held.size == sum(map(len, table.events.values()))


@given(told(), intervals, stamps)
def test_what_to_ask_for(known: tuple[KnowledgeStream, Table], asked: tuple[int, int], need: Stamp) -> None:
    held, table = known
    ranges = held.unknown(*asked, need)
    unknown = table.unknown(*asked, need)

    assert ranges == IntervalSet(ranges).ranges
    assert members(ranges) >= unknown
    assert members(ranges) - unknown <= set(table.events), "only events may be asked for again"
    assert all(lo + 1 in unknown and hi in unknown for lo, hi in ranges), "a range begins and ends unknown"


@given(told(), intervals, stamps)
def test_what_is_lost(known: tuple[KnowledgeStream, Table], asked: tuple[int, int], need: Stamp) -> None:
    held, table = known
    lo, hi = asked
    expected = {
        tick
        for tick in range(max(lo, table.base) + 1, hi + 1)
        if tick in table.gone and tick not in table.events and not table.is_silent(tick, need)
    }

    assert held.lost_in(lo, hi, need) == IntervalSet((tick - 1, tick) for tick in expected).ranges


@given(told(), st.lists(intervals, max_size=3).map(IntervalSet), stamps)
def test_answers_are_true_and_complete(known: tuple[KnowledgeStream, Table], asked: IntervalSet, need: Stamp) -> None:
    held, table = known
    replies, rest = held.answer(asked.ranges, need)
    dropped = [(lo, min(hi, table.base)) for lo, hi in asked]
    unknown = [part for lo, hi in asked for part in held.unknown(lo, hi, need)]

    assert rest == IntervalSet([*dropped, *unknown]).ranges
    assert IntervalSet([*rest, *((reply.lo, reply.hi) for reply in replies)]) == asked
    assert sum(reply.hi - reply.lo for reply in replies) + IntervalSet(rest).total == asked.total
    for reply in replies:
        assert reply.reply
        assert covers(reply.stamp, need)
        assert list(reply.data.ticks) == [tick for tick in sorted(table.events) if reply.lo < tick <= reply.hi]
        for tick in members(((reply.lo, reply.hi),)) - set(table.events):
            assert tick in table.gone if tick <= reply.lost else table.is_silent(tick, reply.stamp)


@given(told(), st.integers(0, 3), st.sampled_from("abc"))
def test_the_highest_silence_under_a_lower_stamp(known: tuple[KnowledgeStream, Table], version: int, shb: str) -> None:
    held, table = known
    lower = [
        tick
        for tick, stamp in table.silence.items()
        if tick not in table.events and stamp is not None and stamp.get(shb, 0) < version
    ]

    assert held.highest_silence_below(version, shb) == max(lower, default=0)


@given(told(), intervals)
def test_runs_are_maximal_and_say_what_each_tick_is(
    known: tuple[KnowledgeStream, Table], asked: tuple[int, int]
) -> None:
    held, table = known
    lo, hi = asked
    runs = list(held.runs(lo, hi))
    edges = [edge for run in runs for edge in (run.lo, run.hi)]

    assert edges[1:-1:2] == edges[2::2], "runs follow one another"
    assert (edges[:1] + edges[-1:]) == ([max(lo, table.base), hi] if max(lo, table.base) < hi else [])
    assert all(one[2:] != other[2:] for one, other in pairwise(runs))
    for run in runs:
        for tick in members(((run.lo, run.hi),)) - set(table.events):
            expected = Kind.SILENCE if tick in table.silence else Kind.LOST if tick in table.gone else Kind.UNKNOWN
            assert run.kind is expected
            assert run.kind is not Kind.SILENCE or run.stamp == table.silence[tick]


@given(told())
def test_nothing_is_known_above_the_highest_known_tick(known: tuple[KnowledgeStream, Table]) -> None:
    held, table = known

    assert held.known_upto == max([*table.events, *table.silence, *table.gone, table.base])
    assert (held.base, held.lost) == (table.base, table.lost)


# ---------------------------------------------------------------------------- rules worth a test of their own


def test_what_the_pubend_has_given_up_is_lost_where_that_is_an_answer() -> None:
    """Else nobody would ask the cache that has it still, or has the silence between its events."""
    held = stream(say(0, 10, 3, 7, stamp={"a": 1}), say(10, 12, lost=8, stamp={"a": 2}))

    assert held.lost == 8
    assert held.horizon(0, RAW) == 0
    assert held.unknown(0, 10, RAW) == ((0, 10),)
    assert held.lost_in(0, 12, RAW) == ()


def test_silence_that_is_not_for_me_is_lost_where_that_was_answered() -> None:
    """No one could answer better: a want for it would be repeated for ever."""
    held = stream(say(0, 10, stamp={"a": 1}), say(2, 8, lost=8), say(10, 12, lost=8, stamp={"a": 2}))

    assert held.horizon(2, {"a": 2}) == 8
    assert held.lost_in(0, 12, {"a": 2}) == ((2, 8),)
    assert held.unknown(0, 12, {"a": 2}) == ((0, 2), (8, 10))
    assert held.lost_in(0, 12, {"a": 1}) == ()


def test_what_is_known_of_lost_ticks_stays_known() -> None:
    """A cache may know more than the pubend (T19)."""
    held = stream(say(2, 6, 3, stamp={"a": 1}), say(0, 12, lost=8))

    assert held.take(0, 12).ticks == (3,)
    assert held.lost_in(0, 12, {"a": 1}) == ((0, 2), (6, 8))


def test_an_answer_keeps_silence_and_loss_apart() -> None:
    """Said in one statement, the silence would be lost to the receiver."""
    held = stream(say(2, 6, 3, stamp={"a": 1}), say(0, 8, lost=8), say(10, 12, lost=8))
    replies, rest = held.answer(((0, 12),), {"a": 1})

    assert [(reply.lo, reply.hi, reply.lost, reply.stamp) for reply in replies] == [
        (0, 2, 8, RAW),
        (2, 6, 0, {"a": 1}),
        (6, 8, 8, RAW),
        (10, 12, 0, RAW),
    ]
    assert rest == ((8, 10),)


def test_an_answer_joins_runs_under_what_holds_for_all_of_them() -> None:
    held = stream(say(0, 4, 2, stamp={"a": 2, "b": 1}), say(4, 8, stamp={"a": 3}))
    replies, rest = held.answer(((0, 8),), {"a": 2})

    assert [(reply.lo, reply.hi, reply.stamp, reply.data.ticks) for reply in replies] == [(0, 8, {"a": 2}, (2,))]
    assert rest == ()


def test_events_answer_every_need() -> None:
    held = stream(say(0, 3, 1, 3, stamp={"a": 1}))
    replies, rest = held.answer(((0, 3),), RAW)

    assert [(reply.lo, reply.hi, reply.stamp, reply.data.ticks) for reply in replies] == [
        (0, 1, RAW, (1,)),
        (2, 3, RAW, (3,)),
    ]
    assert rest == ((1, 2),)


def test_a_want_reaches_across_events_rather_than_around_each() -> None:
    held = stream(say(0, 100, *range(10, 100, 10), stamp={"a": 1}))

    assert held.unknown(0, 200, RAW) == ((0, 200),)


def test_what_was_trimmed_is_ignored_when_it_is_said_again() -> None:
    held = stream(say(0, 10, 5))
    held.trim(10)

    assert held.accumulate(Knowledge("p@1", 0, 12, batch(5, 11, mark="'"))) == Delta(
        batch(11, mark="'"), ((10, 12),), 0
    )
    assert held.horizon(0, RAW) == 12
    assert held.unknown(0, 12, RAW) == ()


def test_forgetting_never_turns_into_loss() -> None:
    """The event was in the answer that called the ticks around it lost: whoever gave that may have it still."""
    held = stream(say(0, 10, 5, lost=10))
    held.forget(4, 6)

    assert held.unknown(0, 10, RAW) == ((4, 6),)
    assert held.lost_in(0, 10, RAW) == ((0, 4), (6, 10))


def test_costs_follow_runs_and_events_not_ticks() -> None:
    """With a tick per nanosecond of a century, anything that went from tick to tick would not come back."""
    far = 1 << 62
    held = stream(say(0, far, far, stamp={"a": 1}), say(0, far // 2, lost=far // 2), say(far + 5, far + 9))

    assert held.horizon(0, {"a": 1}) == far
    assert held.unknown(0, far + 9, {"a": 2}) == ((far // 2, far - 1), (far, far + 5))
    assert held.highest_silence_below(2, "a") == far - 1
    assert held.run_count == 3


def damaged(lo: int, hi: int, lost: int = 0) -> Knowledge:
    return Knowledge.of_damage("p@1", lo, hi, lost)


def test_what_is_damaged_is_lost_and_its_neighbours_are_not() -> None:
    held = KnowledgeStream("p@1")
    held.accumulate(Knowledge("p@1", 0, 10))
    held.accumulate(damaged(10, 20))
    held.accumulate(Knowledge("p@1", 30, 40))

    assert held.horizon(0, None) == 20, "nothing is known behind it"
    assert held.horizon(10, None) == 20
    assert held.unknown(0, 40, None) == ((20, 30),)
    assert (held.damaged_in(0, 40, None), held.lost_in(0, 40, None)) == (((10, 20),), ())
    assert held.damaged_in(15, 17, None) == ((15, 17),)


def test_what_is_known_all_the_same_is_not_damaged() -> None:
    """A cache may know what its pubend does not; and what was lost before has the older reason."""
    held = KnowledgeStream("p@1")
    held.accumulate(Knowledge("p@1", 12, 14))
    held.accumulate(Knowledge("p@1", 0, 8, lost=8))
    held.accumulate(damaged(5, 20, lost=8))

    assert held.lost_in(0, 20, None) == ((0, 8),)
    assert held.damaged_in(0, 20, None) == ((8, 12), (14, 20))
    assert held.answer(((9, 13),), None)[1] == ((9, 12),), "of what is damaged the pubend speaks itself"


def test_damage_is_dropped_with_what_is_decided_and_never_forgotten_otherwise() -> None:
    held = KnowledgeStream("p@1")
    held.accumulate(Knowledge("p@1", 0, 30))
    held.accumulate(damaged(30, 40))
    held.forget(10, 40)
    assert (held.known_upto, held.damaged_in(0, 40, None)) == (40, ((30, 40),))

    held.trim(35)

    assert held.damaged_in(0, 50, None) == ((35, 40),)
    held.accumulate(damaged(0, 36))
    assert held.damaged_in(0, 50, None) == ((35, 40),)


def test_what_is_let_go_of_is_silence_for_nobody_whom_the_stamp_does_not_name() -> None:
    held = KnowledgeStream("p@1")
    held.accumulate(Knowledge("p@1", 0, 10, batch(3, 7), stamp={"a": 2, "b": 1}))
    held.let_go(5, 10, batch(), {"b": 1}, 0)
    assert list(held.take(0, 10).ticks) == [3]
    assert held.unknown(0, 10, {"b": 1}) == ()
    assert held.unknown(0, 10, {"a": 1}) == ((0, 10),)
    held.accumulate(Knowledge("p@1", 6, 7, batch(7), stamp={}))
    assert list(held.take(0, 10).ticks) == [3, 7]


def test_what_is_let_go_of_is_not_lost() -> None:
    """The event was here, so nobody has said that it is lost: only that others around it are."""
    held = KnowledgeStream("p@1")
    held.accumulate(Knowledge("p@1", 0, 10, batch(3, 7), stamp={"a": 2}))
    held.accumulate(Knowledge("p@1", 2, 6, lost=6, reply=True))
    held.let_go(0, 10, batch(), {}, 0)
    assert held.lost_in(0, 10, {"a": 1}) == ()
    assert held.unknown(0, 10, {"a": 1}) == ((0, 10),)


@pytest.mark.parametrize(
    ("lo", "hi", "stamp", "silent_from"),
    [(0, 12, {"a": 1}, 0), (0, 10, {"a": 3}, 0), (0, 10, None, 0), (0, 10, {"a": 1}, 5)],
    ids=["unknown", "higher", "raw", "from above"],
)
def test_nothing_is_let_go_of_as_silence_that_was_not_known(lo: int, hi: int, stamp: Stamp, silent_from: int) -> None:
    held = KnowledgeStream("p@1")
    held.accumulate(Knowledge("p@1", 0, 10, batch(3), stamp={"a": 2}))
    with pytest.raises(AssertionError):
        held.let_go(lo, hi, batch(), stamp, silent_from)


def test_stretches_are_as_long_as_all_is_known_under_what_is_true_for_all_of_it() -> None:
    held = stream(
        say(0, 4, 3, stamp={"a": 2}), say(4, 8, stamp={"a": 1, "b": 5}), say(10, 12, 11), say(13, 15, 14, lost=15)
    )

    assert held.stretches(11) == [(0, 8, {"a": 1}), (10, 11, RAW)]


def test_events_where_all_else_is_lost_can_be_forgotten() -> None:
    held = stream(
        say(0, 4, 3, lost=4), say(4, 6, lost=6), say(8, 10, lost=10), say(12, 14, 13), say(15, 17, 16, lost=17)
    )
    held.forget_lost_events(16)

    assert held.unknown(0, 17, RAW) == ((0, 8), (10, 12), (14, 16))
    assert list(held.take(0, 17).ticks) == [13]
    assert held.lost_in(0, 17, RAW) == ((8, 10), (16, 17))
