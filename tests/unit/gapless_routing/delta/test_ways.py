"""A message to a certain broker, where one of those on the way leads nowhere."""

from __future__ import annotations

import pytest
from msgspec import msgpack

from gapless.core.network.facts import Post, Posted
from gapless.core.network.frames import Private
from gapless_routing.delta.ways import NO_WAY, PASSED_BY, NoWay
from unit.gapless_routing.delta.net import CHAIN, DeltaNet, chain, settled
from unit.gapless_routing.knowledge.net import SECOND


def mended_around() -> DeltaNet:
    """A chain p – i – j – s, where j lives, and has a link to neither of its neighbours."""
    net = settled()
    net.break_link("i", "j")
    net.break_link("j", "s")
    net.pass_time(6 * SECOND)
    assert (net.linked("p"), net.linked("s")) == ({"i", "j"}, {"i"})
    net.forget()
    return net


def posted(net: DeltaNet, count: int) -> int:
    """How many of so many letters come from p to s."""
    for number in range(count):
        net.tell("p", Post("s", "shb", b"%d" % number))
    return len(net.take(Posted, "s"))


def test_who_leads_nowhere_says_so_and_is_passed_by() -> None:
    """Else most of what is said to a broker beyond a broken link is lost, as often as it is repeated (delta 102486)."""
    net = mended_around()
    assert posted(net, 100) >= 99
    assert len(net.messages(Private, "j", "p")) == 1
    assert len(net.messages(Posted, "p", "j")) == 1


def test_it_is_tried_again_after_a_while() -> None:
    net = mended_around()
    posted(net, 10)
    net.pass_time(PASSED_BY)
    net.mend_link("j", "s")
    net.pass_time(2 * SECOND)
    net.forget()
    assert posted(net, 100) == 100
    assert len(net.messages(Posted, "p", "j")) > 50


def test_where_no_step_is_left_that_is_said_as_well() -> None:
    net = settled(chain("p", "h", "i", "j", "s"))
    net.break_link("j", "s")
    net.break_link("i", "s")
    net.pass_time(6 * SECOND)
    posted(net, 20)
    assert net.messages(Private, "h", "p")
    net.mend_link("i", "s")  # who was passed by leads there again: nothing waits
    net.pass_time(SECOND)
    assert posted(net, 100) > 80


@pytest.mark.parametrize("to", ["nobody", "p"])
def test_what_makes_no_sense_closes_no_way(to: str) -> None:
    net = settled(CHAIN)
    net.arrive("i", "p", Private(NO_WAY, msgpack.encode(NoWay(to))))
    assert posted(net, 10) == 10
