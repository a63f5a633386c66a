"""The curiosity stream against a table with one row per tick (protocol: curiosity)."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from gapless.core.network.timer_queue import SECOND
from gapless.core.stream.curiosity import CuriosityStream, CuriosityTimes, RecentWants
from gapless.core.stream.intervals import IntervalSet
from gapless.core.stream.stamps import RAW, Stamp, covers, join
from gapless.core.stream.ticks import FOREVER

TICKS = 10
TIMES = CuriosityTimes(patience=3, stall=99, repeat_min=4, repeat_max=60, forget=5, forget_max=20)


@dataclass
class Row:
    """One missing tick."""

    need: Stamp
    since: int
    due_at: int
    tries: int = 0
    asked: bool = False


@dataclass
class Table:
    """What is missing, tick by tick."""

    rows: dict[int, Row] = field(default_factory=dict)

    def add(self, lo: int, hi: int, need: Stamp, now: int, *, urgent: bool) -> None:
        due_at = now if urgent else now + TIMES.patience
        for tick in range(lo + 1, hi + 1):
            row = self.rows.setdefault(tick, Row(need, now, due_at))
            if not covers(row.need, need):
                asked = row.tries > 0
                row.need, row.tries, row.asked = join(row.need, need), 0, False
                row.due_at = due_at if asked else min(row.due_at, due_at)
                row.since = now if asked else row.since
            elif not row.tries:
                row.due_at = min(row.due_at, due_at)

    def clear(self, lo: int, hi: int, stamp: Stamp) -> None:
        for tick in range(lo + 1, hi + 1):
            if tick in self.rows and covers(stamp, self.rows[tick].need):
                del self.rows[tick]

    def due(self, now: int) -> dict[int, tuple[Stamp, bool]]:
        due = {tick: (row.need, row.asked) for tick, row in sorted(self.rows.items()) if row.due_at <= now}
        for tick in due:
            row = self.rows[tick]
            row.asked = True
            row.due_at = now + min(TIMES.repeat_min * 2**row.tries, TIMES.repeat_max)
            row.tries += 1
        return due

    def deadline(self) -> int | None:
        return min((row.due_at for row in self.rows.values()), default=None)


stamps = st.sampled_from((RAW, {"a": 1}, {"a": 2}, {"b": 1}))
intervals = st.tuples(st.integers(0, TICKS), st.integers(0, TICKS))
kinds = st.sampled_from(("add", "add", "urgent", "clear", "trim", "due", "due"))
steps = st.lists(st.tuples(st.integers(0, 6), kinds, intervals, stamps), max_size=20)


def spelled(need: Stamp, again: bool) -> str:
    """The same text for wants that go together."""
    return f"{'RAW' if need is None else sorted(need.items())} {again}"


def do(step: str, stream: CuriosityStream, table: Table, ranges: tuple[int, int], stamp: Stamp, now: int) -> None:
    """One step of both but asking what is due."""
    lo, hi = ranges
    match step:
        case "add" | "urgent":
            stream.add((ranges,), stamp, now, urgent=step == "urgent")
            table.add(lo, hi, stamp, now, urgent=step == "urgent")
        case "clear":
            stream.clear((ranges,), stamp)
            table.clear(lo, hi, stamp)
        case "trim":
            stream.trim(lo)
            table.clear(0, lo, RAW)


@given(steps)
def test_what_is_due_is_what_the_table_says(steps: list[tuple[int, str, tuple[int, int], Stamp]]) -> None:
    stream, table, now = CuriosityStream(TIMES), Table(), 0
    for pause, step, ranges, stamp in steps:
        now += pause
        do(step, stream, table, ranges, stamp, now)
        if step == "due":
            due, expected = stream.due(now), table.due(now)
            needs = [spelled(*how) for how in expected.values()]

            assert {
                tick: (need, again)
                for ranges, need, again in due
                for lo, hi in ranges
                for tick in range(lo + 1, hi + 1)
            } == expected
            assert all(IntervalSet(ranges).ranges == ranges for ranges, *_ in due)
            assert [spelled(need, again) for _, need, again in due] == list(dict.fromkeys(needs))

        assert stream.deadline() == table.deadline()
        assert stream.missing_since == min((row.since for row in table.rows.values()), default=None)
        assert stream.ranges == IntervalSet((tick - 1, tick) for tick in table.rows).ranges
        assert (len(stream) > 0) == (table.rows != {})


def asked(stream: CuriosityStream, until: int) -> list[int]:
    """When something is asked for, if one always comes exactly at the deadline."""
    times = []
    while (at := stream.deadline()) is not None and at <= until:
        assert stream.due(at) != []
        times.append(at)
    return times


def test_a_want_is_repeated_for_ever_at_doubling_intervals() -> None:
    """It never ends as silence (T24)."""
    stream = CuriosityStream(TIMES)
    stream.add(((0, 5),), RAW, 100)

    assert asked(stream, 400) == [103, 107, 115, 131, 163, 223, 283, 343]


def answered(stream: CuriosityStream, lo: int, hi: int, now: int) -> None:
    """An answer comes to what was asked for."""
    stream.answered(lo, hi, now)
    stream.clear(((lo, hi),))


def waits(stream: CuriosityStream, now: int) -> int:
    """How long the answer to a want is waited for that is sent now."""
    stream.add(((100, 101),), RAW, now, urgent=True)
    stream.due(now)
    deadline = stream.deadline()
    assert deadline is not None
    stream.clear(((100, 101),))
    return deadline - now


def test_a_slow_answer_is_waited_for() -> None:
    """Four times as long as one takes; half of that if the next comes sooner (NRT)."""
    stream, now = CuriosityStream(TIMES), 0
    assert waits(stream, now) == TIMES.repeat_min
    for tries in (2, 1, 1):
        now += 100
        stream.add(((0, 5),), RAW, now, urgent=True)
        assert len(asked(stream, now + 7)) == tries  # an answer takes 7
        answered(stream, 0, 5, now + 7)
    assert waits(stream, now) == 28

    for expected in (12, 4):
        now += 100
        stream.add(((0, 5),), RAW, now, urgent=True)
        stream.due(now)
        answered(stream, 0, 5, now + 1)
        assert waits(stream, now) == expected


def test_losses_do_not_make_a_broker_patient() -> None:
    """One answer in five is lost, and the others come at once: most wants are repeated as soon as ever."""
    stream, draw, now = CuriosityStream(CuriosityTimes()), Random(1), 0
    repeated_after = []
    for _ in range(2000):
        now += 60 * SECOND
        stream.add(((0, 5),), RAW, now, urgent=True)
        stream.due(now)
        deadline = stream.deadline()
        assert deadline is not None
        repeated_after.append(deadline - now)
        at = now
        while draw.random() < 0.2:
            at = stream.deadline() or at
            stream.due(at)
        answered(stream, 0, 5, at + SECOND // 50)
    repeated_after.sort()

    assert repeated_after[1600] <= 2 * SECOND


def test_what_else_was_asked_for_waits_too_once_an_answer_took_long() -> None:
    stream = CuriosityStream(TIMES)
    stream.add(((0, 3), (5, 9)), RAW, 100)
    assert asked(stream, 104) == [103]
    answered(stream, 0, 3, 106)

    assert asked(stream, 120) == [115]


def test_what_an_answer_left_out_is_soon_asked_for_again_however_often_it_was_before() -> None:
    stream = CuriosityStream(TIMES)
    stream.add(((0, 50), (60, 70)), RAW, 100, urgent=True)
    assert asked(stream, 300) == [100, 104, 112, 128, 160, 220, 280]
    answered(stream, 0, 30, 300)

    assert asked(stream, 305) == [304]
    assert stream.ranges == ((30, 50), (60, 70))


def test_an_answer_in_pieces_takes_as_long_as_its_last_piece() -> None:
    """Each puts off the repetition of the rest, and what is asked for next has the same queue before it."""
    stream = CuriosityStream(TIMES)
    stream.add(((0, 50),), RAW, 100, urgent=True)
    stream.due(100)
    for piece in range(5):
        answered(stream, 10 * piece, 10 * piece + 10, 103 + 3 * piece)
        assert asked(stream, 103 + 3 * piece) == []

    assert stream.ranges == ()
    assert waits(stream, 200) == 4 * 15


def test_an_outage_and_a_want_without_end_say_nothing_of_the_way() -> None:
    stream = CuriosityStream(TIMES)
    stream.add(((0, FOREVER),), RAW, 100)
    assert asked(stream, 103) == [103]
    answered(stream, 0, FOREVER, 106)
    assert waits(stream, 200) == TIMES.repeat_min, "nothing was learned"

    stream.add(((5, 9),), RAW, 200)
    asked(stream, 1000)
    answered(stream, 5, 9, 1000)
    assert waits(stream, 1100) == TIMES.repeat_min


def test_reordering_that_heals_in_time_asks_for_nothing() -> None:
    stream = CuriosityStream(TIMES)
    stream.add(((0, 5),), RAW, 100)
    stream.clear(((0, 5),))

    assert stream.deadline() is None
    assert stream.due(200) == []


def test_a_probe_skips_patience_but_not_the_repetition() -> None:
    """Subject to NRT: a probe that comes again and again must not become a storm of wants (V4)."""
    stream = CuriosityStream(TIMES)
    stream.add(((0, 5),), RAW, 100)
    stream.add(((0, 5),), RAW, 101, urgent=True)

    assert stream.due(101) == [(((0, 5),), RAW, False)]

    stream.add(((0, 5),), RAW, 102, urgent=True)

    assert stream.due(102) == []
    assert stream.deadline() == 105


def test_silence_that_is_too_low_leaves_the_want_standing() -> None:
    stream = CuriosityStream(TIMES)
    stream.add(((0, 5),), {"a": 2}, 100)
    stream.clear(((0, 3),), {"a": 1})
    stream.clear(((3, 4),), {"a": 2})

    assert stream.ranges == ((0, 3), (4, 5))


def test_a_higher_need_asks_anew_although_the_lower_was_just_asked_for() -> None:
    stream = CuriosityStream(TIMES)
    stream.add(((0, 5),), {"a": 1}, 100)

    assert stream.due(103) == [(((0, 5),), {"a": 1}, False)]

    stream.add(((2, 4),), RAW, 105)

    assert stream.due(107) == [(((0, 2), (4, 5)), {"a": 1}, True)]
    assert stream.due(108) == [(((2, 4),), RAW, False)]


def test_a_lower_need_changes_nothing() -> None:
    stream = CuriosityStream(TIMES)
    stream.add(((0, 5),), {"a": 2}, 100)

    assert stream.due(103) == [(((0, 5),), {"a": 2}, False)]

    stream.add(((2, 4),), {"a": 1}, 104)

    assert stream.due(107) == [(((0, 5),), {"a": 2}, True)]
    assert asked(stream, 120) == [115]


def test_the_defaults_are_those_of_the_specification() -> None:
    """The table of docs/protocol (protocol: timers), in nanoseconds."""
    times = CuriosityStream().times

    assert (times.patience, times.stall) == (200_000_000, 3_000_000_000)
    assert (times.repeat_min, times.repeat_max) == (600_000_000, 30_000_000_000)
    assert (times.forget, times.forget_max) == (400_000_000, 10_000_000_000)


# ----------------------------------------------------------------------------------- brokers in between

wants = st.lists(st.tuples(st.integers(0, 6), intervals, stamps), max_size=12)


@given(wants)
def test_what_was_asked_for_lately_is_not_asked_for_again(wants: list[tuple[int, tuple[int, int], Stamp]]) -> None:
    recent, now = RecentWants(TIMES), 0
    asked: dict[int, tuple[Stamp, int]] = {}
    for pause, (lo, hi), need in wants:
        now += pause
        expected = {
            tick
            for tick in range(lo + 1, hi + 1)
            if tick not in asked or now >= asked[tick][1] or not covers(asked[tick][0], need)
        }
        asked.update(dict.fromkeys(expected, (need, now + 5)))

        assert recent.pass_on(((lo, hi),), need, now) == IntervalSet((tick - 1, tick) for tick in expected).ranges


def test_recent_wants_are_forgotten() -> None:
    """Memory is bounded by what is asked for in the longest time that an answer is waited for, and a period (C8)."""
    recent = RecentWants(TIMES)
    for now in range(100):
        recent.pass_on(((2 * now, 2 * now + 1),), RAW, now)

    assert len(recent) <= 25


def test_what_takes_long_is_remembered_twice_as_long() -> None:
    """If it was asked for again meanwhile, nobody knows how long it took: then for twice the time as before (RFT)."""
    recent = RecentWants(TIMES)
    assert recent.pass_on(((0, 5),), RAW, 100) == ((0, 5),)
    assert recent.pass_on(((0, 5),), RAW, 106) == ((0, 5),)
    recent.answered(0, 5, {"a": 1}, 107)  # which does not serve the need
    assert recent.pass_on(((0, 5),), RAW, 107) == ()
    recent.answered(0, 5, RAW, 108)
    recent.answered(0, 5, RAW, 119)
    assert recent.forget == 10

    recent.pass_on(((0, 5),), RAW, 200)
    recent.answered(0, 5, RAW, 208)
    recent.answered(0, 5, RAW, 219)
    assert recent.forget == 16
    recent.pass_on(((0, 5),), RAW, 300)
    assert recent.pass_on(((0, 5),), RAW, 315) == ()
    assert recent.pass_on(((0, 5),), RAW, 316) == ((0, 5),)


def test_what_was_answered_is_not_held_back() -> None:
    """Who keeps nothing asks for it again at once, and would else wait for its repetition (V1)."""
    recent = RecentWants(TIMES)
    recent.pass_on(((0, 5),), RAW, 100)
    recent.answered(0, 3, RAW, 101)

    assert recent.pass_on(((0, 5),), RAW, 102) == ((0, 3),)


def test_a_want_without_an_end_holds_nothing_back_for_longer() -> None:
    """Its answer says what is there; the rest of it is asked for window by window meanwhile."""
    recent = RecentWants(TIMES)
    recent.pass_on(((0, 5),), RAW, 100)
    recent.answered(0, 5, RAW, 108)
    assert recent.pass_on(((5, FOREVER),), RAW, 200) == ((5, FOREVER),)

    assert recent.pass_on(((8, 9),), RAW, 204) == ()
    assert recent.pass_on(((8, 9),), RAW, 205) == ((8, 9),)
    recent.answered(5, 8, RAW, 219)
    assert recent.forget == 16, "nothing was learned"


def test_no_broker_remembers_for_ever() -> None:
    recent = RecentWants(TIMES)
    recent.pass_on(((0, 5),), RAW, 100)
    recent.answered(0, 5, RAW, 119)
    recent.pass_on(((0, 5),), RAW, 200)

    assert recent.pass_on(((0, 5),), RAW, 219) == ()
    assert recent.pass_on(((0, 5),), RAW, 220) == ((0, 5),)


def test_a_broker_in_between_forgets_before_its_children_repeat() -> None:
    """Else their repetitions would die there for ever, once the one want that went up was lost (T7)."""
    assert RecentWants().times.forget < CuriosityTimes().repeat_min


def test_after_a_standstill_nothing_waits_for_a_late_repetition() -> None:
    curiosity = CuriosityStream()
    now = 1
    curiosity.add([(0, 10)], RAW, now, urgent=True)
    for _ in range(5):
        now = curiosity.deadline() or 0
        curiosity.due(now)
    times = curiosity.times
    assert curiosity.deadline() == now + 16 * times.repeat_min

    curiosity.begin_anew(now)

    assert curiosity.deadline() == now + times.patience
    assert curiosity.due(now + times.patience) == [(((0, 10),), RAW, True)]
    assert curiosity.deadline() == now + times.patience + times.repeat_min, "the waits are short again"


def test_what_is_asked_for_soon_anyway_is_not_put_off_after_a_standstill() -> None:
    curiosity = CuriosityStream()
    curiosity.add([(0, 10)], RAW, 1, urgent=True)
    curiosity.due(1)
    due = 1 + curiosity.times.repeat_min

    curiosity.begin_anew(due - curiosity.times.patience // 2)

    assert curiosity.deadline() == due
    assert curiosity.due(due) == [(((0, 10),), RAW, True)]
    assert curiosity.deadline() == due + curiosity.times.repeat_min, "the waits are short again"


def test_an_answer_to_what_was_asked_for_before_a_standstill_took_as_long_as_since_then() -> None:
    """Ranges 777405: a part of it was left to be asked for anew, as if that were the time at which it was asked for."""
    missing = CuriosityStream(TIMES)
    missing.add([(0, 100)], RAW, 10, urgent=True)
    missing.due(10)
    missing.begin_anew(11)
    missing.answered(0, 50, 11)
    missing.clear([(0, 50)])
    missing.answered(50, 100, 12)

    assert missing.due(30) == [(((50, 100),), RAW, True)]
