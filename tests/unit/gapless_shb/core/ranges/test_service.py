"""Ranges as the broker's core knows them: who counts as being there, and that nobody has to know who does not ask."""

from __future__ import annotations

from gapless.core.ports import SessionEnded
from gapless.core.wire import messages as m
from gapless_shb.core.broker import Timing
from unit.gapless_shb.core.harness import FORGETFUL
from unit.gapless_shb.core.live.test_constream import push, world_with
from unit.gapless_shb.core.ranges.harness import NAME, RangeWorld
from unit.gapless_shb.core.ranges.test_acknowledging import attached


def test_one_that_is_read_by_ranges_is_not_given_up() -> None:
    """Whoever has its lease is there; whoever acknowledges was there."""
    world = RangeWorld(FORGETFUL, selector="")
    world.timing = Timing(expiry_ms=1600)
    world.crash()
    world.calm()
    world.define()
    world.calm()
    number = world.say(m.TakeLease(world.number(), world.target, "q", m.InUse.ERROR))
    for _ in range(8):
        world.calm()
    assert world.hosting.registry.find("c", NAME) is not None

    world.say(m.EndLease(number))
    for _ in range(8):
        world.calm()
        world.acknowledge(world.stable)
    assert world.hosting.registry.find("c", NAME) is not None
    for _ in range(4):
        world.calm()
    assert world.hosting.registry.find("c", NAME) is None


def test_who_asks_nothing_costs_nothing() -> None:
    """What is going on in a broker without ranges is what it was."""
    world, client, _ = world_with()
    push(world, 20)
    world.detach(client)
    world.crash()
    world.rest()

    assert world.role._ranges.used is False
    assert world.role._ranges.deadline is None


def test_every_part_forgets_a_session_that_is_over() -> None:
    world = attached()
    world.read_range(world.start, world.stable, 1)
    world.say(m.AskHeads(world.number(), world.target, [], 60_000))
    world.say(m.AskHeads(world.number(), world.target, [m.Position("p@1", world.stable)], 60_000))
    world.say(m.AskEarliest(world.number(), None))
    world.say(m.AskBound(world.number(), world.target, [], 3, 3))
    world.say(m.TakeLease(world.number(), world.target, "q", m.InUse.ERROR))
    ranges = world.role._ranges
    session = world.client
    assert len(world.hosting.session_ends) > 3
    world.feed(SessionEnded(session))
    world.new_session()
    world.calm(3)

    assert ranges.deadline is None
    assert len(ranges._reads) == 0
    assert ranges._bounds._bounds == {}
    assert ranges._earliest._questions == []
    assert ranges._holders._locks == {}
    assert -session.number not in world.answers
    assert len(world.hosting.session_ends) == 0
