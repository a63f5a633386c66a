"""Who gets which events of a shared subscription: in turn, in runs, and alone what a consumer died with."""

from __future__ import annotations

from typing import Any

from gapless.core.link_credit import LinkCredit
from gapless.core.ports import Tell, Transmit
from gapless.core.principals import NOBODY
from gapless.core.stream.columns import EventBatch
from gapless.core.stream.events import Extras, encode_event
from gapless.core.stream.ticks import FOREVER
from gapless.core.wire.codec import decode_server
from gapless.core.wire.messages import DeliverHeld, DeliverHeldGap, GapReason, Sharing
from gapless.core.wire.messages.sharing import RUN_MAX
from gapless_shb.core.shared.dispatch import Dispatch, Member
from gapless_shb.core.shared.settling import Ceiling
from gapless_shb.core.shared.window import Run, Window
from gapless_shb.core.state.consumers import Channel
from gapless_shb.core.state.counts import Counts
from gapless_shb.core.state.memory import Memory
from gapless_shb.core.state.segments import GapSegment

WALL = 1000


def batch(*ticks: int, size: int = 10, expiration: int = 0) -> EventBatch:
    extras = Extras(expiration=expiration) if expiration else None
    events = [encode_event("t", {}, extras, b"x" * size) for _ in ticks]
    return EventBatch(list(ticks), events, [size] * len(ticks))


class Table:
    """Some windows and members."""

    def __init__(self, *names: str, credit: int = 1000) -> None:
        self.said: dict[int, list[Any]] = {}
        self.unflushed: list[Channel] = []
        self.windows = {"p@1": Window("p@1", 0), "q@1": Window("q@1", 0)}
        self.members = {name: self.member(name, number + 1, credit) for number, name in enumerate(names)}
        self.ceiling = Ceiling()
        self.ceiling.ask_open(True)
        self.ceiling.written(1 << 40, {"p@1": 1 << 40, "q@1": 1 << 40}, 1)
        self.changed: list[Window] = []
        self.dispatch = Dispatch(self.members, self.windows, self.ceiling, self.changed.append)

    def member(self, name: str, session: int, credit: int) -> Member:
        def emit(effect: object) -> None:
            if isinstance(effect, Transmit):
                self.said.setdefault(session, []).extend(decode_server(a + b) for a, b in effect.payloads)
            elif isinstance(effect, Tell):
                self.said.setdefault(session, []).append(effect.message)

        link = LinkCredit(FOREVER, 0)
        channel = Channel(session, emit, self.unflushed, link, Memory(1 << 30), Counts())
        sharing = Sharing(100, durable=True)
        return Member(channel, credit, 1 << 30, 1 << 20, 7, name, 1, NOBODY, 0, sharing, is_entered=True)

    def hand_out(self, *, hidden: bool = False) -> list[tuple[str, list[int], bool]]:
        """Who was given what, and whether it was careful."""
        runs = list(self.dispatch.hand_out(5, WALL, hidden=hidden))
        while self.unflushed:
            self.unflushed.pop().flush()
        return [(run.holder.instance, list(run.ticks), run.is_careful) for run in runs]

    def settle(self, run: Run) -> None:
        mask = run.mask
        run.holder.release(run, mask)
        run.window.settle(run.chunk, mask)

    def die(self, name: str, *, taken: bool) -> None:
        """Somebody dies with all that it holds."""
        member = self.members.pop(name)
        for run in list(member.runs):
            run.taken = run.mask if taken else 0
            mask = run.mask
            member.release(run, mask)
            run.window.free(run, mask, doubt=True, death=True, verdict=False)


def test_consumers_get_runs_in_turn() -> None:
    table = Table("a", "b", "c")
    table.windows["p@1"].put(batch(*range(1, 201)))

    given = table.hand_out()

    assert [name for name, _, _ in given] == ["a", "b", "c", "a"] or len({name for name, _, _ in given}) == 3
    assert [len(ticks) for _, ticks, _ in given] == [RUN_MAX, RUN_MAX, RUN_MAX, 200 - 3 * RUN_MAX]
    assert [tick for _, ticks, _ in given for tick in ticks] == list(range(1, 201))
    assert table.hand_out() == []


def test_nobody_gets_more_than_its_credit_or_before_it_is_in_the_roster() -> None:
    table = Table("a", "b", "c", credit=5)
    table.members["b"].is_entered = False
    table.members["c"].is_here = False
    table.windows["p@1"].put(batch(*range(1, 21)))

    assert table.hand_out() == [("a", [1, 2, 3, 4, 5], False)]
    table.members["b"].is_entered = True
    assert table.hand_out() == [("b", [6, 7, 8, 9, 10], False)]


def test_pubends_take_turns() -> None:
    table = Table("a", credit=128)
    table.windows["p@1"].put(batch(*range(1, 201)))
    table.windows["q@1"].put(batch(*range(1, 201)))

    assert sorted(run.window.pubend for run in table.dispatch.hand_out(5, WALL, hidden=False)) == ["p@1", "q@1"]


def test_what_is_careful_goes_apart_with_its_attempts() -> None:
    table = Table("a")
    window = table.windows["p@1"]
    window.put(batch(1, 2, 3, 4))
    chunk = next(iter(window))
    window.attempt(chunk, 0b0010)
    chunk.doubt = 0b0100

    assert table.hand_out() == [("a", [1, 4], False), ("a", [2, 3], True)]
    deliveries = [each for each in table.said[1] if isinstance(each, DeliverHeld)]
    assert [(each.first, each.careful, each.attempts) for each in deliveries] == [
        (1, False, b""),
        (3, True, b"\x01\x00"),
    ]


def test_what_is_alike_goes_together_however_far_apart_it_stands() -> None:
    table = Table("a")
    window = table.windows["p@1"]
    window.put(batch(*range(1, 257)))
    window.attempt(next(iter(window)), sum(1 << place for place in range(0, 256, 20)))

    careful = [ticks for _, ticks, is_careful in table.hand_out() if is_careful]
    assert careful == [list(range(1, 257, 20))]


def test_what_is_in_doubt_is_kept_back_for_a_while() -> None:
    table = Table("a")
    window = table.windows["p@1"]
    window.put(batch(1, 2, 3))
    next(iter(window)).doubt = 0b011

    assert table.hand_out(hidden=True) == [("a", [3], False)]
    assert table.hand_out(hidden=True) == []
    assert table.hand_out() == [("a", [1, 2], True)]


def test_what_a_consumer_died_with_goes_alone_and_the_others_go_on() -> None:
    """TS15, TS23."""
    table = Table("a", "b", "c")
    window = table.windows["p@1"]
    window.put(batch(1, 2))
    table.members["b"].is_here = table.members["c"].is_here = False
    assert table.hand_out() == [("a", [1, 2], False)]
    table.die("a", taken=True)
    table.members["b"].is_here = table.members["c"].is_here = True
    window.put(batch(*range(3, 103)))

    given = table.hand_out()
    alone = [(name, ticks) for name, ticks, careful in given if careful]
    assert sorted(ticks for _, ticks in alone) == [[1], [2]]
    assert len({name for name, _ in alone}) == 2
    assert not [each for each in given if not each[2]], "nobody is left for the others"
    one = table.members[alone[0][0]]
    table.settle(one.runs[0])
    given = table.hand_out()
    assert {name for name, _, _ in given} == {one.instance}
    assert [tick for _, ticks, _ in given for tick in ticks] == list(range(3, 103))


def test_whoever_is_chosen_gets_nothing_until_it_holds_nothing() -> None:
    table = Table("a", "b")
    window = table.windows["p@1"]
    window.put(batch(1, 2))
    table.members["b"].credit_events = 0
    assert table.hand_out() == [("a", [1, 2], False)]
    table.members["c"] = table.member("c", 3, 1000)
    window.put(batch(3))
    assert table.hand_out() == [("c", [3], False)]
    table.die("c", taken=True)
    table.members["b"].credit_events = 1000
    window.put(batch(4, 5))

    given = table.hand_out()

    assert ("b", [3], True) in given, "it held nothing"
    assert ("a", [4, 5], False) in given


def test_what_its_consumer_never_took_does_not_go_alone() -> None:
    table = Table("a", "b")
    table.members["b"].is_here = False
    table.windows["p@1"].put(batch(1, 2))
    table.hand_out()
    table.die("a", taken=False)
    table.members["b"].is_here = True

    assert table.hand_out() == [("b", [1, 2], True)]


def test_what_has_expired_meanwhile_is_settled() -> None:
    table = Table("a")
    window = table.windows["p@1"]
    window.put(batch(1, expiration=WALL - 1))
    window.put(batch(2))
    window.put(batch(3, expiration=WALL + 1))

    assert table.hand_out() == [("a", [2, 3], False)]
    assert window.floor == 1
    assert table.changed == [window]


def test_a_gap_goes_by_itself_and_so_does_what_no_frame_can_carry() -> None:
    table = Table("a")
    window = table.windows["p@1"]
    window.put(batch(1))
    window.put_gap(GapSegment(1, 9, GapReason.CUT))
    window.put(batch(10, size=2 << 20))
    window.put(batch(11))

    assert [ticks for _, ticks, _ in table.hand_out()] == [[1], [9], [10], [11]]
    gaps = [each for each in table.said[1] if isinstance(each, DeliverHeldGap)]
    assert [(each.held, each.start, each.end, each.reason) for each in gaps] == [
        (2, 1, 9, GapReason.CUT.value),
        (3, 9, 10, GapReason.TOO_LARGE.value),
    ]


def test_nothing_is_delivered_above_the_ceiling() -> None:
    """TS28, TS29."""
    table = Table("a")
    table.ceiling.durable = 3
    table.windows["p@1"].put(batch(1, 2, 3, 4, 5))

    assert table.hand_out() == [("a", [1, 2, 3], False)]
    assert table.ceiling.is_wanted
    table.ceiling.durable = 10
    table.ceiling.sent["p@1"] = 4
    assert table.hand_out() == []
    assert table.ceiling.is_wanted


def test_a_run_is_found_by_any_of_its_numbers() -> None:
    table = Table("a")
    member, window = table.members["a"], table.windows["p@1"]
    window.put(batch(*range(1, 101)))
    table.hand_out()

    first, second = member.runs
    assert [member.find(number) for number in (0, 1, 64, 65, 100, 101)] == [None, first, first, second, second, None]
    assert second.named((65, 66, 67), (65, 66, 67), 0) == (3, 0b111 << 64)
    table.settle(first)
    assert member.find(64) is None
    assert member.held == 36


def test_consumers_take_turns_with_events_that_come_one_by_one() -> None:
    table = Table("a", "b", "c")
    given: list[str] = []
    for tick in range(1, 7):
        table.windows["p@1"].put(batch(tick))
        given += [name for name, _, _ in table.hand_out()]
    assert given == ["a", "b", "c"] * 2


def test_a_run_knows_what_it_has_delivered_beside_what_is_left_out() -> None:
    table = Table("a")
    table.windows["p@1"].put(batch(*range(10, 20)))
    table.hand_out()
    run = table.members["a"].runs[0]
    first = run.first
    assert run.named((10, 11, 12), (first, first + 1, first + 2), 0) == (3, 0b111)
    assert run.named((10, 12, 15), (first, first + 2, first + 5), 0) == (3, 0b100101)
    assert run.named((10, 12, 16), (first, first + 2, first + 5), 0) == (2, 0b101), "another tick is no event of it"
    assert run.named((10, 12, 12), (first, first + 2, first + 2), 0) == (2, 0b101), "each is named once"
    assert run.named((10, 12, 11), (first, first + 2, first + 1), 1) == (1, 0b100), "in their order"
    assert run.named((19, 20), (first + 9, first + 10), 0) == (1, 1 << 9), "it has no more"
    assert run.named((9,), (first,), 0) == (0, 0)
