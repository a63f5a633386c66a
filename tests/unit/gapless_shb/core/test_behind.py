"""How far subscriptions are behind: in steps of seconds for all, and by name for the few that are furthest."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gapless.core.gauges import values_by
from gapless.core.network import facts as r
from gapless.core.stream.ticks import SECOND
from gapless.core.wire import messages as m
from gapless_shb.core import behind
from gapless_shb.core.state import gauges
from gapless_shb.core.state.broker_state import CatchUp
from gapless_shb.core.state.positions import SubscriptionPosition
from unit.gapless_shb.core.harness import PUBEND, Client, World
from unit.gapless_shb.core.live.test_constream import push, world_with

SPREAD = f"{gauges.BEHIND_SECONDS.name}_bucket"


def named(world: World) -> dict[str, float]:
    """How far each subscription is behind that is named."""
    return values_by(world.role.gauges(), gauges.BEHIND_TICKS, "subscription")


def spread(world: World) -> list[float]:
    """How many are up to 1 s, 60 s and an hour behind, and how many there are."""
    found = values_by(world.role.gauges(), SPREAD, "le")
    return [found[bound] for bound in ("1.0", "60.0", "3600.0", "+Inf")]


def add(world: World, *names: str) -> None:
    """More subscriptions, with consumers that take everything and acknowledge nothing."""
    for name in names:
        client = Client(name, "")
        world.clients.append(client)
        world.attach(client, None)
    world.sync()
    push(world)


def pass_time(world: World, seconds: float) -> None:
    """For so long nothing is published, and the pubend says so."""
    lo, world.stable = world.stable, world.stable + round(seconds * SECOND)
    world.deliver(world.knowledge(lo, world.stable, raw=True, reply=False))


def test_whoever_is_done_with_everything_is_not_behind_and_not_named() -> None:
    world, client, _ = world_with()
    push(world, 2)
    world.rest()
    said = [m.Acknowledged(PUBEND, client.last_event, client.last_event)]
    world.feed(m.Acknowledge(client.sid, said), world.session_of(client))
    pass_time(world, 100)

    assert spread(world) == [1, 1, 1, 1]
    assert named(world) == {}


def test_who_waits_for_an_acknowledgement_is_as_far_behind_as_that_is_old() -> None:
    world, _, stream = world_with()
    push(world)
    pass_time(world, 100)
    add(world, "later")

    assert spread(world) == [1, 1, 2, 2]
    assert named(world) == {"s": stream.head - stream.positions[1].done_upto, "later": named(world)["later"]}
    assert named(world)["s"] > 100 * SECOND > named(world)["later"] > 0
    assert values_by(world.role.gauges(), gauges.BEHIND_TICKS, "number").keys() == {"1", "2"}


def test_only_those_that_are_furthest_are_named_and_all_count() -> None:
    world, _, _ = world_with(catch_up=CatchUp(subscriptions_named=2))
    push(world)
    for number in range(4):
        pass_time(world, 10)
        add(world, f"s{number}")
    pass_time(world, 10)

    assert named(world).keys() == {"s", "s0"}
    assert spread(world) == [0, 5, 5, 5]
    world.hosting.catch_up = CatchUp(subscriptions_named=0)
    assert named(world) == {}


def test_each_counts_once_where_it_is_furthest_behind_and_ticks_that_are_no_times_not_at_all() -> None:
    world, client, stream = world_with()
    other, numbered = "other@1", "topic.0@1"
    world.feed(r.Seen(replace(stream.meta, pubend=other), world.stable))
    world.feed(r.Seen(replace(stream.meta, pubend=numbered, grain=1), world.stable))
    push(world)
    pass_time(world, 100)
    for pubend, ticks in ((other, 30 * SECOND), (numbered, 7)):
        there = world.hosting.streams[pubend]
        there.positions[client.sid] = position = SubscriptionPosition(
            0, since=0, acked=there.head - ticks, last_tick=there.head
        )
        there.touch(client.sid, position)

    assert spread(world) == [0, 0, 1, 1]
    found = values_by(world.role.gauges(), gauges.BEHIND_TICKS, "pubend")
    assert (found[other], found[numbered]) == (30 * SECOND, 7)


def test_where_many_are_behind_it_takes_several_askings_and_nothing_is_told_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(behind, "LOOKED", 1)
    world, _, stream = world_with()
    world.feed(r.Seen(replace(stream.meta, pubend="other@1"), world.stable))
    push(world)
    told = behind.Behind(world.hosting)

    assert list(told.gauges()) == []
    assert values_by(told.gauges(), SPREAD, "le")["+Inf"] == 1
    pass_time(world, 100)
    assert values_by(told.gauges(), SPREAD, "le")["1.0"] == 1, "as before: not all was looked at"
    assert values_by(told.gauges(), SPREAD, "le")["1.0"] == 0
