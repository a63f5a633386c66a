"""What the PFS does not know is fetched and examined once for all readers that are there (protocol: readers)."""

from __future__ import annotations

from collections import deque

import pytest

from gapless.core.network.facts import Want
from gapless.core.stream.columns import EventBatch
from gapless.core.stream.events import encode_event
from gapless.core.stream.intervals import Ranges
from gapless.core.stream.knowledge import Knowledge, KnowledgeConflict
from gapless.core.wire import messages as m
from gapless.selectors.filters import Filter
from gapless.selectors.index import BatchMatcher
from gapless_shb.core.catch_up.fetches import Window
from gapless_shb.core.catch_up.scan import PATIENCE, PIECE, Scan, Scanned
from gapless_shb.core.state.broker_state import CatchUp
from gapless_shb.core.state.memory import ANSWERED_WITHIN, Memory
from unit.gapless_shb.core.catch_up.test_fetches import batch
from unit.gapless_shb.core.harness import PUBEND, Client, World
from unit.gapless_shb.core.live.test_constream import push, world_with

ALL = Filter(("#",))
EVENTS = 60


def newcomers(world: World, count: int, *, credit: int = 100) -> list[Client]:
    """So many new subscriptions from the earliest, each of a selector of its own."""
    clients = [Client(f"new{number}", f"n >= {number}", m.StartAt.EARLIEST) for number in range(count)]
    for client in clients:
        world.clients.append(client)
        world.attach(client, None, credit)
    return clients


def written(count: int) -> World:
    """A world with so many events in the log, all of which are still there, and one consumer at the head."""
    world, _, _ = world_with("w = 99")
    push(world, count)
    return world


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many events each examination has looked at."""
    counts: list[int] = []
    examine = Scanned.examine

    def counted(part: Scanned, *arguments: object) -> int:
        counts.append(examine(part, *arguments))  # type: ignore[arg-type]
        return counts[-1]

    monkeypatch.setattr(Scanned, "examine", counted)
    return counts


def test_a_log_is_fetched_and_examined_once_for_all_who_are_new(looked_at: list[int]) -> None:
    world = written(EVENTS)
    world.said.clear()
    clients = newcomers(world, 5)

    world.rest()
    world.check()
    assert [len(client.consumed) for client in clients] == [EVENTS - number for number in range(5)]
    asked = [span for want in world.sent(Want) for span in want.ranges]
    fetched = sum(sum(lo < tick <= hi for tick, _, _ in world.log) for lo, hi in asked)
    assert fetched <= 2 * EVENTS, "the first one was alone when it began"
    assert sum(looked_at) <= EVENTS


def test_new_subscriptions_that_come_faster_than_answers_are_all_served_with_the_next_ones() -> None:
    """Each needs a short range of its own: what was filtered before it was known upstream."""
    world, _, _ = world_with("w = 99")
    clients: list[Client] = []
    for number in range(20):
        before = {world.shb: world.known_version}
        client = Client(f"new{number}", f"n >= {4 * number} AND n < {4 * number + 3}")
        clients.append(client)
        world.clients.append(client)
        world.attach(client, None)
        world.sync()
        for _ in range(3):
            lo = world.stable
            world.publish()
            world.deliver(Knowledge(PUBEND, lo, world.stable, stamp=before))
        push(world, raw=False)
        world.pause(1)

    rounds = 0
    while any(len(client.consumed) < 3 for client in clients):
        rounds += 1
        assert rounds <= 5
        world.answer_wants()
        world.pause(1)
        for client in clients:
            while client.inbox:
                world.consume(client)
    world.rest()
    world.check()


def test_who_comes_later_or_takes_slowly_misses_nothing() -> None:
    world = written(EVENTS)
    newcomers(world, 3, credit=2)
    world.sync()
    world.answer_holds()
    world.answer_wants()
    late = Client("late", "w = 1", m.StartAt.EARLIEST)
    world.clients.append(late)
    world.attach(late, None, 1)

    world.rest()
    world.check()
    assert late.consumed


def test_where_events_are_lost_each_is_told_its_own_gap() -> None:
    world, keeper, _ = world_with("")
    push(world, EVENTS)
    early = Client("early", "n >= 0", m.StartAt.EARLIEST)
    other = Client("other", "n >= 1", m.StartAt.EARLIEST)
    for client in (early, other):
        world.clients.append(client)
        world.attach(client, None)
    world.sync()
    world.answer_holds()
    world.lost = world.log[EVENTS // 2][0]  # its policy has given that up meanwhile, whatever is held

    world.rest()
    world.check()
    for client in (early, other):
        assert client.gaps
        assert client.consumed == [tick for tick, _, _ in world.log[EVENTS // 2 + 1 :]]
    assert not keeper.gaps


def test_who_leaves_takes_nothing_with_it_that_others_wait_for() -> None:
    world = written(EVENTS)
    clients = newcomers(world, 3)
    world.sync()
    world.answer_holds()
    for client in clients:
        world.clients.remove(client)
        world.detach(client)
    world.answer_wants()  # nobody listens any more

    newcomers(world, 2)
    world.rest()
    world.check()


def test_it_goes_on_within_the_memory_of_the_broker() -> None:
    world, _, _ = world_with("w = 99", CatchUp(memory_bytes=2_000))
    push(world, EVENTS)
    newcomers(world, 4)
    for _ in range(30):
        for ask in list(world.room_asked):
            client = next((one for one in world.clients if one.session == ask.session), None)
            if client is not None:
                world.has_room(world.session_of(client))
        world.sync()
        world.answer_holds()
        world.answer_wants()
        world.pause(300)
        for client in world.clients:
            while client.inbox:
                world.consume(client)
    world.rest()
    world.check()


# ------------------------------------------------------------------------------------------- the scan alone


class Rig:
    """A scan, and what it has asked for."""

    def __init__(self, memory: int = 128 << 20) -> None:
        self.asked: list[Ranges] = []
        self.memory = Memory(memory)
        self.own = BatchMatcher()
        self.own.add(1, ALL)
        self.scan = Scan("p@1", 1, lambda ranges, _: self.asked.append(ranges), self.memory)

    def widen(self) -> None:
        """From here on all that the test asks for fits into the window."""
        self.scan._window.span = 1 << 20

    def want(self, sid: int, horizon: int, upto: int = 10_000) -> bool:
        wanted = self.scan.want(sid, ALL, horizon, upto)
        self.scan.rest(sid)
        self.scan.start(0)
        return wanted


def test_those_who_stand_lowest_come_first_and_others_are_served_with_them() -> None:
    rig = Rig()
    assert rig.want(1, 8)
    assert rig.want(2, 5)
    assert rig.want(3, 9)
    assert [ranges[0][0] for ranges in rig.asked] == [8], "what is under way serves one of them"

    rig.scan.offer(Knowledge("p@1", 8, 20, batch(10)), ())
    assert rig.scan.take_woken() == [1, 3]
    for sid in (1, 3):
        rig.scan.rest(sid)
    rig.scan.start(0)
    assert [ranges[0][0] for ranges in rig.asked] == [8, 5]
    assert rig.scan.part(8) is not None
    assert rig.scan.part(7) is None


def test_who_stands_low_goes_first_but_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Window, "learn", lambda *_, **__: None)
    rig = Rig()
    rig.want(2, 0)
    rig.want(1, 5_000)
    for served in range(100):
        ((lo, hi),) = rig.asked[-1]
        if lo == 5_000:
            break
        assert (lo, hi) == (10 * served, 10 * served + 10)
        rig.scan.offer(Knowledge("p@1", lo, hi, batch(hi)), ())
        assert rig.scan.take_woken() == [2]
        rig.want(2, hi)
    assert 0 < served <= PATIENCE + 1


def test_short_ranges_far_from_each_other_are_asked_for_at_once() -> None:
    """Each new subscription needs such a one. One at a time, only so many of them would be served a second."""
    rig = Rig()
    rig.widen()
    for sid in range(1, 51):
        rig.scan.want(sid, ALL, 100 * sid, 100 * sid + 20)
    rig.scan.start(0)
    assert rig.asked == [tuple((100 * sid, 100 * sid + 20) for sid in range(1, 51))]

    rig.want(51, 110, 150)
    rig.want(52, 7_000, 7_010)
    assert rig.asked[1:] == [((7_000, 7_010),)], "part of what the other needs is under way: it goes on behind that"

    for sid in (30, 3, 20):
        rig.scan.offer(Knowledge("p@1", 100 * sid, 100 * sid + 20, batch(100 * sid + 5)), ())
        assert rig.scan.take_woken() == [sid]
        assert rig.scan.part(100 * sid) is not None


def test_who_stands_higher_waits_until_all_is_here_that_fills_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Window, "learn", lambda *_, **__: None)
    rig = Rig()
    rig.want(1, 0)
    rig.want(2, 5_000)
    rig.scan.offer(Knowledge("p@1", 0, 5, batch(5)), ())
    assert rig.scan.take_woken() == [1]
    rig.want(1, 5)
    assert len(rig.asked) == 1

    rig.scan.offer(Knowledge("p@1", 5, 10, batch(10)), ())
    assert rig.scan.take_woken() == [1]
    rig.want(1, 10)
    assert rig.asked[1:] == [((10, 20),)], "and then those who stand lowest go first again"


def test_what_nobody_answers_does_not_keep_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Window, "learn", lambda *_, **__: None)
    rig = Rig()
    rig.want(1, 0)
    rig.want(2, 5_000)
    assert rig.asked == [((0, 10),)], "it fills the window"

    rig.scan.start(ANSWERED_WITHIN - 1)
    assert len(rig.asked) == 1
    rig.scan.start(ANSWERED_WITHIN)
    assert rig.asked[1:] == [((5_000, 5_010),)]

    rig.scan.offer(Knowledge("p@1", 0, 5, batch(5)), ())
    assert rig.scan.take_woken() == [1]
    rig.want(1, 5)
    rig.want(3, 7_000)
    assert len(rig.asked) == 2, "what is answered piece by piece is waited for"


def with_holes_at_the_front(rig: Rig, count: int) -> None:
    """So many readers wait far from each other; for each came a large event, but not what lies below it."""
    rig.widen()
    for sid in range(1, count + 1):
        rig.want(sid, 100 * sid, 100 * sid + 20)
    for sid in range(1, count + 1):
        offer_upper_half(rig, sid)


def offer_upper_half(rig: Rig, sid: int) -> None:
    large = EventBatch([100 * sid + 15], [encode_event("t", {}, None, bytes(900_000))], [900_000])
    rig.scan.offer(Knowledge("p@1", 100 * sid + 10, 100 * sid + 20, large), ())


def test_what_is_under_way_holds_no_more_than_a_fetch_may() -> None:
    rig = Rig()
    with_holes_at_the_front(rig, 8)
    assert 2 << 20 < rig.memory.pages < 3 << 20

    rig.scan.start(0)
    assert len(rig.asked) == 8, "what was left to a later fetch is not asked for while there is no room for it"

    for sid in (1, 2):
        rig.scan.offer(Knowledge("p@1", 100 * sid, 100 * sid + 10), ())
        assert rig.scan.take_woken() == [sid]
        rig.scan.leave(sid)
    rig.scan.start(0)
    assert rig.asked[8:] == [tuple((100 * sid, 100 * sid + 20) for sid in range(4, 9))], "now there is"


def test_an_answer_that_is_at_hand_is_not_asked_for_and_left_for_ever() -> None:
    """Seed 60013 of delta: the cache of the broker's own router answers in the instant in which it is asked."""
    rig = Rig()
    with_holes_at_the_front(rig, 8)
    for _ in range(100):
        asked = len(rig.asked)
        rig.scan.start(0)
        for lo, _ in (span for ranges in rig.asked[asked:] for span in ranges):
            offer_upper_half(rig, lo // 100)
        if len(rig.asked) == asked:
            break
    else:
        pytest.fail("it is asked for in circles")


def test_what_has_come_makes_it_no_less_that_may_be_under_way() -> None:
    """Seed 106841 of delta: one large event took the room for itself, and there was room again when it was left."""
    rig = Rig(1 << 20)
    rig.widen()
    rig.want(1, 100, 120)
    rig.want(2, 200, 220)
    small = EventBatch([115], [encode_event("t", {}, None, bytes(30_000))], [30_000])
    for _ in range(100):
        asked = len(rig.asked)
        offer_upper_half(rig, 2)
        rig.scan.offer(Knowledge("p@1", 110, 120, small), ())
        rig.scan.start(0)
        if len(rig.asked) == asked:
            break
    else:
        pytest.fail("it is asked for in circles")

    rig.scan.offer(Knowledge("p@1", 200, 210), ())
    assert rig.scan.take_woken() == [2]


def test_what_a_reader_is_about_to_take_is_not_given_up_for_what_comes_behind_it() -> None:
    """Seed 106185 of delta: it asked for all of that again, in each of its turns."""
    rig = Rig(1 << 20)
    rig.widen()
    rig.want(1, 0, 60)
    rig.scan.offer(Knowledge("p@1", 0, 10, batch(5)), ())
    for lo in range(10, 60, 10):
        large = EventBatch([lo + 5], [encode_event("t", {}, None, bytes(900_000))], [900_000])
        rig.scan.offer(Knowledge("p@1", lo, lo + 10, large), ())

    assert rig.scan.take_woken() == [1]
    assert rig.scan.part(0) is not None

    assert rig.memory.pages < 2 << 20


def test_what_nobody_waits_for_any_more_takes_no_room() -> None:
    rig = Rig()
    with_holes_at_the_front(rig, 3)
    rig.scan.leave(1)
    rig.scan.leave(2)
    rig.want(9, 5_000, 5_010)
    assert rig.asked[-1] == ((5_000, 5_010),)
    assert rig.memory.pages < 1 << 20


def test_where_each_fetches_for_itself_is_not_forgotten() -> None:
    rig = Rig()
    rig.widen()
    rig.want(1, 100, 110)
    rig.want(2, 200, 210)
    rig.scan.offer(Knowledge("p@1", 0, 300, lost=300), ())
    assert rig.scan.take_woken() == [1, 2]
    assert not rig.want(1, 100, 110)
    assert not rig.want(2, 200, 210)


def test_a_contradiction_at_one_place_keeps_no_answer_from_another() -> None:
    rig = Rig()
    rig.widen()
    rig.want(1, 100, 110)
    rig.want(2, 200, 210)
    rig.scan.offer(Knowledge("p@1", 105, 110, batch(107)), ())
    with pytest.raises(KnowledgeConflict):
        rig.scan.offer(Knowledge("p@1", 105, 300, batch(205)), ())
    assert rig.scan.take_woken() == [2]


def test_who_is_ahead_waits_while_others_are_about_to_take_what_would_be_given_up() -> None:
    rig = Rig()
    rig.want(1, 0)
    rig.want(2, 0)
    rig.scan.offer(Knowledge("p@1", 0, 10, batch(5)), ())
    assert rig.scan.take_woken() == [1, 2]
    rig.want(1, 10)
    assert len(rig.asked) == 1, "the other one has not taken it yet"

    rig.scan.rest(2)
    rig.scan.start(0)
    assert len(rig.asked) == 2


def test_readers_stay_together_however_long_a_log_is() -> None:
    """All of a log that is larger than what is kept is fetched once: it comes in pieces, and few go on at a time."""
    rig, end = Rig(128_000), 20_000
    at = dict.fromkeys(range(1, 31), 0)
    runnable = deque(at)
    answered, coming = 0, deque[Knowledge]()
    while runnable or coming:
        if coming:
            rig.scan.offer(coming.popleft(), ())
            runnable.extend(rig.scan.take_woken())
        if not runnable:
            continue
        sid = runnable.popleft()
        if at[sid] == end:
            rig.scan.leave(sid)
        elif (part := rig.scan.part(at[sid])) is not None:
            at[sid] = part.upto
            runnable.append(sid)
        else:
            rig.scan.want(sid, ALL, at[sid], end)
            rig.scan.rest(sid)
        rig.scan.start(0)
        for ((lo, hi),) in rig.asked[answered:]:
            for first in range(lo, hi, 100):
                last = min(first + 100, hi)
                coming.append(Knowledge("p@1", first, last, batch(*range(first + 1, last + 1))))
        answered = len(rig.asked)

    assert set(at.values()) == {end}
    assert sum(hi - lo for ((lo, hi),) in rig.asked) == end


def test_large_parts_are_examined_piece_by_piece_and_by_whom_has_joined() -> None:
    rig = Rig()
    rig.widen()
    rig.want(1, 0)
    rig.want(2, 0)
    rig.scan.offer(Knowledge("p@1", 0, 9_000, batch(*range(1, 2 * PIECE + 11))), ())
    assert rig.scan.take_woken() == [1, 2]

    at, examined = 0, []
    while (part := rig.scan.part(at)) is not None:
        assert part.page is not None
        for sid in (1, 2):
            mask, count = rig.scan.mask_of(sid, ALL, rig.own, part)
            assert mask == (1 << len(part.page.ticks)) - 1
            examined.append(count)
        late = rig.scan.mask_of(3, ALL, rig.own, part), rig.scan.mask_of(3, ALL, rig.own, part)
        assert late == ((mask, len(part.page.ticks)), (mask, 0)), "it has come later, and looks itself, once"
        rig.scan.leave(3)
        at = part.upto
    assert at == 9_000
    assert examined == [PIECE, 0, PIECE, 0, 10, 0]


def test_what_the_log_has_lost_is_kept_here_no_longer() -> None:
    rig = Rig()
    rig.want(1, 0)
    rig.scan.offer(Knowledge("p@1", 0, 10, batch(5)), ())
    rig.scan.offer(Knowledge("p@1", 20, 30, EventBatch((), (), ())), ((5, 9),))
    assert rig.scan.part(0) is not None, "no event of it lies there"
    rig.scan.offer(Knowledge("p@1", 20, 30, EventBatch((), (), ())), ((4, 9),))
    assert rig.scan.part(0) is None

    rig.want(1, 0)
    rig.scan.offer(Knowledge("p@1", 0, 10, batch(5)), ())
    rig.scan.forget(3, 6)
    assert rig.scan.part(0) is None


def test_nothing_is_kept_when_nobody_is_left() -> None:
    rig = Rig()
    rig.want(1, 0)
    rig.scan.offer(Knowledge("p@1", 0, 10, batch(5)), ())
    assert rig.memory.pages > 0

    rig.scan.leave(1)
    assert rig.memory.pages == 0
    assert rig.scan.part(0) is None


def test_parts_that_were_used_last_are_kept() -> None:
    rig = Rig()
    for first in range(10):
        rig.want(1, 10 * first)
        large = EventBatch([10 * first + 5], [encode_event("t", {}, None, bytes(1 << 20))], [1 << 20])
        rig.scan.offer(Knowledge("p@1", 10 * first, 10 * first + 10, large), ())
        rig.scan.take_woken()
        rig.scan.rest(1)
    assert 3 << 20 < rig.memory.pages <= 4 << 20
    assert rig.scan.part(95) is not None
    assert rig.scan.part(5) is None
