"""One pubend at one SHB: the head, who joins it, and who falls behind (protocol: constream; T3, T25, T26, T45)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gapless.core.network.facts import PubendMeta, Seen
from gapless.core.ports import Transmit
from gapless.core.stream.columns import EventBatch, EventColumns
from gapless.core.stream.events import encode_event
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import FOREVER, STEP, tick_at
from gapless.core.wire import messages as m
from gapless_shb.core.live.constream import Constream
from gapless_shb.core.pfs.index import Pfs
from gapless_shb.core.state.broker_state import CatchUp
from gapless_shb.core.state.registry import SubscriptionRecord
from unit.gapless_shb.core.harness import BASE, CACHED, PUBEND, Client, World


def world_with(
    selector: str = "", catch_up: CatchUp = CACHED, *, retain: int | None = None
) -> tuple[World, Client, Constream]:
    """A world at rest with one consumer."""
    world = World(catch_up, retain=retain)
    world.sync()
    return world, attached(world, selector), world.stream


def attached(world: World, selector: str) -> Client:
    """A consumer that takes any number of events."""
    client = Client("s", selector)
    world.clients.append(client)
    world.attach(client, None)
    world.sync()
    client.credit = 1 << 30
    world.feed(m.Credit(client.sid, 1 << 30, 0), world.session_of(client))
    return client


def push(world: World, count: int = 1, *, raw: bool = True) -> None:
    """Publishes and delivers at once."""
    lo = world.stable
    for _ in range(count):
        world.publish()
    world.deliver(world.knowledge(lo, world.stable, raw=raw, reply=False))


def test_a_new_consumer_goes_live_with_the_first_knowledge_that_honours_it() -> None:
    """Nothing is asked of the network for it, and the very first event reaches it (T3)."""
    world, client, stream = world_with()
    assert client.sid in stream.scheduler.readers

    push(world)
    world.consume(client)

    assert client.sid in stream.live
    assert client.consumed == [world.log[0][0]]
    assert not world.wants


def test_a_hole_stops_the_head_and_is_asked_for_after_a_while() -> None:
    """Reordering is waited for; a loss is asked for (GCT)."""
    world, client, stream = world_with()
    push(world)
    world.publish()
    lost_upto = world.stable
    push(world)
    assert stream.head < lost_upto
    assert not world.wants

    world.pause(250)

    (want,) = world.wants
    assert want.ranges[0][1] >= lost_upto - STEP
    world.answer_wants()
    assert stream.head == world.stable
    while client.inbox:
        world.consume(client)
    assert client.consumed == [row[0] for row in world.log]


def test_what_was_asked_for_while_the_pubend_was_down_is_asked_for_again_soon() -> None:
    """Its PHB has forgotten it, and the next repetition may be far off: each wait is twice the last."""
    world, _, _ = world_with()
    push(world)
    world.publish()
    push(world)
    for _ in range(20):
        world.pause(250)
        world.deliver(world.knowledge(world.stable - 1, world.stable, raw=True, reply=False))
    world.wants.clear()
    world.pause(250)
    assert not world.wants

    meta = PubendMeta(PUBEND, "node", created=BASE, stable=world.stable, voids=((world.stable - 1, world.stable),))
    world.feed(Seen(meta, world.enrolled))
    world.pause(250)

    assert world.wants


def test_what_lies_ahead_is_asked_for_when_nothing_comes_and_not_while_answers_do() -> None:
    """DCT, on a link that takes longer for a window than that: all at once would be more than it carries."""
    world, _, stream = world_with()
    push(world)
    world.publish()
    push(world)
    world.pause(250)
    (want,) = world.wants
    world.wants.clear()
    for _ in range(5):
        world.pause(2_000)
        world.deliver(world.knowledge(stream.head, stream.head + 1, raw=True, reply=True))
    assert all(hi < FOREVER for one in world.wants for _, hi in one.ranges)
    assert stream.head < want.ranges[0][1]
    world.wants.clear()

    world.pause(3_100)
    ahead = [(lo, hi) for one in world.wants for lo, hi in one.ranges if hi >= FOREVER]
    assert ahead == [(world.stable, FOREVER)], "and of what is missing below not more than was asked for anyway"


def test_two_filters_that_match_alike_share_one_payload() -> None:
    """Events are joined once however many subscriptions get them."""
    world, first, _ = world_with("w >= 0")
    second = Client("t", "w < 10")
    world.clients.append(second)
    world.attach(second, None)
    world.sync()
    push(world)
    for client in (first, second):
        world.feed(m.Credit(client.sid, 100, 0), world.session_of(client))

    world.said.clear()
    push(world, 3)

    payloads = [body for effect in world.sent(Transmit) for _, body in effect.payloads]
    assert len(payloads) == 2
    assert payloads[0] is payloads[1]


def test_an_unacknowledged_event_pins_the_log_while_its_subscriber_is_away() -> None:
    """I8: only what every durable subscription has behind it may be forgotten."""
    world, client, _stream = world_with()
    push(world)
    world.detach(client)
    push(world, 10)
    for _ in range(3):
        world.pause(5_000)
        world.sync()

    world.release()

    assert world.lost < world.log[0][0]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("", ["first to kept", "kept", "kept to later", "later"]),
        ("n = 6", ["first to later", "later"]),
        ("n = 99", ["first to later"]),
    ],
)
def test_lost_ticks_and_what_others_still_knew_between_them_come_in_order(selector: str, expected: list[str]) -> None:
    """T10: whoever is live gets a gap up to the next event for it, and not the gap behind that before it."""
    world, client, stream = world_with(selector)
    push(world)
    first = world.stable
    for _ in range(7):
        world.publish()
    kept, later = world.log[4][0], world.log[6][0]
    for tick in (kept, later):
        world.deliver(world.knowledge(tick - 1, tick, raw=True, reply=False))
    world.deliver(Knowledge(PUBEND, world.log[5][0] - 1, world.log[5][0]))  # silence, to somebody else's filter
    told = [message for kind, message in client.inbox if kind == "message"]
    assert stream.head == first

    world.deliver(Knowledge(PUBEND, first, later, lost=later))

    name = {first: "first", kept - 1: "kept", kept: "kept", later - 1: "later", later: "later"}
    said = [
        f"{name[message.start]} to {name[message.end]}"
        if isinstance(message, m.DeliverGap)
        else " and ".join(name[tick] for tick in message.columns.ticks())
        for _, message in client.inbox[len(told) :]
        if isinstance(message, (m.DeliverGap, m.Deliver))
    ]
    assert said == expected


def test_what_is_lost_to_the_head_is_one_gap_however_it_is_answered() -> None:
    """A retired SHB asks for it, and caches on the way answer piece by piece."""
    world, client, stream = world_with("")
    push(world)
    first = world.stable
    for _ in range(3):
        world.publish()
    lost = world.log[1][0]
    for lo, hi in ((first, lost - 5), (lost - 5, lost)):
        world.deliver(Knowledge(PUBEND, lo, hi, lost=lost, reply=True))
        assert stream.head == (first if hi < lost else lost)

    gaps = [message for _, message in client.inbox if isinstance(message, m.DeliverGap)]
    assert [gap.start for gap in gaps] == [first]


@pytest.mark.parametrize(("residue", "told"), [(None, 0), (5, 1), (6, 0)])
def test_a_position_is_never_told_at_a_place_of_events_where_there_is_none(residue: int | None, told: int) -> None:
    """It would look like the place of an event that was lost; behind it, nothing can ever stand either."""
    _, _, stream = world_with()
    stream.meta = replace(stream.meta, residue=residue)
    place = BASE - BASE % STEP + 7 * STEP + 5

    assert stream.client_position(place) == place + told


def test_the_place_of_the_newest_event_is_a_position() -> None:
    world, _, stream = world_with()
    push(world, 3)
    newest = world.log[-1][0]
    stream.meta = replace(stream.meta, residue=newest % STEP)

    assert stream.client_position(newest) == newest
    assert stream.client_position(newest - STEP) == newest - STEP + 1, "it is not known any more whether one was there"


def test_only_an_event_in_a_void_is_lost() -> None:
    _, _, stream = world_with()
    assert not stream.is_lost(105)
    stream.meta = replace(stream.meta, residue=5, voids=((100, 100 + 2 * STEP),))

    found = [tick for tick in range(4 * STEP) if stream.is_lost(tick)]
    assert found == [STEP + 5, 2 * STEP + 5]


def test_a_subscription_that_is_done_with_more_than_it_said_is_listed_behind_that() -> None:
    """What it said stays as it said it: that is its token."""
    _, client, stream = world_with()
    position = stream.positions[client.sid]
    place = stream.head - stream.head % STEP + 5
    stream.meta = replace(stream.meta, residue=5)

    position.acked = place
    assert stream.done_upto(position) == place
    position.acked, position.nothing_upto = place - 2 * STEP, place
    assert stream.done_upto(position) == place + 1


def test_what_would_break_a_promise_is_noticed_where_it_happens() -> None:
    """Invariants that the cores assert, in production too."""
    world, client, stream = world_with()
    push(world, 3)
    head = stream.head
    for delivered, released in ((head + 1, head), (head - 1, head)):
        with pytest.raises(AssertionError, match="nobody is done with what was not delivered"):
            stream.durable(delivered, released)
    with pytest.raises(AssertionError, match="the head never falls"):
        stream._pass(head - 1, world.now, world.wall)
    with pytest.raises(AssertionError, match="a gap has a tick in it"):
        stream.live[client.sid].channel.gap(client.sid, PUBEND, head, head, m.GapReason.DAMAGED)


def test_where_ticks_are_no_times_none_is_read_as_one() -> None:
    """A start by time is the beginning there, and what is found later is owed from its creation."""
    world, _, timed = world_with()
    numbered = PubendMeta("orders@1", "broker", created=17, stable=17, grain=1)
    stream = Constream(numbered, 17, Pfs("orders@1", 1, 17, 0), world.hosting)
    late = SubscriptionRecord(7, "client", "name", 1, ("#",), "", 1, late_start=tick_at(world.wall), start={})

    assert (stream.at(world.wall), stream.start_of(late)) == (0, 17)
    assert timed.at(world.wall) == tick_at(world.wall) - 1


def test_a_pubend_begins_where_it_was_heard_of_first() -> None:
    """Found by the simulator: a gateway lost its volume, and subscriptions got a gap for records that Kafka had."""
    world, _, _ = world_with()
    numbered = PubendMeta("orders@1", "broker", created=0, stable=17, grain=1)
    stream = Constream(numbered, 17, Pfs("orders@1", 1, 17, 0), world.hosting)
    late = SubscriptionRecord(7, "client", "name", 1, ("#",), "", 1, late_start=tick_at(world.wall), start={})

    stream.learn(replace(numbered, created=17, stable=20))

    assert (stream.meta.stable, stream.start_of(late)) == (20, 0)


def test_a_log_that_numbers_its_records_is_not_asked_for_what_lies_ahead() -> None:
    """TK22: it alone moves its end, and every question would be in vain."""
    world, _, timed = world_with()
    numbered = Constream(
        PubendMeta("orders@1", "broker", stable=17, grain=1), 17, Pfs("orders@1", 1, 17, 0), world.hosting
    )

    for stream in (numbered, timed):
        stream.on_deadline(world.now + 10**10, 10**9)

    assert numbered._curiosity.deadline() is None
    assert timed._curiosity.deadline() is not None


def test_a_log_that_is_told_otherwise_later_holds_up_nothing() -> None:
    """Hostile 32970: a cut took the marker that aborted a transaction below it, and then that was committed."""
    world, _, _ = world_with()
    meta = PubendMeta("orders@1", "broker", stable=20, grain=1)
    stream = Constream(meta, 10, Pfs("orders@1", 1, 10, 0), world.hosting)
    event = EventBatch([17], [encode_event("t", {}, None, b"x")], [1])
    answer = Knowledge("orders@1", 10, 20, event, reply=True)

    stream.on_knowledge(Knowledge("orders@1", 12, 20), 0, world.wall)
    stream.on_knowledge(answer, 0, world.wall)
    world.pump()
    assert [alarm.partition(":")[0] for alarm in world.alarms] == ["two brokers contradict each other about orders@1"]
    stream.on_knowledge(answer, 0, world.wall)

    assert (stream.head, stream.newest_event) == (20, 17)


def test_what_a_log_told_before_it_was_cut_holds_up_nothing() -> None:
    """The event may come before the void or after it: from a broker on the way that has kept it."""
    world, _, _ = world_with()
    meta = PubendMeta("orders@1", "broker", stable=20, grain=1)
    stream = Constream(meta, 10, Pfs("orders@1", 1, 10, 0), world.hosting)
    event = EventBatch([17], [encode_event("t", {}, None, b"x")], [1])
    told = Knowledge("orders@1", 15, 20, event)
    silence = Knowledge("orders@1", 10, 100, reply=True)

    stream.on_knowledge(told, 0, world.wall)
    stream.learn(replace(meta, stable=100, voids=((12, 100),)))
    stream.begin_anew(0)
    stream.on_knowledge(told, 0, world.wall)
    stream.on_knowledge(silence, 0, world.wall)

    assert stream.head == 100
    assert not world.alarms


def test_a_position_inside_a_void_of_numbered_ticks_is_of_lost_data() -> None:
    world, _, _ = world_with()
    meta = PubendMeta("orders@1", "broker", stable=200, voids=((10, 100), (150, 160)), grain=1)
    stream = Constream(meta, 200, Pfs("orders@1", 1, 200, 0), world.hosting)

    assert [tick for tick in (5, 10, 11, 99, 100, 150, 155, 161) if stream.is_lost(tick)] == [11, 99, 155]


def test_no_position_that_clients_get_stands_inside_a_void_of_numbered_ticks() -> None:
    world, _, _ = world_with()
    meta = PubendMeta("orders@1", "broker", stable=200, voids=((10, 100), (150, 160)), grain=1)
    stream = Constream(meta, 200, Pfs("orders@1", 1, 200, 0), world.hosting)

    behind = [stream.client_position(tick) for tick in (5, 10, 11, 99, 100, 101, 150, 151, 160, 199)]

    assert behind == [5, 10, 100, 100, 100, 101, 150, 160, 160, 199]


def test_what_a_numbered_log_does_not_tell_will_never_come() -> None:
    """Found by the simulator: with its marker a transaction was cut off, and who had matched its events waited.

    Local 30755: the log was told again unasked, after it was asked for and had nothing yet that was decided.
    """
    world, _, timed = world_with()
    meta = PubendMeta("orders@1", "broker", stable=200, grain=1)
    stream = Constream(meta, 18, Pfs("orders@1", 1, 18, 0), world.hosting)
    columns = EventColumns.of([encode_event("topic", {}, None, b"") for _ in range(3)], [0] * 3)
    answer = Knowledge("orders@1", 10, 20, EventBatch.of([12, 13, 20], [columns]), reply=True)

    assert stream.cut(answer) == stream.cut(replace(answer, reply=False)) == ((10, 11), (13, 18))
    assert stream.cut(Knowledge("orders@1", 18, 20)) == ()
    assert stream.cut(Knowledge.of_damage("orders@1", 10, 20, 0)) == ()
    assert timed.cut(answer) == ()
