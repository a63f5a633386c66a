"""What an SHB tells of the steps of which spans are made: which events, and to how many they go."""

from __future__ import annotations

from gapless.core.stream.ticks import MILLISECOND
from gapless.core.traces import Sampler
from unit.gapless_shb.core.harness import World
from unit.gapless_shb.core.live.test_constream import attached, push


def traced_world(share: float, selector: str = "") -> World:
    world = World()
    world.traces = share
    world.crash()
    world.sync()
    attached(world, selector)
    push(world)
    world.matched.clear()
    return world


def test_a_step_is_told_with_its_events_and_how_many_went() -> None:
    world = traced_world(1.0)

    push(world, 3)

    [matched] = world.matched
    assert (matched.count, matched.deliveries) == (3, 3)
    assert list(matched.chosen.events) == [event for _, _, event in world.log[-3:]]


def test_what_nobody_wants_is_matched_and_goes_to_nobody() -> None:
    world = traced_world(1.0, "w = 77")

    push(world, 3)

    assert [matched.deliveries for matched in world.matched] == [0]


def test_of_a_share_only_chosen_events_are_told() -> None:
    world = traced_world(0.3)
    before = len(world.log)
    for _ in range(100):
        lo = world.stable
        world.stable += MILLISECOND
        world.publish()
        world.deliver(world.knowledge(lo, world.stable, raw=True, reply=False))
    sampler = Sampler(0.3, world.stream.meta.grain)

    ticks = [tick for matched in world.matched for tick in matched.chosen.ticks]
    assert ticks == [tick for tick, _, _ in world.log[before:] if sampler.chooses(tick, tick)]
    assert 20 <= len(ticks) <= 40


def test_without_a_share_nothing_is_told() -> None:
    world = traced_world(0.0)

    push(world, 3)

    assert world.matched == []
