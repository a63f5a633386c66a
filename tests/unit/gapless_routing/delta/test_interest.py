"""Who is told of which SHBs, when it is known who there is, and what follows for what is said."""

from __future__ import annotations

import pytest

from gapless.core.network.facts import NetworkMap, NetworkNode, Opened, PubendMeta
from gapless.core.network.frames import InterestPart, InterestQuestion
from gapless.core.stream.stamps import RAW
from gapless_routing.common.interest_flow import CENSUS
from unit.gapless_routing.delta.net import CHAIN, HUB, DeltaNet, chain, settled
from unit.gapless_routing.knowledge.net import MILLISECOND, PHB, SECOND, SHB, P, delivered, full, private

LONG = chain("p", "i", "j", "k", "s")


def known(net: DeltaNet, name: str) -> dict[str, dict[str, int]]:
    """Under which broker a router knows SHBs, and in which version."""
    table = net.interests(name)
    return {group: dict(table.versions([group])) for group in table if table.versions([group])}


def test_an_shb_is_known_under_its_broker_or_the_last_one_within_reach() -> None:
    net = settled(LONG)
    row = {"s@disk": 1}
    assert [known(net, name) for name in LONG.nodes] == [{"j": row}, {"k": row}, {"s": row}, {"s": row}, {"": row}]


def test_nobody_is_told_of_shbs_where_nobody_filters() -> None:
    """Behind s there is no PHB: it hears of no SHB elsewhere."""
    net = settled(HUB)
    assert known(net, "s") == {"": {"s@disk": 1}}
    assert known(net, "h") == {"s": {"s@disk": 1}, "t": {"t@disk": 1}}
    net.forget()
    net.pass_time(6 * SECOND)
    assert not private(net, CENSUS, "h", "s")


def test_a_change_is_told_at_once_and_no_failure_has_interests_said_again() -> None:
    net = settled(LONG)
    net.tell("s", full(2, "s@disk", "a", "b"))
    assert known(net, "p") == {"j": {"s@disk": 2}}
    net.forget()
    net.kill("k")
    net.pass_time(SECOND)
    assert net.server("s") == "j"
    assert not net.messages(InterestPart)
    assert not net.messages(InterestQuestion)


def test_what_changes_during_a_bypass_is_known_to_all_who_are_there() -> None:
    net = settled(LONG)
    net.kill("k")
    net.pass_time(SECOND)
    net.tell("s", full(2, "s@disk", "b"))
    assert known(net, "p") == {"j": {"s@disk": 2}}
    net.say(10, 20, "b")
    assert [tuple(one.data.ticks) for one in delivered(net)] == [(11,)]


def test_as_long_as_it_is_not_known_who_there_is_everything_is_passed_on_raw() -> None:
    net = DeltaNet(CHAIN)
    net.lost = lambda sent: sent.source == "s"
    net.open()
    net.pass_time(2 * SECOND)
    assert not net.is_ready("p")
    net.lost = lambda _: False
    net.subscribe("s", 1, "b")
    net.pass_time(6 * SECOND)
    assert net.is_ready("p")


def test_a_direction_in_which_nobody_is_live_is_not_waited_for() -> None:
    """Else a broker whose neighbour is dead would never be ready, and be bypassed for ever."""
    net = DeltaNet(CHAIN)
    net.kill("j", "s")
    net.pass_time(2 * SECOND)
    assert not net.is_ready("i")
    net.pass_time(2 * SECOND)
    assert net.is_ready("i")
    assert net.is_ready("p")


def test_who_comes_back_with_others_around_a_dead_one_waits_for_none_of_them_in_a_circle() -> None:
    """Three neighbours of a dead hub: each hears from the other two who is behind them (TD4)."""
    net = settled(HUB)
    net.kill("h", "p", "s", "t")
    net.revive("p", "s", "t")
    net.open()
    net.pass_time(SECOND)  # until there are links around the dead one
    for name in ("s", "t"):
        net.subscribe(name, 1, "a")
    net.pass_time(6 * SECOND)
    assert [net.is_ready(name) for name in ("p", "s", "t")] == [True, True, True]
    assert [net.server(name) for name in ("s", "t")] == ["p", "p"]


def test_an_shb_that_moves_is_known_at_its_new_broker_alone() -> None:
    net = settled(HUB)
    net.kill("s")
    net.tell("t", full(2, "s@disk", "b"))
    assert known(net, "p")["t"]["s@disk"] == 2
    assert "s" not in known(net, "p")


def test_an_shb_that_was_retired_is_forgotten_at_once_whatever_others_say_of_it() -> None:
    net = settled(LONG)
    net.kill("s")
    net.pass_time(2 * SECOND)
    net.tell("p", Opened(PubendMeta(P, "p"), {}))
    assert known(net, "j") == {}
    net.pass_time(20 * SECOND)
    assert [known(net, name) for name in ("i", "j", "k")] == [{}, {}, {}]


def test_an_shb_of_which_nobody_has_spoken_for_long_is_forgotten_everywhere() -> None:
    net = settled(LONG, forget_seconds=30)
    net.kill("s")
    net.pass_time(20 * SECOND)
    assert known(net, "k")
    net.pass_time(20 * SECOND)
    assert [known(net, name) for name in ("p", "i", "j", "k")] == [{}, {}, {}, {}]


def test_only_the_pubends_own_broker_turns_raw_into_versions() -> None:
    """Another one cannot know who is enrolled: what it says keeps the stamp that it got (C5)."""
    net = settled()
    pubend = net.pubend("p"), net.pubend("j")
    decide = net.routers["p"]._interests.decide("i", RAW, pubend[0])
    assert (decide.flood, decide.stamp) == (False, {"s@disk": 1})
    decide = net.routers["j"]._interests.decide("s", RAW, pubend[1])
    assert (decide.flood, decide.stamp) == (True, RAW)


@pytest.mark.parametrize("count", [5, 50])
def test_of_an_shb_with_many_filters_everything_is_wanted_and_changes_cost_no_whole(count: int) -> None:
    net = settled(interest_bytes=1_000)
    long = "selector_" * 10
    net.tell("s", full(2, "s@disk", *(f"{long}.{number}" for number in range(count))))
    wants_all = count == 50
    for name, group in (("p", "j"), ("i", "s"), ("j", "s"), ("s", "")):
        filters = net.interests(name).whole(group, "s@disk").add  # type: ignore[union-attr]
        assert len(filters) == (1 if wants_all else count)
    net.say(10, 20, "nobody")
    net.pass_time(2 * SECOND)
    assert [tuple(one.data.ticks) for one in delivered(net)] == ([(11,)] if wants_all else [()])
    net.forget()
    net.pass_time(12 * SECOND)
    assert not net.messages(InterestQuestion)
    net.tell("s", full(3, "s@disk", "few"))
    net.pass_time(6 * SECOND)
    assert len(net.interests("p").whole("j", "s@disk").add) == 1  # type: ignore[union-attr]
    net.say(20, 30, "nobody", "few")
    net.pass_time(SECOND)
    assert [tuple(one.data.ticks) for one in delivered(net)] == [(22,)]


def test_a_row_of_a_node_that_is_not_on_this_map_keeps_nobody_from_being_ready() -> None:
    """The map of a neighbour has one leaf more: its SHB is not believed, and counts as named."""
    larger = NetworkMap(
        {**CHAIN.nodes, "x": NetworkNode(frozenset(SHB)), "p": NetworkNode(frozenset(PHB))},
        (*CHAIN.links, ("j", "x")),
    )
    net = settled(larger)
    net.kill("p")
    net.network = CHAIN
    net.revive("p")
    net.open()
    net.pass_time(6 * SECOND + 500 * MILLISECOND)
    assert net.is_ready("p")
    assert known(net, "p") == {"j": {"s@disk": 1}}
