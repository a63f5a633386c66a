"""Acknowledging what was read by ranges."""

from __future__ import annotations

from gapless.core.stream.ticks import FOREVER, STEP
from gapless.core.wire import messages as m
from gapless_shb.core.state.broker_state import CatchUp
from gapless_shb.core.state.positions import SubscriptionPosition, last_event
from unit.gapless_shb.core.harness import FORGETFUL, PUBEND
from unit.gapless_shb.core.ranges.harness import NAME, RangeWorld


def attached(catch_up: CatchUp = FORGETFUL, selector: str = "") -> RangeWorld:
    """A world whose application has attached, and behind that twenty events."""
    world = RangeWorld(catch_up, selector=selector).calm()
    world.define()
    return world.calm().calm(20)


def test_the_last_event_is_known_behind_since_and_up_to_the_head() -> None:
    position = SubscriptionPosition(0, since=100, last_tick=250)

    assert last_event(position, 400, 300) == 250
    assert last_event(position, 400, 200) == 200
    assert last_event(position, 270, 300) == 300, "beyond the head anything may stand"
    assert last_event(SubscriptionPosition(0, since=100), 400, 300) == 100, "below since anything may stand"
    assert last_event(SubscriptionPosition(0, since=FOREVER), 400, 300) == 300


def test_it_is_answered_when_it_is_durable_and_survives_a_crash() -> None:
    world = attached()
    number = world.acknowledge(world.stable)
    assert number not in world.answers
    world.sync()
    assert world.answers[number] == m.Done(number)

    world.crash()
    assert world.stream.positions[1].acked == world.stable


def test_an_older_position_changes_nothing() -> None:
    world = attached()
    world.acknowledge(world.stable)
    world.acknowledge(world.start)

    assert world.stream.positions[1].acked == world.stable


def test_what_is_acknowledged_is_released() -> None:
    world = attached()
    before = world.progress[0]
    world.acknowledge(world.stable - STEP)
    world.calm()

    assert before < world.stable - STEP <= world.progress[0] + 4 * STEP


def test_behind_what_is_acknowledged_silence_stays_silence() -> None:
    """Whoever goes back to the last event is not told of a gap, though the log has nothing left."""
    world = attached()
    last = world.log[-1][0]
    world.stable += 50 * STEP
    world.calm()
    world.acknowledge(world.stable)
    world.calm()
    world.forget(world.stable)

    assert world.take(last, world.stable).gaps == []
    assert world.take(last - 1, world.stable).gaps != []


def test_a_token_of_another_subscription_is_refused() -> None:
    world = attached()
    assert world.attached is not None
    position = [m.Position(PUBEND, world.stable)]
    own = m.Target(NAME, world.attached.sid, world.attached.generation)

    forged = world.ask(m.AcknowledgeDurably(world.number(), own, b"forged", position))
    assert forged.code is m.Code.INVALID_TOKEN
    other = world.ask(m.AcknowledgeDurably(world.number(), m.Target(NAME, 7, 1), world.attached.seal, position))
    assert other.code is m.Code.NOT_FOUND
    number = world.say(m.AcknowledgeDurably(world.number(), own, world.attached.seal, position))
    world.sync()
    assert world.answers[number] == m.Done(number)


def test_who_does_not_hold_the_lease_cannot_acknowledge() -> None:
    world = attached()
    world.ask(m.TakeLease(world.number(), world.target, "query-1", m.InUse.ERROR))
    world.session += 1

    answer = world.ask(m.AcknowledgeDurably(world.number(), world.target, b"", [m.Position(PUBEND, world.stable)]))
    assert answer.code is m.Code.IN_USE
    assert world.stream.positions[1].acked == world.start
