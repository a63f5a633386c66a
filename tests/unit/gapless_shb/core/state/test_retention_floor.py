"""Who pins the log: the lowest of them, whatever came, moved and went (protocol: positions)."""

from __future__ import annotations

import random

import pytest

from gapless.core.wire import messages as m
from gapless_shb.core.checkpoint import checkpoint, released
from gapless_shb.core.state.positions import SubscriptionPosition
from gapless_shb.core.state.pubend import RetentionFloor
from unit.gapless_shb.core.harness import PUBEND, Client
from unit.gapless_shb.core.live.test_constream import push, world_with
from unit.held import assert_nothing_is_left


@pytest.mark.parametrize("seed", range(20))
def test_the_lowest_is_the_lowest_of_those_that_pin(seed: int) -> None:
    """Beside the plain way of looking at each."""
    generator = random.Random(seed)
    pins = RetentionFloor()
    positions = {sid: SubscriptionPosition(0) for sid in range(8)}
    for step in range(2000):
        sid = generator.randrange(len(positions))
        action = generator.choice(["put", "discard", "acknowledge", "pass", "look"])
        if action == "put":
            pins.put(sid, positions[sid])
        elif action == "discard":
            pins.discard(sid)
        elif action == "acknowledge":
            positions[sid].acknowledge(step, step)
        elif action == "pass":
            positions[sid].pass_over(step)
        else:
            assert pins.lowest() == min((position.done_upto for position in pins.values()), default=None)


def test_one_that_comes_again_is_entered_once() -> None:
    """However often it pins and does not, while another one below keeps its entry from coming up."""
    pins = RetentionFloor()
    bottom, busy = SubscriptionPosition(0), SubscriptionPosition(0, acked=10)
    pins.put(1, bottom)

    def come_and_go(_: int) -> None:
        pins.put(2, busy)
        pins.discard(2)
        assert pins.lowest() == 0

    assert_nothing_is_left(pins, come_and_go)
    pins.discard(1)
    assert pins.lowest() is None
    pins.put(2, busy)
    assert pins.lowest() == 10


def test_it_knows_who_is_in_it() -> None:
    pins = RetentionFloor()
    for sid in range(1, 8):
        pins.put(sid, SubscriptionPosition(0, acked=sid % 4))

    assert (len(pins), list(pins), 3 in pins, 9 in pins) == (7, [1, 2, 3, 4, 5, 6, 7], True, False)


def test_released_is_what_looking_at_each_position_says() -> None:
    """At each step; who pins counts up to latestDelivered at most."""
    world, _, stream = world_with("w = 1")
    for number in range(40):
        if number % 8 == 0:
            client = Client(f"c{number}", ("", "w > 1", "w = 9")[number % 3])
            world.clients.append(client)
            world.attach(client, None, credit=number)
            world.sync()
        push(world, number % 5 + 1, raw=number % 3 == 0)
        for client in world.clients[:: number % 3 + 1]:
            world.consume(client)
            assert client.token is not None
            acknowledged = [m.Acknowledged(PUBEND, client.token, client.last_event)]
            world.feed(m.Acknowledge(client.sid, acknowledged), world.session_of(client))
        world.pause(number % 7 * 60)
        if number % 4:
            world.sync()
            world.read()

        pinning = [position for position in stream.positions.values() if position.held or not position.is_idle]
        each = [stream.release(position) for position in pinning]
        bounded = [min(tick, stream.latest_delivered) for tick in each]
        assert released(stream) == max(stream.released, min([stream.head, *bounded]))


def test_a_hold_is_given_back_although_nothing_happens_to_whom_it_was_for() -> None:
    """It goes along with what is delivered; until it is given back, no more than that is released."""
    world, _, stream = world_with("w = 9")
    position = SubscriptionPosition(stream.head, since=stream.head, acked=stream.head, held=True)
    stream.holds.row[99] = stream.head
    stream.add(99, position, 1)
    position.reading = False  # it is durable, although this world's registry has not heard of it
    stream.touch(99, position)
    for _ in range(2):
        push(world, 3)
        _, claim = checkpoint(stream)
        assert claim.released == stream.latest_delivered < stream.head
        assert claim.held == ((99, stream.latest_delivered),)
        stream.durable(claim.latest_delivered, claim.released)

    position.held = False
    stream.touch(99, position)
    checkpoint(stream)
    assert checkpoint(stream)[1].released == stream.head


def test_who_holds_the_past_is_not_asked_at_each_checkpoint() -> None:
    """Only when it may have come far enough: until then its hold is as it is."""
    world, _, stream = world_with("w = 9")
    push(world, 3)
    world.pause(300)
    world.sync()
    position = SubscriptionPosition(1, acked=1, held=True)
    stream.holds.row[99] = 1
    stream.add(99, position, 1)
    assert checkpoint(stream)[1].held == ()
    assert not stream.droppable_holds

    stream.acknowledge(99, stream.latest_delivered, 0)
    assert checkpoint(stream)[1].held == ((99, stream.latest_delivered),)


def test_a_consumer_that_is_not_durable_pins_nothing_while_it_is_live() -> None:
    """It has what it was sent; that costs no step of the head anything."""
    world, _, stream = world_with("w = 9")
    push(world, 3)
    sid = next(iter(stream.live))
    stream.live[sid].subscription.name = ""
    push(world, 5)
    world.pause(300)
    world.sync()

    assert not len(stream.retention_floor)
    assert stream.reported == stream.head
