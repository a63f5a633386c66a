"""Which links there are, when, and what is said on them."""

from __future__ import annotations

from gapless.core.network.facts import Probe, Wake
from gapless.core.network.frames import Private
from gapless_routing.delta.ring import STATUS
from unit.gapless_routing.delta.net import HUB, DeltaNet, chain, settled
from unit.gapless_routing.knowledge.net import MILLISECOND, SECOND, P, hung_up

LONG = chain("p", "i", "j", "k", "s")


def test_those_beyond_a_dead_one_are_dialled_at_once_and_each_that_does_not_answer_is_waited_for() -> None:
    net = settled(LONG, delta=3)
    net.kill("i", "j", "k")
    net.pass_time(400 * MILLISECOND)  # 250 ms for each of two that are dead beyond the first
    assert net.linked("s") == set()
    net.pass_time(200 * MILLISECOND)
    assert net.linked("s") == {"p"}
    assert net.server("s") == "p"


def test_where_one_alone_is_dead_nothing_is_waited_for() -> None:
    net = settled(LONG)
    net.kill("k")
    assert net.linked("s") == {"j"}
    assert net.server("s") == "j"


def test_nobody_is_dialled_beyond_the_reach() -> None:
    net = settled(LONG)
    net.kill("j", "k")
    net.pass_time(5 * SECOND)
    assert net.linked("s") == set()
    assert net.wished("s") == {"k", "j"}


def test_a_wish_that_is_over_ends_the_dialling() -> None:
    net = settled(HUB)
    net.kill("h", "t")
    net.pass_time(SECOND)
    assert net.wished("s") == {"h", "p", "t"}
    net.revive("h")
    net.pass_time(5 * SECOND)
    assert net.wished("s") == {"h", "p"}  # it may be gone again at once; to t there is no link that could stay
    net.pass_time(15 * SECOND)
    assert net.wished("s") == {"h"}
    assert ("dial", "t") not in net.routers["s"]._state.timers


def test_a_link_that_nobody_needs_any_more_is_hung_up_and_stays_so() -> None:
    net = settled(HUB)
    net.kill("h")
    net.pass_time(SECOND)
    assert net.linked("s") == {"p", "t"}
    net.revive("h")
    net.pass_time(5 * SECOND)
    assert net.linked("s") == {"h", "p", "t"}  # it may be gone again at once
    net.pass_time(15 * SECOND)
    assert net.linked("s") == {"h"}
    net.dialled.clear()
    net.pass_time(10 * SECOND)
    assert net.linked("s") == {"h"}


def test_who_was_passed_by_and_is_not_needed_is_not_greeted_by_all_when_it_is_back() -> None:
    """S finds k cut off while that looks for a way past j and i, and wishes for a link past k, to j, in vain."""
    net = settled(LONG, delta=2)
    net.kill("i", "j")
    net.pass_time(600 * MILLISECOND)
    assert (net.server("k"), net.server("s")) == ("p", "k")
    net.pass_time(SECOND)
    net.revive("i", "j")
    net.pass_time(5 * SECOND)
    assert net.linked("j") == {"i", "k"}
    assert net.linked("s") == {"k"}


def test_a_link_that_only_the_other_end_wishes_for_is_kept() -> None:
    """S has lost its link to h, and p has not: p serves s over a link that it does not wish for itself."""
    net = settled(HUB)
    net.break_link("h", "s")
    net.pass_time(SECOND)
    assert "p" in net.linked("s")
    assert "s" not in net.wished("p")
    net.pass_time(20 * SECOND)
    assert "p" in net.linked("s")
    net.say(10, 20, "a")
    assert net.server("s") == "p"


def test_links_toward_pubends_are_kept_longest() -> None:
    net = settled(HUB, links_max=3)
    net.kill("h")
    net.pass_time(SECOND)
    assert net.wished("s") == {"h", "p", "t"}
    few = settled(HUB, links_max=3)
    few.ring("s")._options.links_max = 2
    few.kill("h")
    few.pass_time(SECOND)
    assert few.wished("s") == {"h", "p"}


def test_who_says_nothing_for_three_seconds_counts_as_unready_and_cut() -> None:
    net = settled(LONG)
    net.lost = lambda sent: sent.source == "k" and sent.to == "s"
    net.pass_time(2 * SECOND)
    assert net.server("s") == "k"
    net.pass_time(3 * SECOND)
    assert net.server("s") == "j"


def test_an_older_status_of_the_same_life_changes_nothing_and_another_life_does() -> None:
    net = settled(LONG)
    old = [one.message for one in net.sent if one.source == "k" and one.to == "s"]
    assert not old
    net.pass_time(SECOND)
    [status] = [one.message for one in net.sent if one.source == "k" and one.to == "s" and _is_status(one.message)]
    net.pass_time(SECOND)
    before = net.ring("s")._heard["k"]
    net.arrive("k", "s", status)
    assert net.ring("s")._heard["k"] == before
    assert not hung_up(net, "s")


def test_a_status_that_makes_no_sense_ends_the_link_of_who_sent_it() -> None:
    net = settled(LONG)
    link = net.links["s", "k"]
    net.arrive("k", "s", Private(STATUS, b"\xc1"))
    assert net.links.get(("s", "k")) != link


def _is_status(message: object) -> bool:
    return isinstance(message, Private) and message.kind == STATUS


def test_brokers_that_start_at_once_serve_each_other_and_have_no_link_too_many() -> None:
    net = DeltaNet(LONG)
    net.open()
    net.subscribe("s", 1, "a")
    net.say(10, 20, "a")
    net.pass_time(30 * SECOND)
    assert [net.server(name) for name in LONG.nodes] == [None, "p", "i", "j", "k"]
    assert [net.linked(name) for name in LONG.nodes] == [{"i"}, {"p", "j"}, {"i", "k"}, {"j", "s"}, {"k"}]


def test_what_goes_to_a_certain_broker_takes_the_way_that_passes_others_by_mostly_and_not_in_turns() -> None:
    """The nearer one may have been bypassed because it knows no way on: in turns, what is sent in pairs is stuck."""
    net = settled(chain("p", "i", "j", "k", "s"))
    net.break_link("j", "k")
    net.pass_time(SECOND)
    assert net.linked("i") >= {"j", "k"}
    net.forget()
    router = net.routers["i"]
    for _ in range(100):
        router.send_to("s", Probe(P, 1), None, ())
    net.tell("i", Wake())

    ways = [one.to for one in net.sent if one.source == "i" and isinstance(one.message, Probe)]
    assert set(ways[::2]) == set(ways[1::2]) == {"j", "k"}
    assert ways.count("k") > 3 * ways.count("j")
