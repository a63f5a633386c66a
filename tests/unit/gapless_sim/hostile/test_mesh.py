"""What becomes of messages on links that are told to do wrong."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.network.frames import InterestQuestion
from gapless_sim.hostile.mesh import DELAY, LATE_MAX, MUCH_LATER, OVERTAKEN
from unit.gapless_sim.hostile.parts import Parts

ONE, TWO, THREE = InterestQuestion("1"), InterestQuestion("2"), InterestQuestion("3")


def go_on(parts: Parts, span: int) -> None:
    """What is due is done."""
    on_timer: dict[Any, Any] = {"held": parts.mesh.release, "late": parts.mesh.send_late}
    for kind, argument in parts.pass_time(span):
        on_timer[kind](argument)


@pytest.mark.parametrize("peer", ["there", "here"])
def test_losing_and_repeating(peer: str) -> None:
    parts = Parts({"lose": 1.0})
    parts.mesh.send(peer, ONE)
    assert parts.messages() == []

    parts = Parts({"repeat": 1.0})
    parts.mesh.send(peer, ONE)
    assert parts.messages() == [ONE, ONE]


@pytest.mark.parametrize(("behaviour", "at_once", "span"), [("delay", [], DELAY), ("repeat_late", [ONE], MUCH_LATER)])
def test_lateness(behaviour: str, at_once: list[InterestQuestion], span: int) -> None:
    parts = Parts({behaviour: 1.0})
    parts.mesh.send("there", ONE)
    parts.mesh.send("here", ONE)
    assert parts.messages() == at_once * 2

    go_on(parts, span)
    assert parts.messages() == [ONE, ONE]


def test_only_so_much_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    assert LATE_MAX > 100
    monkeypatch.setattr("gapless_sim.hostile.mesh.LATE_MAX", 3)
    parts = Parts({"delay": 1.0})
    for _ in range(10):
        parts.mesh.send("here", ONE)
    go_on(parts, DELAY)

    assert parts.messages() == [ONE] * 3


def test_one_is_overtaken_by_the_next() -> None:
    parts = Parts({"reorder": 1.0})
    for message in (ONE, TWO, THREE):
        parts.mesh.send("there", message)
    assert parts.messages() == [TWO, ONE]

    go_on(parts, OVERTAKEN)
    assert parts.messages() == [THREE], "nobody came to overtake it"
