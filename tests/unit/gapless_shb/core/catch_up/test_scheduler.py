"""The turns of readers: who gets one, when it ends, and what it leaves to what is live (T25, T26)."""

from __future__ import annotations

from bisect import bisect_right

import pytest
from msgspec.structs import replace

from gapless.core.network.facts import AskInterest, PubendMeta, Seen
from gapless.core.ports import AskRoom, ReadResult
from gapless.core.stream.ticks import SECOND
from gapless.core.wire import messages as m
from gapless_shb.core.pfs.blocks import TICKS_MAX
from gapless_shb.core.state.broker_state import CatchUp
from gapless_shb.core.state.consumers import rotated
from gapless_shb.core.state.turns import Turns
from unit.gapless_shb.core.harness import BASE, PUBEND, Client, World
from unit.gapless_shb.core.live.test_constream import push, world_with


def fall_behind(world: World, client: Client, count: int) -> None:
    """The consumer has no credit while so many events come."""
    world.hosting.consumers[client.sid].credit_events = client.credit = 0
    push(world, count)


def checkpoint(world: World) -> None:
    """What is known is written, and is durable."""
    world.pause(300)
    world.sync()


def grant(world: World, client: Client, events: int) -> None:
    """The consumer has so much more credit."""
    client.credit += events
    world.feed(m.Credit(client.sid, events, 0), world.session_of(client))
    world.pump()


def test_what_a_turn_leaves_goes_on_at_the_next() -> None:
    """However much there is to catch up on: what is live has its turn after so many events."""
    world, client, stream = world_with()
    push(world)
    fall_behind(world, client, TICKS_MAX)
    push(world)
    world.hosting.catch_up = CatchUp(turn_events=1)
    assert stream.scheduler.deadline() is None, "without credit it cannot go on"
    world.now += 1

    grant(world, client, 2 * TICKS_MAX)
    assert client.sid in stream.scheduler.readers
    assert stream.scheduler.interrupted == 1
    assert world.role.deadline() == world.now + 1

    world.now += 1
    world.role.on_deadline(world.now, world.wall)
    world.pump()
    assert stream.scheduler.deadline() is None
    assert client.sid in stream.live
    while client.inbox:
        world.consume(client)
    assert client.consumed == [row[0] for row in world.log]


def test_who_has_credit_but_a_full_link_waits_for_room_and_holds_nothing_up() -> None:
    """Found by a benchmark: what many subscriptions of a connection had granted together got it disconnected."""
    world, client, stream = world_with("", CatchUp(link_bytes=100))
    session = world.session_of(client)
    push(world)
    assert world.room_asked == []

    while client.sid in stream.live:
        push(world)
    assert world.room_asked == [AskRoom(client.session, 50)]
    came = len(client.inbox)
    push(world, 3)
    assert len(client.inbox) == came

    while client.sid not in stream.live:
        assert world.room_asked, "nothing else could make it go on"
        world.has_room(session)
    while client.inbox:
        world.consume(client)
    assert client.consumed == [row[0] for row in world.log]


def test_a_link_that_has_room_early_makes_nobody_wait() -> None:
    world, client, stream = world_with("", CatchUp(link_bytes=100))

    for _ in range(10):
        push(world)
        if world.room_asked:
            world.has_room(world.session_of(client))
        assert client.sid in stream.live

    assert stream.scheduler.demoted == 0


def test_consumers_and_range_reads_of_a_session_have_its_room_first_by_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    world, client, _ = world_with("", CatchUp(link_bytes=100))
    channel = world.hosting.channels[client.session]
    first: list[str] = []
    monkeypatch.setattr(world.role, "_go_on", lambda *_: first.append("consumers"))
    monkeypatch.setattr(world.role._ranges, "on_room", lambda *_: first.append("reads"))

    for _ in range(4):
        channel.charge(100)
        assert channel.is_full
        world.has_room(world.session_of(client))

    assert first == [*["reads", "consumers"], *["consumers", "reads"]] * 2


def test_those_who_wait_for_room_come_first_by_turns() -> None:
    assert [rotated("abc", turn) for turn in range(4)] == [[*"abc"], [*"bca"], [*"cab"], [*"abc"]]
    assert rotated("", 7) == []


def test_credit_that_is_scarce_is_shared_by_all_pubends() -> None:
    """The first pubend took all of every grant: who took less than came never got anything of the others."""
    world, client, _ = world_with()
    other = "q@1"
    lo = world.stable
    world.feed(Seen(PubendMeta(other, "node", created=BASE, stable=lo), lo))
    push(world)
    fall_behind(world, client, 20)
    world.deliver(replace(world.knowledge(lo, world.stable, raw=True, reply=False), pubend=other))
    client.inbox.clear()

    for _ in range(6):
        grant(world, client, 2)

    numbers = world.numbers[client.session]
    delivered = [message for _, message in client.inbox if isinstance(message, m.Deliver)]
    assert [numbers[message.number] for message in delivered].count(other) == 3
    assert [message.columns.count for message in delivered] == [2] * 6


def test_however_much_a_turn_brings_its_allowance_is_one() -> None:
    """Each of many credits and answers was allowed a whole turn's events, and who connected waited for all of them."""
    world, client, stream = world_with()
    others = [Client(name, "") for name in ("second", "third")]
    for other in others:
        world.attach(other, None)
        world.clients.append(other)
    world.sync()
    push(world)
    for each in (client, *others):
        fall_behind(world, each, TICKS_MAX)
    push(world)
    world.hosting.catch_up = CatchUp(turn_events=1)
    world.now += 1
    for each in (client, *others):
        each.inbox.clear()

    for each in (client, *others):
        grant(world, each, 4 * TICKS_MAX)
    assert [each.name for each in (client, *others) if each.inbox] == ["s"]

    for _ in range(30):
        world.pause(1)
    assert not stream.scheduler.readers


def test_what_a_turn_may_is_what_readers_look_at_and_not_what_they_send(monkeypatch: pytest.MonkeyPatch) -> None:
    """New subscriptions that match next to nothing looked at a whole log in one turn, and everybody else waited."""
    world, live, stream = world_with()
    monkeypatch.setattr(stream.scheduler, "shared_scan", lambda: None)
    count = 1_000
    push(world, count)
    live.inbox.clear()
    others = [Client(f"new{number}", "w = 99", m.StartAt.EARLIEST) for number in range(4)]
    world.lost = 0
    world.hosting.catch_up = CatchUp(turn_events=500)
    for other in others:
        world.clients.append(other)
        world.attach(other, None)
    world.sync()
    world.answer_holds()
    world.sync()
    world.answer_holds()
    assert len(stream.scheduler.readers) == len(others)

    ticks = [tick for tick, _, _ in world.log]
    examined: list[int] = []
    while stream.scheduler.readers:
        assert len(examined) < 100
        world.now += 1
        before = {sid: bisect_right(ticks, reader.horizon) for sid, reader in stream.scheduler.readers.items()}
        world.answer_wants()
        world.role.on_deadline(world.now, world.wall)
        after = {sid: bisect_right(ticks, reader.horizon) for sid, reader in stream.scheduler.readers.items()}
        examined.append(sum(after.get(sid, len(ticks)) - before[sid] for sid in before))
        world.pump()
        push(world)
        assert len(live.inbox) == 1, "what is live is delivered all the while"
        live.inbox.clear()
    assert max(examined) <= 1_000, "one piece of work"
    assert sum(examined) == len(others) * len(ticks)


def test_turns_that_take_long_are_made_shorter_and_longer_again() -> None:
    turns = Turns()
    second = 1_000_000_000
    allowed = []
    for turn in range(4):  # a second each, and always something is left over
        allowed.append(turns.allowance(turn * second, 16_384))
        turns.end("p@1", left_over=True)
    assert allowed == [16_384, 8_192, 4_096, 2_048]

    allowed = []
    for turn in range(4):
        allowed.append(turns.allowance(4 * second + turn * 1_000_000, 16_384))
        turns.end("p@1", left_over=True)
    assert allowed == [1_024, 2_048, 4_096, 8_192]


def test_pubends_share_a_turn() -> None:
    turns = Turns()
    turns.allowance(1, 16_384)
    for name in ("p@1", "q@1"):
        turns.end(name, left_over=True)
    assert turns.allowance(2, 16_384) == 8_192
    assert turns.allowance(2, 1) == 1, "everybody gets something"
    turns.end("q@1", left_over=False)
    assert turns.allowance(3, 16_384) == 16_384


def test_readers_of_one_pubend_do_not_wait_for_those_of_another() -> None:
    """Found by the simulator (local 7887): with one allowance for all, the first pubend used it up, turn after turn."""
    world, client, stream = world_with()
    seen = Seen(PubendMeta("q@1", "node", created=BASE, stable=world.stable), world.stable)
    world.feed(seen)
    other = world.hosting.streams["q@1"]
    lo = world.stable
    fall_behind(world, client, 2 * TICKS_MAX)
    world.deliver(replace(world.knowledge(lo, world.stable, raw=True, reply=False), pubend="q@1"))
    assert client.sid in stream.scheduler.readers
    assert client.sid in other.scheduler.readers
    world.hosting.catch_up = CatchUp(turn_events=1)
    world.now += 1

    grant(world, client, 8 * TICKS_MAX)

    assert min(each.positions[client.sid].sent for each in (stream, other)) > lo


def test_what_arrives_before_its_next_turn_is_the_readers_too() -> None:
    """The PFS told it what to ask for, and others used up the turn: the answer came before its own (hostile 2633)."""
    world = World(CatchUp(0, 2))  # nothing that was delivered stays in memory
    world.sync()
    client = Client("only", "")
    world.attach(client, None)
    world.clients.append(client)
    world.sync()
    push(world)
    checkpoint(world)
    lo, world.stable = world.stable, world.stable + SECOND
    world.deliver(world.knowledge(lo, world.stable, raw=True, reply=False))
    fall_behind(world, client, 1)
    checkpoint(world)
    grant(world, client, 100)
    around = world.hosting
    turns = world.stream.scheduler

    around.catch_up = CatchUp(0, turn_events=0)  # nobody gets a turn
    world.now += 1
    world.read()
    assert turns.readers[client.sid].fetching
    world.answer_wants()
    assert list(turns._runnable) == [client.sid]

    around.catch_up = CatchUp(0)
    for _ in range(3):
        world.pause(1)
    assert not turns.readers
    while client.inbox:
        world.consume(client)
    assert client.consumed == [row[0] for row in world.log]


def test_it_is_counted_who_falls_behind_and_who_has_caught_up() -> None:
    world, client, stream = world_with()
    push(world)
    before = stream.scheduler.promoted
    fall_behind(world, client, 1)
    push(world)
    grant(world, client, 100)

    assert stream.scheduler.demoted == 1, "once, not for each event"
    assert stream.scheduler.promoted == before + 1


def test_an_answer_to_an_earlier_reader_is_not_taken_for_its_own() -> None:
    """That its read failed is told all the same."""
    world, client, stream = world_with()
    push(world)
    fall_behind(world, client, 3)
    reader = stream.scheduler.readers[client.sid]
    reader.on_read = lambda *_: pytest.fail("it asked for nothing")  # type: ignore[method-assign]

    stream.scheduler.on_read(client.sid, reader.number - 1, ReadResult(None, [], 0, "bad"), world.now, world.wall)
    world.feed(AskInterest())
    world.pump()

    assert world.alarms == [f"the PFS of {PUBEND} cannot be read, events are fetched instead: bad"]


def test_who_left_has_no_turn_any_more() -> None:
    world, client, stream = world_with()
    push(world)
    fall_behind(world, client, 3)
    world.detach(client)

    assert not stream.scheduler.readers
    stream.scheduler.step(client.sid, world.now, world.wall)
    assert stream.scheduler.deadline() is None
    assert client.sid not in stream.live
