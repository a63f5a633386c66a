"""Leases: one reader of a subscription at a time."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.ports import ClientSession, SessionEnded
from gapless.core.principals import NOBODY
from gapless.core.wire import messages as m
from unit.gapless_shb.core.ranges.harness import NAME, SESSIONS, RangeWorld
from unit.gapless_shb.core.ranges.test_acknowledging import attached

OTHER = ClientSession(SESSIONS + 50, "c", "other", NOBODY)


def lease(world: RangeWorld, owner: str = "query-1", in_use: m.InUse = m.InUse.ERROR) -> int:
    """The number of a request that the application's session makes."""
    return world.say(m.TakeLease(world.number(), world.target, owner, in_use))


def others(world: RangeWorld, message: Any) -> Any:
    """What another session is told last, if it says this."""
    world.answers.pop(-OTHER.number, None)
    world.say(message, OTHER)
    return world.answers.get(-OTHER.number)


def other_lease(world: RangeWorld, in_use: m.InUse = m.InUse.ERROR, owner: str = "query-2") -> Any:
    return others(world, m.TakeLease(world.number(), world.target, owner, in_use))


def subscribe(world: RangeWorld, in_use: m.InUse) -> Any:
    """What a consumer is told."""
    return others(
        world, m.Subscribe(world.number(), NAME, ("#",), "", m.StartAt.LATEST, 0, None, 0, 0, b"", [], in_use, 9, 999)
    )


def test_the_second_reader_is_refused_and_told_who_has_it() -> None:
    world = attached()
    number = lease(world)
    assert world.answers[number] == m.Leased(number, 1)

    refused = other_lease(world)
    assert refused.code is m.Code.IN_USE
    assert "'query-1'" in refused.reason


def test_it_ends_with_its_session() -> None:
    world = attached()
    lease(world)
    world.feed(SessionEnded(world.client))

    assert isinstance(other_lease(world), m.Leased)


def test_it_is_given_back() -> None:
    world = attached()
    world.say(m.EndLease(lease(world)))

    assert isinstance(other_lease(world), m.Leased)


def test_who_waits_gets_it_then() -> None:
    world = attached()
    number = lease(world)
    assert other_lease(world, m.InUse.WAIT) is None
    world.say(m.EndLease(number))

    assert isinstance(world.answers[-OTHER.number], m.Leased)


@pytest.mark.parametrize("way", ["given back", "session over"])
def test_who_waits_gets_it_before_who_asks_for_it_later_in_the_same_turn(way: str) -> None:
    world = attached()
    number = lease(world)
    assert other_lease(world, m.InUse.WAIT) is None
    late = ClientSession(OTHER.number + 1, "c", "late", NOBODY)
    with world.one_turn():
        if way == "given back":
            world.feed(m.EndLease(number), world.client)
        else:
            world.feed(SessionEnded(world.client))
        world.feed(m.TakeLease(9, world.target, "query-3", m.InUse.ERROR), late)

    assert isinstance(world.answers[-OTHER.number], m.Leased)
    assert world.answers[-late.number].code is m.Code.IN_USE


def test_who_waits_no_longer_does_not_get_it() -> None:
    world = attached()
    number = lease(world)
    waiting = m.TakeLease(world.number(), world.target, "query-2", m.InUse.WAIT)
    others(world, waiting)
    others(world, m.EndLease(waiting.request))
    world.say(m.EndLease(number))

    assert -OTHER.number not in world.answers


def test_it_can_be_taken_over_and_the_same_owner_does_so_at_once() -> None:
    for in_use, owner in ((m.InUse.TAKEOVER, "query-2"), (m.InUse.ERROR, "query-1")):
        world = attached()
        number = lease(world)
        assert isinstance(other_lease(world, in_use, owner), m.Leased)
        lost = world.answers[number]
        assert isinstance(lost, m.LeaseLost)
        assert lost.code is m.Code.TAKEN_OVER


def test_a_consumer_and_a_lease_exclude_each_other() -> None:
    world = attached()
    number = lease(world)
    assert subscribe(world, m.InUse.ERROR).code is m.Code.IN_USE
    assert subscribe(world, m.InUse.WAIT) is None
    world.say(m.EndLease(number))
    assert isinstance(world.answers[-OTHER.number], (m.Subscribed, m.Deliver))

    refused = lease(world)
    assert world.answers[refused].code is m.Code.IN_USE
    taken = lease(world, in_use=m.InUse.TAKEOVER)
    assert isinstance(world.answers[taken], m.Leased)
    assert isinstance(world.answers[-OTHER.number], m.Detached)


def test_a_consumer_can_take_it_over() -> None:
    world = attached()
    number = lease(world)
    assert subscribe(world, m.InUse.TAKEOVER) is not None

    assert world.answers[number].code is m.Code.TAKEN_OVER


def test_it_is_void_when_the_subscription_is_removed() -> None:
    world = attached()
    number = lease(world)
    assert other_lease(world, m.InUse.WAIT) is None
    world.say(m.Unsubscribe(world.number(), NAME, "c"))

    assert world.answers[number].code is m.Code.UNSUBSCRIBED
    assert world.answers[-OTHER.number].code is m.Code.NOT_FOUND
