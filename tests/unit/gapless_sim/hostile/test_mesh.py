"""Links to everybody, and what becomes of messages on them."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.network.facts import LINK_HIGH, LINK_LOW, Dial, SendFrame
from gapless.core.network.frames import InterestQuestion, decode
from gapless.core.network.timer_queue import SECOND
from gapless_sim.hostile.mesh import DELAY, LATE_MAX, MUCH_LATER, OVERTAKEN, REDIAL
from unit.gapless_sim.hostile.parts import LINKS, Parts, knowledge

ONE, TWO, THREE = InterestQuestion("1"), InterestQuestion("2"), InterestQuestion("3")


def go_on(parts: Parts, span: int) -> None:
    """What is due is done."""
    on_timer: dict[Any, Any] = {"dial": parts.mesh.dial, "held": parts.mesh.release, "late": parts.mesh.send_late}
    for kind, argument in parts.pass_time(span):
        on_timer[kind](argument)


def test_everybody_else_is_dialled_until_there_is_a_link() -> None:
    parts = Parts(linked=False)
    parts.mesh.start()
    assert parts.effects() == [Dial("there"), Dial("far"), Dial("between")]

    parts.mesh.link_up(3, "there", 1)
    go_on(parts, REDIAL)
    assert parts.effects() == [Dial("far"), Dial("between")]


def test_who_is_gone_is_dialled_after_a_while() -> None:
    parts = Parts()
    parts.mesh.link_up(9, "there", 1)
    parts.mesh.link_down(9)
    parts.mesh.link_down(9)
    go_on(parts, SECOND)
    assert parts.effects() == [], "there is another link"

    parts.mesh.link_down(LINKS["there"])
    assert parts.effects() == []
    go_on(parts, SECOND)
    assert parts.effects() == [Dial("there")]


def test_the_last_link_is_used_and_an_earlier_one_when_it_breaks() -> None:
    parts = Parts()
    links = []
    for change in (lambda: None, lambda: parts.mesh.link_up(9, "there", 1), lambda: parts.mesh.link_down(9)):
        change()
        parts.mesh.send("there", ONE)
        (sent,) = [effect for effect in parts.station.effects if isinstance(effect, SendFrame)]
        links.append(sent.link)
        parts.station.effects.clear()

    assert links == [LINKS["there"], 9, LINKS["there"]]


def test_another_incarnation_is_somebody_new() -> None:
    parts = Parts()

    assert not parts.mesh.link_up(9, "there", 1)
    assert parts.mesh.link_up(10, "there", 2)
    assert parts.mesh.incarnation("there") == 2
    assert parts.mesh.incarnation("here") == 0


def test_roles_are_those_of_the_map_and_may_be_none() -> None:
    parts = Parts()

    assert [parts.mesh.with_role(role) for role in ("phb", "shb")] == [["far", "here"], ["here", "there"]]
    assert sorted(parts.mesh.everybody()) == ["between", "far", "here", "there"]
    assert not parts.mesh.knows("stranger")


def test_nothing_is_sent_on_a_full_link_until_there_is_room() -> None:
    parts = Parts()
    link = LINKS["there"]
    for pending, sent in ((LINK_HIGH, 1), (LINK_HIGH + 1, 0), (LINK_HIGH, 0), (LINK_LOW + 1, 0), (LINK_LOW, 1)):
        parts.mesh.room(link, pending)
        parts.mesh.send("there", ONE)
        assert len(parts.sent()) == sent, pending
    parts.mesh.room(link, LINK_HIGH + 1)
    parts.mesh.link_down(link)
    parts.mesh.room(link, LINK_HIGH + 1)
    parts.mesh.link_up(link, "there", 1)
    parts.mesh.send("there", ONE)
    assert len(parts.sent()) == 1, "another link of that number"


def test_knowledge_is_in_no_hurry() -> None:
    parts = Parts()
    parts.mesh.send("there", knowledge())
    parts.mesh.send("there", ONE, ("x",))

    first, second = (effect for effect in parts.station.effects if isinstance(effect, SendFrame))
    assert (first.urgent, second.urgent) == (False, True)
    assert decode(second.frame) == (ONE, ("x",))


def test_nothing_goes_where_there_is_no_link() -> None:
    parts = Parts()
    parts.mesh.link_down(LINKS["far"])
    parts.mesh.send("far", ONE)

    assert parts.messages() == []


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


def test_what_is_late_for_its_link_is_lost() -> None:
    parts = Parts({"delay": 1.0})
    parts.mesh.send("there", ONE)
    parts.mesh.link_down(LINKS["there"])
    parts.mesh.link_up(9, "there", 1)
    go_on(parts, DELAY)

    assert parts.messages() == []


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


def test_those_to_others_do_not_overtake() -> None:
    parts = Parts({"reorder": 1.0})
    parts.mesh.send("there", ONE)
    parts.mesh.send("far", TWO)

    assert parts.messages() == []
