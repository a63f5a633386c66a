"""What is held for clients is bounded for all of them together, and nobody is forgotten (protocol: credit)."""

from __future__ import annotations

import pytest

from gapless.core.gauges import values_by
from gapless.core.link_credit import LinkCredit
from gapless.core.ports import AskRoom
from gapless.core.stream.columns import EventBatch
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import MILLISECOND
from gapless.core.wire import messages as m
from gapless.selectors.filters import Filter
from gapless.selectors.index import BatchMatcher
from gapless_shb.core.catch_up.fetches import RangeFetch, TickFetch, nearness
from gapless_shb.core.state import gauges
from gapless_shb.core.state.broker_state import CatchUp
from gapless_shb.core.state.consumers import Channel, Credited
from gapless_shb.core.state.counts import Counts
from gapless_shb.core.state.memory import ANSWERED_WITHIN, FIRST, EventSizes, Memory
from unit.gapless_shb.core.harness import FORGETFUL, Client, World
from unit.gapless_shb.core.live.test_constream import push, world_with
from unit.gapless_shb.core.ranges.harness import RangeWorld
from unit.gapless_shb.core.ranges.test_acknowledging import attached

MOST = 1024 * 100
"""A budget of which a link may always hold 100 bytes."""


class Link(Credited):
    """A receiver that grants all that is wanted, and from whose link nothing leaves by itself."""

    def __init__(self, memory: Memory, session: int) -> None:
        self.said: list[object] = []
        self.channel = Channel(session, self.said.append, [], LinkCredit(16 << 20, memory.least // 2), memory, Counts())
        self.credit_events, self.credit_bytes, self.payload_max = 1 << 30, 1 << 40, 4 << 20

    def fill(self, size: int) -> int:
        """It is given as many pieces of a size as may be. Returns how many."""
        count = 0
        while self.spend_all(1, size):
            self.channel.charge(size)
            count += 1
        return count

    def leave(self, left: int) -> None:
        """Only so many bytes wait still."""
        assert any(isinstance(effect, AskRoom) for effect in self.said), "nobody asks"
        self.said.clear()
        self.channel.on_room(left)


@pytest.mark.parametrize("links", [1, 10, 1_000])
@pytest.mark.parametrize("size", [10, 99, 3_000])
def test_links_together_hold_no_more_than_the_budget_and_what_each_may_have(links: int, size: int) -> None:
    memory = Memory(MOST)
    several = [Link(memory, session) for session in range(1, links + 1)]
    held = sum(size * link.fill(size) for link in several)

    assert held <= MOST + links * (memory.least + 99)
    assert held >= min(MOST // 3, links * size)


def test_they_have_about_the_same() -> None:
    memory = Memory(MOST)
    held = [Link(memory, session).fill(50) for session in range(1, 4)]
    assert held[0] >= held[1] >= held[2]
    assert held[2] > MOST // 50 // 16, "the last one finds something, too"


def test_a_little_reaches_a_client_whatever_others_hold() -> None:
    memory = Memory(MOST)
    for session in range(1, 2_000):
        Link(memory, session).fill(1_000)

    assert Link(memory, 2_000).fill(30) >= memory.least // 30


def test_who_finds_no_memory_has_its_turn_when_there_is_some() -> None:
    memory = Memory(MOST)
    holder = Link(memory, 1)
    holder.fill(1_000)
    waiting = [Link(memory, session) for session in range(2, 5)]
    size = memory.free + 1
    assert [link.fill(size) for link in waiting] == [0, 0, 0]
    assert all(link.starved for link in waiting), "else their first event would be told as one that is too large"
    assert memory.take_turns() == []

    holder.leave(0)
    assert memory.take_turns() == [2], "what is free would do for one"
    assert waiting[0].channel.on_memory()
    assert waiting[0].fill(size) == 1
    assert memory.take_turns() == []

    waiting[1].channel.close()
    waiting[0].channel.close()
    assert memory.take_turns() == [4], "the session of the second is over"
    assert memory.links == 0


def test_a_piece_that_is_larger_than_all_memory_is_alone_in_it() -> None:
    memory = Memory(MOST)
    first, second = Link(memory, 1), Link(memory, 2)
    assert first.fill(2 * MOST) == 1
    assert second.fill(2 * MOST) == 0

    first.leave(0)
    assert memory.take_turns() == [2]


def test_shared_pages_leave_most_of_it_to_others() -> None:
    memory = Memory(MOST)
    for _ in range(100):  # of so many pubends
        memory.pages += memory.pages_most(0)

    assert memory.free >= MOST // 2


def test_how_many_events_are_fetched_depends_on_what_they_weigh() -> None:
    sizes = EventSizes()
    assert sizes.fitting(1_000) == FIRST
    sizes.learn(0, 0)
    assert sizes.fitting(1_000) > FIRST, "nothing came of those"

    sizes.learn(10, 1_000)
    assert sizes.fitting(1_000) == 10
    sizes.learn(1, 5_000)
    assert sizes.fitting(1_000) == 1, "at least one"
    for _ in range(10):
        sizes.learn(100, 1_000)
    assert sizes.fitting(1_000) == 100


# -------------------------------------------------------------------------------------- what readers ask for


class Asker:
    """A reader that asks for one piece."""

    def __init__(self, memory: Memory, size: int) -> None:
        self.memory, self.size, self.now = memory, size, 0

    def ask(self, *, in_turn: bool = False) -> bool:
        if not self.memory.may_fetch(self, self.size, self.now, in_turn=in_turn):
            return False
        self.memory.ask(self, self.size, self.now)
        return True

    def on_memory(self, now: int, wall: int) -> None:
        self.now = now
        assert self.ask(in_turn=True), "its turn has come"


def serve(memory: Memory, now: int = 0) -> list[Asker]:
    turns = memory.take_fetchers(now)
    for fetcher in turns:
        fetcher.on_memory(now, 0)
    return [fetcher for fetcher in turns if isinstance(fetcher, Asker)]


def test_readers_together_ask_for_no_more_than_is_left_for_links_and_take_turns() -> None:
    memory = Memory(MOST)
    askers = [Asker(memory, MOST // 20) for _ in range(30)]
    assert sum(asker.ask() for asker in askers) == 10
    assert memory.asked <= memory.free
    assert serve(memory) == []

    memory.forget(askers[3])
    assert memory.deadline(7) == 8, "at once"
    assert not askers[3].ask(), "others came before"
    assert serve(memory) == [askers[10]]
    for asker in askers[:3]:
        memory.answered(asker)
        memory.readers += asker.size
    assert serve(memory) == [], "it is here, and nobody has taken it"
    memory.readers = 0
    memory.forget(askers[11])
    assert serve(memory) == askers[12:15], "in their order, but for one that is over"
    assert memory.asked <= memory.free


def test_one_may_always_ask_and_what_is_small_waits_for_nobody() -> None:
    """What readers hold, and cannot give away, may stay for long."""
    memory = Memory(MOST)
    memory.links = memory.readers = MOST
    first, second = Asker(memory, 3 * MOST), Asker(memory, 101)
    assert first.ask()
    assert not second.ask()
    assert Asker(memory, memory.least).ask()

    memory.forget(first)
    assert serve(memory) == []
    memory.asked, memory._asked = 0, {}
    assert serve(memory) == [second]


def test_what_is_not_answered_soon_keeps_nobody_waiting() -> None:
    memory = Memory(MOST)
    of_one_that_is_gone, other = Asker(memory, MOST // 2), Asker(memory, MOST // 2)
    assert of_one_that_is_gone.ask()
    assert not other.ask()
    assert memory.deadline(1) == ANSWERED_WITHIN

    assert serve(memory, ANSWERED_WITHIN - 1) == []
    assert serve(memory, ANSWERED_WITHIN) == [other]
    memory.answered(of_one_that_is_gone)
    assert memory.asked == other.size


# ------------------------------------------------------------------------------------------------ fetches


def batch(*ticks: int) -> EventBatch:
    """Events of 10 bytes."""
    return EventBatch(list(ticks), [b"0123456789"] * len(ticks), [1] * len(ticks))


def test_a_fetch_of_ticks_leaves_what_is_too_much_to_the_next_one() -> None:
    fetch = TickFetch("p@1", 0, [10, 20, 30, 40], 50, nearness(MILLISECOND), None)
    fetch.offer(Knowledge("p@1", 15, 50, batch(20, 30, 40)))
    fetch.bound(25)
    assert (fetch.upto, fetch.held, fetch.complete) == (30, 20, False)

    fetch.offer(Knowledge("p@1", 0, 15, batch(10)))
    fetch.bound(25)
    assert fetch.complete
    assert (fetch.upto, fetch.held, fetch.count) == (20, 20, 2)
    [events] = fetch.segments(())
    assert isinstance(events, EventBatch)
    assert list(events.ticks) == [10, 20]


def test_one_event_is_never_too_much() -> None:
    fetch = TickFetch("p@1", 0, [10, 20], 50, nearness(MILLISECOND), None)
    fetch.offer(Knowledge("p@1", 0, 50, batch(10, 20)))
    fetch.bound(1)
    assert (fetch.upto, fetch.held, fetch.complete) == (10, 10, True)


def test_a_fetch_of_a_range_leaves_what_is_too_much_to_the_next_one_and_takes_nothing_beyond_it() -> None:
    matcher = BatchMatcher()
    matcher.add(7, Filter(("#",)))
    fetch = RangeFetch("p@1", 0, 100, matcher)
    fetch.offer(Knowledge("p@1", 10, 200, batch(20, 30, 150)))
    assert fetch.held == 20
    fetch.bound(15)
    assert (fetch.held, fetch.complete) == (10, False)

    fetch.offer(Knowledge("p@1", 0, 10, batch(5)))
    fetch.offer(Knowledge("p@1", 20, 200, batch(30, 150)))
    assert (fetch.upto, fetch.held) == (20, 20)


# ------------------------------------------------------------------------------------- a broker in one piece


def go_on(world: World) -> None:
    """What is asked for is done and answered, and some time passes."""
    world.sync()
    world.answer_holds()
    world.read()
    world.answer_wants()
    world.pause(300)


def held(world: object, holder: str) -> float:
    """What the gauge says."""
    return values_by(world.role.gauges(), gauges.MEMORY, "holder")[holder]  # type: ignore[attr-defined]


def test_consumers_that_do_not_read_leave_room_and_the_next_in_line_gets_it() -> None:
    """Of each of several sessions the link is full; when one of them is over, others go on, and all get everything."""
    world, client, _ = world_with("", CatchUp(memory_bytes=1_000))
    clients = [client] + [Client(f"c{number}", "") for number in range(5)]
    for other in clients[1:]:
        world.clients.append(other)
        world.attach(other, None)
    go_on(world)
    push(world, 30)
    go_on(world)
    assert held(world, "links") <= 1_000 + 100
    assert any(len(one.inbox) < 30 for one in clients)

    for _ in range(200):
        for ask in list(world.room_asked):
            world.has_room(next(world.session_of(one) for one in clients if one.session == ask.session))
        go_on(world)
    for one in clients:
        while one.inbox:
            world.consume(one)
        assert one.consumed == [row[0] for row in world.log]
    for one in clients:
        world.detach(one)
    assert [held(world, holder) for holder in ("links", "readers")] == [0, 0]


def test_a_range_reader_whose_client_takes_nothing_holds_nothing_where_memory_is_short() -> None:
    """And reads on from where it stands when the client has room."""
    world = attached(FORGETFUL)
    memory = world.hosting.memory
    number = world.read_range(world.start, world.stable, 7)
    world.calm()
    assert held(world, "readers") > 0, "there is enough for everybody"
    world.say(m.EndRead(number))
    assert held(world, "readers") == 0

    memory.links = memory._most
    number = world.read_range(world.start, world.stable, 7)
    world.calm()
    assert len(world.readings[number].ticks) == 7
    assert held(world, "readers") == 0

    memory.links = 0
    world.readings[number].credit += 100
    world.say(m.ReadOn(number, 100, 1 << 20))
    world.calm()
    assert number not in world.readings
    assert held(world, "readers") == 0


@pytest.mark.parametrize("selector", ["", "w = 1"])
def test_range_readers_that_begin_at_once_do_not_fetch_at_once_where_events_are_large(selector: str) -> None:
    """What was asked for counts before it is here. All of them come to their end."""
    world = RangeWorld(FORGETFUL, selector=selector).calm()
    world.body = bytes(10_000)
    world.define()
    world.calm().calm(20)
    memory = world.hosting.memory
    memory._most, memory.least = 200_000, 200
    numbers = [world.read_range(world.start, world.stable, 100) for _ in range(40)]
    world.read()
    assert memory.is_awaited
    assert 60_000 < held(world, "asked") <= 110_000, "about half"

    for _ in range(400):
        world.calm()
        if memory.links:
            world.has_room(world.client)
        if not world.readings:
            break
    assert not any(number in world.readings for number in numbers)
    assert held(world, "readers") == 0
    assert not memory.is_awaited
