"""One step of the constream: to whom, what is remembered, who falls behind (protocol: constream)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless.core.stream.events import Extras, encode_event
from gapless.core.stream.ticks import STEP
from gapless.core.wire import messages as m
from gapless_shb.core.catch_up.pages import above
from unit.gapless_shb.core.harness import PUBEND, Client, World
from unit.gapless_shb.core.live.test_constream import push, world_with


@given(st.lists(st.integers(0, 50), unique=True).map(sorted), st.integers(0, 50))
def test_above_is_what_its_name_says(ticks: list[int], floor: int) -> None:
    assert above(ticks, floor) == sum(1 << at for at, tick in enumerate(ticks) if tick > floor)


def test_only_matches_are_recorded_and_only_for_durable_subscriptions() -> None:
    """I6: what nobody wants costs the PFS nothing."""
    world, client, stream = world_with("w = 1")
    push(world, 30)
    record = stream.pfs.open_ticks(client.sid, 0)

    assert record == [row[0] for row in world.log if row[1]["w"] == 1]


def test_bytes_are_credit_too() -> None:
    """A consumer with room for many events but few bytes is served by a reader."""
    world, client, stream = world_with()
    push(world)
    world.hosting.consumers[client.sid].credit_bytes = 10

    push(world, 3)

    assert client.sid in stream.scheduler.readers
    assert client.sid not in stream.live


def push_expired(world: World) -> None:
    """Publishes an event that has expired by the time it is delivered."""
    lo = world.stable
    world.stable += STEP
    properties = {"w": 0, "n": len(world.log)}
    event = encode_event("t", properties, Extras(expiration=world.wall - 1), b"x")
    world.log.append((world.stable, properties, event))
    world.deliver(world.knowledge(lo, world.stable, raw=True, reply=False))


def consume_and_acknowledge(world: World, client: Client) -> None:
    """Takes what is there, and acknowledges as most applications do: with an event, never for silence alone."""
    while client.inbox:
        world.consume(client)
    acknowledged = m.Acknowledged(PUBEND, client.last_event, client.last_event)
    world.feed(m.Acknowledge(client.sid, [acknowledged]), world.session_of(client))


def released_after_a_while(world: World) -> int:
    """What the broker has reported as released, when nothing happens any more."""
    for _ in range(3):
        world.pause(5_000)
        world.sync()
    return world.progress[0]


def test_an_event_that_expired_pins_nothing_of_a_live_consumer() -> None:
    """It is not sent, so no acknowledgement will ever come for it (3.1 passed)."""
    world, client, stream = world_with()
    push(world, 3)
    consume_and_acknowledge(world, client)

    push_expired(world)

    assert client.sid in stream.live
    assert not stream.retention_floor
    assert released_after_a_while(world) == world.stable


def test_an_event_that_expired_behind_one_that_is_not_acknowledged_is_passed_with_it() -> None:
    """Passing over begins where everything that was sent is acknowledged, and not before."""
    world, client, stream = world_with()
    push(world)
    push_expired(world)
    assert list(stream.retention_floor) == [client.sid]

    consume_and_acknowledge(world, client)

    assert not stream.retention_floor


def test_an_event_that_expired_pins_nothing_of_a_consumer_that_came_back_behind_silence() -> None:
    """It goes on from further than it acknowledged, and has nothing in hand all the same."""
    world, client, stream = world_with()
    push(world)
    consume_and_acknowledge(world, client)
    world.pause(1_100)
    world.deliver(world.knowledge(world.stable, world.stable + 9 * STEP, raw=True, reply=False))
    world.stable += 9 * STEP
    world.detach(client)
    world.attach(client, world.stable)

    push_expired(world)

    assert client.sid in stream.live
    assert not stream.retention_floor
    assert released_after_a_while(world) == world.stable


def test_an_event_that_was_acknowledged_before_a_power_cut_pins_nothing_when_it_comes_again() -> None:
    """Its consumer need not acknowledge it twice. Found by the simulator (stories, router local, seed 2796)."""
    world, client, stream = world_with()
    push(world)
    consume_and_acknowledge(world, client)
    ahead = world.stable + 100 * STEP
    stream.acknowledge(client.sid, ahead, ahead)

    push(world)

    assert stream.positions[client.sid].last_tick == world.stable < ahead
    assert not stream.retention_floor
