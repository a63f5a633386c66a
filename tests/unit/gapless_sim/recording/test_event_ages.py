"""How old a pubend may take its events for, and which of them it may let go of although somebody needs them."""

from __future__ import annotations

from gapless.core.stream.ticks import tick_at
from gapless_sim.recording.event_ages import LEAP_MS
from gapless_sim.world.clocks import WALL_BEGIN
from unit.gapless_sim.oracles.model_fixture import NODE, ModelFixture, P

AT = tick_at(WALL_BEGIN)


def with_an_event(**options: float) -> ModelFixture:
    """A pubend that was made at the beginning, and has an event since then."""
    fixture = ModelFixture(**options)
    fixture.opens()
    fixture.log((AT, 1))
    return fixture


def is_early(fixture: ModelFixture) -> bool:
    return fixture.model.ages.is_early(fixture.model.histories[P], AT)


def test_an_event_may_be_too_old_by_a_clock_that_was_ahead() -> None:
    fixture = with_an_event(max_retain_seconds=1.0)
    clock = fixture.world.brokers[NODE].node_clock

    clock.jump(1000)
    clock.jump(-5000)

    assert is_early(fixture), "it was that late meanwhile"


def test_no_event_is_too_old_by_a_clock_that_has_leapt() -> None:
    fixture = with_an_event(max_retain_seconds=1.0)
    clock = fixture.world.brokers[NODE].node_clock

    clock.jump(2 * LEAP_MS)
    assert not is_early(fixture)
    fixture.model.vanished(NODE)
    fixture.opens()
    assert not is_early(fixture), "nor after a restart"
    clock.jump(2000 - 2 * LEAP_MS)
    assert is_early(fixture)


def test_stamps_follow_a_leap_across_a_start_and_none_else() -> None:
    fixture = with_an_event()
    history, clock = fixture.model.histories[P], fixture.world.brokers[NODE].node_clock

    clock.jump(2 * LEAP_MS)
    assert fixture.model.ages.may_stamp(history, AT)
    assert not fixture.model.ages.may_stamp(history, tick_at(WALL_BEGIN + 2 * LEAP_MS))
    fixture.model.vanished(NODE)
    fixture.opens()
    assert fixture.model.ages.may_stamp(history, tick_at(WALL_BEGIN + 2 * LEAP_MS))
    assert not fixture.model.ages.may_stamp(history, tick_at(WALL_BEGIN + 3 * LEAP_MS))


def test_a_start_that_was_cut_off_may_have_followed_a_leap() -> None:
    fixture = with_an_event()
    history, clock = fixture.model.histories[P], fixture.world.brokers[NODE].node_clock

    clock.jump(2 * LEAP_MS)
    fixture.model.vanished(NODE)
    clock.jump(-2 * LEAP_MS)
    fixture.model.vanished(NODE)
    fixture.opens()

    assert fixture.model.ages.may_stamp(history, tick_at(WALL_BEGIN + 2 * LEAP_MS))
    assert not fixture.model.ages.may_stamp(history, tick_at(WALL_BEGIN + 3 * LEAP_MS))
