"""Which links a broker has, and for which it wishes (protocol: redialing)."""

from __future__ import annotations

from gapless.core.network.facts import Dial, Hangup, Undial
from gapless_routing.common.link_table import REDIAL, LinkTable
from gapless_routing.common.router_state import RouterState


def due(state: RouterState) -> list[tuple[object, ...]]:
    """The timers that are due after the longest wait for a link."""
    state.now += REDIAL
    return list(state.timers.take_due(state.now))


def test_a_broker_that_is_wished_for_later_is_dialled_and_let_go_of() -> None:
    state = RouterState("a", seed=1, life=1)
    links = LinkTable(state, ["b"])
    links.wish("c")
    links.wish("b")
    assert state.take_effects() == [Dial("c")]
    assert links.link_up(1, "c")
    assert links.link_counts() == {"b": 0, "c": 1}

    links.let_go("c")
    links.let_go("c")
    assert state.take_effects() == [Undial("c")]
    assert links.at(1) == "c", "it is there until it is gone"
    assert links.link_down(1) == "c"
    assert due(state) == [], "nobody wishes for another one"
    assert not links.link_up(2, "c")


def test_who_was_never_reached_is_not_dialled_any_more_when_let_go_of() -> None:
    state = RouterState("a", seed=1, life=1)
    links = LinkTable(state, ["b"])
    links.start()
    links.let_go("b")

    assert state.take_effects() == [Dial("b"), Undial("b")]
    assert due(state) == []


def test_who_is_welcome_is_linked_and_not_dialled() -> None:
    state = RouterState("a", seed=1, life=1)
    links = LinkTable(state, ["b"], welcome={"c"})
    links.start()
    assert not links.link_up(1, "d")
    assert links.link_up(2, "c")
    assert links.link_up(3, "c")
    assert state.take_effects() == [Dial("b")]
    assert links.link_counts() == {"b": 0, "c": 2}

    links.hang_up("c")
    assert state.take_effects() == [Hangup(2), Hangup(3)]
    assert [links.link_down(2), links.link_down(3)] == ["c", "c"]
    state.timers.cancel(("dial", "b"))
    assert due(state) == [], "nobody wishes for another one"
