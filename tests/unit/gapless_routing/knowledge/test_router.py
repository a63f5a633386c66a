"""The router at the seam: what it passes on for others, and whom it does not listen to."""

from __future__ import annotations

import pytest

from gapless.core.gauges import value_of
from gapless.core.network.facts import Held, Hold, LinkUp, Post, Posted, Probe, Progress, Released
from gapless.core.network.frames import Private, ProgressRows
from gapless.core.network.seam import RouterContext
from gapless.errors import ConfigurationError
from gapless_routing.knowledge import open_routing
from gapless_routing.knowledge.progress import ALL_EVERY, EVERY_MIN
from gapless_routing.knowledge.router import CACHED, LINKS, KnowledgeRouter
from unit.gapless_routing.knowledge.net import CHAIN, DIAMOND, FORK, Net, P, hung_up, knowledge, subscribed


def test_an_option_that_it_does_not_know_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no option 'cash_bytes'; it has cache_bytes"):
        open_routing(options={"cash_bytes": 1})
    with pytest.raises(ConfigurationError, match="a number of bytes from 0 on, not '1 MB'"):
        KnowledgeRouter().start(0, RouterContext("p", 1, CHAIN, {"cache_bytes": "1 MB"}))


def test_who_is_not_on_the_map_is_hung_up_on() -> None:
    net = Net(CHAIN)
    net.tell("i", LinkUp(99, "stranger", frozenset(), 7))

    assert hung_up(net, "i")


@pytest.mark.parametrize("address", [("sideways",), ("sideways", "S", "S"), (1,)], ids=str)
def test_an_envelope_that_no_router_writes_ends_the_link(address: tuple[str | int, ...]) -> None:
    net = subscribed()
    net.arrive("p", "i", knowledge(0, 10), address)

    assert hung_up(net, "i")


def test_only_a_mate_sends_sideways() -> None:
    net = subscribed()
    net.arrive("p", "i", knowledge(0, 10), ("sideways", "S"))

    assert hung_up(net, "i")


@pytest.mark.parametrize("frame", [b"", b"nonsense", b"\x92\x90\x93\x10\x63\xc4\x00"], ids=["empty", "words", "kind"])
def test_nonsense_ends_the_link(frame: bytes) -> None:
    net = Net(CHAIN)
    net.arrive("p", "i", frame)

    assert hung_up(net, "i")


def test_a_private_message_of_no_kind_ends_the_link() -> None:
    net = Net(CHAIN)
    net.arrive("p", "i", Private(99, b""))

    assert hung_up(net, "i")


def test_mail_goes_through_the_tree_and_to_nobody_else() -> None:
    net = Net(FORK)
    net.tell("s", Post("t", "shb", b"letter"))
    net.tell("p", Post("p", "phb", b"to myself"))

    assert net.take(Posted, "t") == [Posted("s", "shb", b"letter")]
    assert net.take(Posted, "p") == [Posted("p", "phb", b"to myself")]
    assert [net.take(Posted, name) for name in ("i", "s")] == [[], []]


def test_a_row_of_holds_goes_to_the_pubend_and_its_answer_comes_back() -> None:
    net = subscribed(FORK)
    row = Hold("t@disk", P, 3, {7: 40})
    net.tell("t", row)
    assert net.take(Hold, "p") == [row]

    held = Held("t@disk", P, 3, {7: 50}, 60)
    net.tell("p", held)
    assert (net.take(Held, "t"), net.take(Held, "s")) == ([held], [])


def test_a_probe_reaches_every_shb() -> None:
    net = subscribed(FORK)
    net.tell("p", Probe(P, 50))

    assert [net.take(Probe, name) for name in ("s", "t")] == [[Probe(P, 50)]] * 2


# ------------------------------------------------------------------------------------------ progress


def test_progress_travels_as_rows_and_the_pubends_broker_takes_the_minimum() -> None:
    net = subscribed(FORK)
    net.tell("s", Progress("s@disk", P, 30, 40))
    net.tell("t", Progress("t@disk", P, 20, 60))
    net.pass_time(4 * EVERY_MIN)

    assert sorted(row.shb for said in net.messages(ProgressRows, "i", "p") for row in said.rows) == ["s@disk", "t@disk"]
    assert net.take(Released, "p") == [Released(P, 20, 40)]


def test_a_row_goes_to_every_broker_of_the_next_cell() -> None:
    net = subscribed(DIAMOND)
    net.tell("s", Progress("s@disk", P, 30, 40))
    net.pass_time(4 * EVERY_MIN)

    ways = net.ways(ProgressRows)
    assert {("s", "i"), ("s", "j"), ("i", "p"), ("j", "p")} <= {*ways}
    assert ("i", "j") not in ways


def test_a_row_that_was_lost_is_sent_again() -> None:
    net = subscribed()
    net.lost = lambda sent: isinstance(sent.message, ProgressRows)
    net.tell("s", Progress("s@disk", P, 30, 40))
    net.pass_time(2 * EVERY_MIN)
    net.lost = lambda _: False
    net.pass_time(ALL_EVERY + 4 * EVERY_MIN)

    assert net.take(Released, "p") == [Released(P, 30, 40)]


def test_a_row_that_comes_late_lowers_nothing() -> None:
    net = subscribed()
    net.tell("s", Progress("s@disk", P, 30, 40))
    net.pass_time(4 * EVERY_MIN)
    net.arrive("s", "i", ProgressRows((Progress("s@disk", P, 10, 10),)))
    net.pass_time(ALL_EVERY)

    assert net.take(Released, "p") == [Released(P, 30, 40)]


def test_figures_say_who_is_linked_and_what_is_cached() -> None:
    net = subscribed()
    net.say(0, 30, "a", "b")
    gauges = list(net.routers["i"].gauges())

    assert [value_of(gauges, LINKS, broker=name) for name in ("p", "s")] == [1, 1]
    assert value_of(gauges, CACHED) > 0
