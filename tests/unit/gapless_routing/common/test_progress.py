"""Rows of progress on their way to the pubend, and the minimum there (protocol: rows-of-progress; C4, T20, T48)."""

from __future__ import annotations

from gapless.core.network.facts import Progress, Released
from gapless.core.network.frames import ProgressRows
from gapless_routing.common import progress
from gapless_routing.common.progress import ALL_EVERY, EVERY_MIN
from unit.gapless_routing.knowledge.net import CHAIN, DIAMOND, FORK, MILLISECOND, SECOND, Net, P, done, subscribed


def rows(net: Net, source: str = "", to: str = "") -> list[Progress]:
    """The rows that were sent."""
    return [row for said in net.messages(ProgressRows, source, to) for row in said.rows]


def quiet(network: object = CHAIN) -> Net:
    """A network that has settled, some time before all rows are sent again."""
    net = subscribed(network)  # type: ignore[arg-type]
    net.pass_time(ALL_EVERY - SECOND)
    net.forget()
    return net


def test_a_row_goes_to_every_broker_on_the_way_and_the_minimum_to_the_pubend() -> None:
    net = quiet(DIAMOND)
    net.tell("s", done(10, 20))
    assert rows(net) == [], "it waits for others"
    net.pass_time(2 * EVERY_MIN)

    assert sorted(net.ways(ProgressRows)) == [("i", "p"), ("j", "p"), ("s", "i"), ("s", "j")]
    assert net.take(Released, "p") == [Released(P, 10, 20)]


def test_after_a_hand_over_every_member_is_heard_again() -> None:
    net = quiet()
    net.tell("s", done(10, 20))
    net.pass_time(2 * EVERY_MIN)
    assert net.take(Released, "p") == [Released(P, 10, 20)]

    net.open(members={"s@disk": 0, "t@disk": 0})
    net.tell("s", done(30, 30))
    net.pass_time(2 * EVERY_MIN)
    assert net.take(Released, "p") == []


def test_rows_only_rise_and_the_higher_of_two_is_what_is_sent() -> None:
    net = quiet()
    net.tell("s", done(10, 20), done(5, 30), done(9, 9))
    net.pass_time(2 * EVERY_MIN)
    assert rows(net, "s", "i") == [done(10, 30)]

    net.forget()
    net.arrive("s", "i", ProgressRows((done(1, 2), done(10, 30))))
    net.pass_time(2 * EVERY_MIN)
    assert rows(net, "i", "p") == [], "it says nothing new"


def test_a_row_that_was_lost_comes_again() -> None:
    net = quiet()
    net.lost = lambda sent: isinstance(sent.message, ProgressRows)
    net.tell("s", done(10, 20))
    net.pass_time(2 * EVERY_MIN)
    net.lost = lambda _: False
    assert net.take(Released, "p") == []

    net.pass_time(2 * ALL_EVERY)
    assert net.take(Released, "p") == [Released(P, 10, 20)]


def test_a_new_link_brings_all_rows_that_go_its_way() -> None:
    net = Net(CHAIN, cut=("p-i",))
    net.open(members={"s@disk": 0})
    net.connect("p", "i")
    net.flow()
    net.cut("p", "i")
    net.tell("s", done(10, 20))
    net.pass_time(2 * EVERY_MIN)
    net.forget()

    net.connect("p", "i")
    net.flow()
    assert rows(net) == [done(10, 20)]
    assert net.ways(ProgressRows) == [("i", "p")]


def test_where_nobody_upward_is_reached_the_mates_get_it_and_pass_it_only_upward() -> None:
    net = Net(DIAMOND, cut=("p-i", "j-s"))
    net.open(members={"s@disk": 0})
    net.pass_time(2 * ALL_EVERY - SECOND)
    net.forget()
    net.tell("s", done(10, 20))
    net.pass_time(3 * EVERY_MIN)

    assert net.ways(ProgressRows) == [("s", "i"), ("i", "j"), ("j", "p")]
    assert net.take(Released, "p") == [Released(P, 10, 20)]


def test_mates_that_both_reach_nobody_do_not_send_a_row_back_and_forth() -> None:
    net = Net(DIAMOND, cut=("j-s",))
    net.open(members={"s@disk": 0})
    net.cut("p", "i")
    net.cut("p", "j")
    net.pass_time(ALL_EVERY)
    net.forget()
    net.tell("s", done(10, 20))
    net.pass_time(4 * SECOND)

    assert net.ways(ProgressRows) == [("s", "i"), ("i", "j")]


def test_rows_of_an_shb_that_is_forgotten_are_sent_no_more() -> None:
    net = quiet(FORK)
    net.tell("s", done(10, 20))
    net.pass_time(2 * EVERY_MIN)
    net.lost = lambda sent: "s" in (sent.source, sent.to)
    net.pass_time(45 * SECOND)
    net.forget()
    net.pass_time(2 * ALL_EVERY)

    assert rows(net, "i", "p") == []


def test_a_row_of_a_pubend_that_is_not_known_here_means_nothing() -> None:
    net = quiet()
    net.tell("s", Progress("s@disk", "q@1", 10, 20))
    net.pass_time(2 * EVERY_MIN)

    assert rows(net) == []


def test_very_many_rows_are_sent_less_often() -> None:
    net = quiet()
    net.routers["i"]._progress._risen = {(P, f"{number}@disk"): False for number in range(progress.ROWS_PER_SECOND)}
    net.arrive("s", "i", ProgressRows((done(10, 20),)))
    net.pass_time(SECOND - MILLISECOND)
    assert rows(net, "i", "p") == []

    net.pass_time(2 * MILLISECOND)
    assert rows(net, "i", "p") == [done(10, 20)]


def test_a_row_of_the_pubends_own_broker_counts_too() -> None:
    net = Net(FORK)
    net.open(members={"p@disk": 0})
    net.tell("p", done(3, 4, "p@disk"))

    assert net.take(Released, "p") == [Released(P, 3, 4)]


def test_of_a_pubend_that_is_closed_nothing_is_said_any_more_and_no_row_is_taken() -> None:
    net = quiet()
    net.tell("s", done(10, 20))
    net.routers["i"]._progress.close(P)
    net.tell("s", done(30, 40))
    net.pass_time(2 * EVERY_MIN + ALL_EVERY)

    assert rows(net, "s", "i")
    assert not rows(net, "i", "p")
