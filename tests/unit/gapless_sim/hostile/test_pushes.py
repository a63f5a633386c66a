"""Lazy silence (SIL): said with the next event, or by itself, never under a stamp it does not deserve."""

from __future__ import annotations

from msgspec.structs import replace

from gapless_sim.hostile.pushes import SILENCE, Pushes
from unit.gapless_sim.hostile.parts import THERE, P, Parts, knowledge


def make() -> tuple[Parts, Pushes]:
    parts = Parts()
    return parts, Pushes(parts.station, parts.mesh, P)


def test_silence_under_two_stamps_is_silence_under_the_lower() -> None:
    parts, pushes = make()
    pushes.keep_silent("there", knowledge(10, 20, stamp={THERE: 4}))
    pushes.keep_silent("there", knowledge(20, 30, stamp={THERE: 5}))
    pushes.say("there", knowledge(30, 40, "a", stamp={THERE: 6}))

    assert parts.messages() == [replace(knowledge(30, 40, "a", stamp={THERE: 4}), lo=10)]
    assert pushes.told("there") == 40


def test_what_does_not_touch_is_said_by_itself() -> None:
    parts, pushes = make()
    pushes.keep_silent("there", knowledge(10, 20, stamp={THERE: 4}))
    pushes.keep_silent("there", knowledge(25, 30, stamp={THERE: 4}))
    pushes.say("there", knowledge(35, 40))

    assert parts.messages() == [
        knowledge(10, 20, stamp={THERE: 4}),
        knowledge(25, 30, stamp={THERE: 4}),
        knowledge(35, 40),
    ]


def test_it_waits_from_the_first_on() -> None:
    parts, pushes = make()
    pushes.keep_silent("there", knowledge(10, 20))
    assert parts.pass_time(SILENCE // 2) == []
    pushes.keep_silent("there", knowledge(20, 30))
    assert parts.pass_time(SILENCE // 2) == [("silence", P, "there")]

    pushes.flush("there")
    pushes.flush("there")
    assert parts.messages() == [knowledge(10, 30)]


def test_each_broker_has_its_own() -> None:
    parts, pushes = make()
    pushes.keep_silent("there", knowledge(10, 20))
    pushes.say("here", knowledge(20, 30))

    assert [(sent.peer, sent.message) for sent in parts.sent()] == [("here", knowledge(20, 30))]
    assert (pushes.told("there"), pushes.told("here"), pushes.told("far")) == (0, 30, 0)


def test_what_is_dropped_is_not_said() -> None:
    parts, pushes = make()
    pushes.keep_silent("there", knowledge(10, 20))
    pushes.drop_silence()
    pushes.flush("there")

    assert parts.pass_time(SILENCE) == []
    assert parts.messages() == []
