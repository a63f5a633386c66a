"""The router at the seam: what it starts with, what it hangs up on, and what it only passes on (C6, C7, C10)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.gauges import value_of
from gapless.core.network.facts import (
    Enrol,
    FrameArrived,
    Hangup,
    Held,
    Hold,
    Know,
    LinkUp,
    Outcome,
    Post,
    Posted,
    PubendMeta,
    Seen,
    Verdict,
    Wake,
    Want,
)
from gapless.core.network.frames import (
    Address,
    Answer,
    InterestSummary,
    Message,
    Private,
    ProgressRows,
    encode,
)
from gapless.core.network.seam import RouterContext
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import LAST, OFFSET_BITS
from gapless.errors import ConfigurationError
from gapless.plugins import load
from gapless_routing.common.interest import parts_of
from gapless_routing.common.notices import PubendNotice
from gapless_routing.common.relay import BATCH_BYTES, EVENT_BYTES
from gapless_routing.knowledge import open_routing
from gapless_routing.knowledge.peers import SIDEWAYS
from gapless_routing.knowledge.router import CACHED, LINKS
from gapless_routing.knowledge.streams import PUBEND
from unit.gapless_routing.knowledge.net import (
    CHAIN,
    DIAMOND,
    PHB,
    SECOND,
    SHB,
    Net,
    P,
    delivered,
    done,
    full,
    hung_up,
    knowledge,
    network_map,
    private,
    said,
    subscribed,
    want,
)

# ------------------------------------------------------------------------------------------ start


def test_it_is_found_by_its_name() -> None:
    assert load("routing", "knowledge")(options={}).name == "knowledge"


def test_an_option_that_it_does_not_know_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="has no option 'cache'"):
        open_routing({"cache": 1})


@pytest.mark.parametrize(
    ("option", "size"),
    [("cache_bytes", -1), ("cache_bytes", "1 MB"), ("cache_bytes", True), ("turn_bytes", 0), ("turn_subscriptions", 0)],
)
def test_a_size_that_is_none_is_refused(option: str, size: object) -> None:
    context = RouterContext("p", 1, CHAIN, {option: size})
    with pytest.raises(ConfigurationError, match=rf"options\.{option} is a number from [01] on"):
        open_routing({}).handlers()[RouterContext](1, context)


def test_a_map_that_is_no_tree_is_refused() -> None:
    apart = network_map({"P": {"p": PHB}, "S": {"s": SHB}})
    with pytest.raises(ConfigurationError, match="no bundle leads"):
        open_routing({}).handlers()[RouterContext](1, RouterContext("p", 1, apart))


def test_two_equal_lives_are_equal_to_the_byte() -> None:
    """C6."""

    def live() -> list[bytes]:
        net = subscribed(DIAMOND)
        net.say(0, 20, "a")
        net.tell("s", want(20, 40), done(5, 6))
        net.pass_time(20 * SECOND)
        return [encode(one.message, one.address) for one in net.sent]

    assert live() == live()


# ---------------------------------------------------------------------------------------- hanging up


def test_who_is_no_neighbour_is_hung_up_on() -> None:
    net = Net(CHAIN)

    assert net.tell("p", LinkUp(99, "s", frozenset(SHB), 1)) == [Hangup(99)]


@pytest.mark.parametrize(
    ("message", "address"),
    [
        pytest.param(b"\x01\x02", (), id="no-frame"),
        pytest.param(InterestSummary("s@disk", 1, 2), (), id="a-summary"),
        pytest.param(Enrol(P, "s@disk"), (), id="an-enrolment"),
        pytest.param(Private(99, b""), (), id="an-unknown-kind"),
        pytest.param(Private(1, b"\x91\x01"), (), id="no-hello"),
        pytest.param(want(0, 20), ("p",), id="a-want-with-an-address"),
        pytest.param(knowledge(0, 20), ("sideways",), id="half-an-address"),
        pytest.param(knowledge(0, 20), (1, 2), id="numbers-for-names"),
        pytest.param(knowledge(0, 20), (0, SIDEWAYS, "S"), id="sideways-from-no-mate"),
        pytest.param(knowledge(0, 20), ("elsewhere", "S"), id="another-word"),
        pytest.param(ProgressRows((done(1, 2),)), ("p", "s"), id="rows-with-an-address"),
        pytest.param(Posted("s", "phb", b"x"), (), id="mail-without-an-address"),
        pytest.param(Answer(P, Outcome(Verdict.OK)), ("p", "s", 1, 1, 1), id="half-a-way"),
        pytest.param(parts_of(full(1, "s@disk", "a"))[0], (), id="an-interest-without-an-age"),
    ],
)
def test_what_no_router_writes_ends_the_link(message: Message | bytes, address: Address) -> None:
    net = subscribed()
    net.arrive("i", "p", message, address)

    assert hung_up(net, "p")


FALSE = 1 << 61


@pytest.mark.parametrize(
    "change",
    [
        {"meta": PubendMeta(P, "p", stable=FALSE)},
        {"enrolled": {"s@disk": FALSE}},
    ],
    ids=["stable", "enrolled"],
)
def test_a_notice_of_a_tick_that_cannot_be_ends_the_link_and_is_told(change: dict[str, Any]) -> None:
    net = subscribed()
    false = msgspec.structs.replace(msgspec.msgpack.decode(_notice(net), type=PubendNotice), **change)
    net.arrive("p", "i", Private(PUBEND, msgspec.msgpack.encode(false)))

    assert hung_up(net, "i")
    assert [(alarm.code, alarm.about) for alarm in net.take(Alarm, "i")] == [(AlarmCode.IMPOSSIBLE_TICK, "p")]
    assert net.streams("i").notices.meta_of(P).stable < FALSE  # type: ignore[union-attr]


def _notice(net: Net) -> bytes:
    net.pass_time(5 * SECOND)
    return private(net, PUBEND, "p", "i")[-1]


def test_a_number_of_a_notice_that_would_silence_all_later_ones_ends_the_link() -> None:
    net = subscribed()
    false = msgspec.structs.replace(msgspec.msgpack.decode(_notice(net), type=PubendNotice), number=1 << 62)
    net.arrive("p", "i", Private(PUBEND, msgspec.msgpack.encode(false)))

    assert hung_up(net, "i")
    assert [alarm.code for alarm in net.take(Alarm, "i")] == [AlarmCode.NODE_REFUSED]


def test_nobody_else_speaks_of_a_nodes_own_pubends() -> None:
    net = subscribed()
    notice = PubendNotice(PubendMeta("q@1", "s"), {}, 1, behind=False, number=1)
    net.arrive("i", "s", Private(PUBEND, msgspec.msgpack.encode(notice)))

    assert net.streams("s").notices.meta_of("q@1") is None


def test_false_silence_reaches_no_shb_and_what_comes_after_it_does() -> None:
    """The neighbour is named once in a while: it may come back at once, and say it again."""
    net = subscribed()
    for _ in range(3):
        net.arrive("i", "s", Knowledge(P, 0, FALSE))
        assert hung_up(net, "s")
    assert [(alarm.code, alarm.about) for alarm in net.take(Alarm, "s")] == [(AlarmCode.IMPOSSIBLE_TICK, "i")]
    assert delivered(net) == []

    net.say(0, 20, "a")
    assert said(delivered(net)) == [(0, 20, (1,))]


def test_a_log_that_is_gone_ends_at_the_last_tick() -> None:
    net = Net(CHAIN)
    net.open(grain=1, stable=20)
    net.subscribe("s", 1, "a")
    net.pass_time(6 * SECOND)
    net.tell("s", want(20, LAST))
    net.tell("p", Know(Knowledge(P, 20, LAST, lost=LAST, reply=True), 1))

    assert [(one.hi, one.lost) for one in delivered(net)] == [(LAST, LAST)]
    assert not net.take(Alarm, "s")


def test_elections_are_told_before_what_follows_them() -> None:
    """However many there were since the last notice: nobody takes what the log says then for a lie."""
    net = Net(CHAIN)
    net.open(grain=1, stable=20)
    net.subscribe("s", 1, "a")
    low = 0
    for epoch in (5, 500):
        tick = (epoch << OFFSET_BITS) + 1
        net.tell("p", Know(Knowledge(P, low, tick)))
        low = tick
    net.pass_time(SECOND)

    assert delivered(net)[-1].hi == low
    assert not net.take(Alarm, "i") + net.take(Alarm, "s")


def test_only_a_mate_says_something_sideways_and_only_for_a_neighbouring_cell() -> None:
    net = subscribed(DIAMOND)
    net.arrive("p", "i", knowledge(0, 20), (0, SIDEWAYS, "S"))
    assert hung_up(net, "i")
    net.arrive("j", "i", knowledge(0, 20), (0, SIDEWAYS, "M"))
    assert hung_up(net, "i")
    net.arrive("j", "i", knowledge(0, 20), (0, SIDEWAYS, "S"))
    assert not hung_up(net, "i")
    assert said(net.messages(Knowledge, "i", "s")) == [(0, 20, ())]


def test_a_frame_of_a_link_that_is_gone_means_nothing() -> None:
    net = subscribed()
    link = net.links["p", "i"]
    net.cut("p", "i")
    assert net.tell("p", FrameArrived(link, encode(want(0, 20)), 0)) == []


# ------------------------------------------------------------------------------------ passing on


def test_a_row_of_holds_goes_to_the_pubend_and_its_answer_to_the_shb() -> None:
    net = subscribed()
    row = Hold("s@disk", P, 3, {7: 12})
    net.tell("s", row)
    assert net.take(Hold, "p") == [row]

    held = Held("s@disk", P, 3, {7: 15}, 40)
    net.tell("p", held)
    assert net.take(Held, "s") == [held]


@pytest.mark.parametrize("gone", ["i", "j"])
def test_an_answer_to_a_hold_takes_a_way_that_leads_on(gone: str) -> None:
    """Of those that are next only some may reach that SHB."""
    net = subscribed(DIAMOND)
    net.cut(gone, "s")
    net.cut("i", "j")
    net.pass_time(2 * SECOND)
    net.tell("s", Hold("s@disk", P, 3, {7: 12}))
    held = Held("s@disk", P, 3, {7: 15}, 40)
    net.tell("p", held)

    assert net.take(Held, "s") == [held]


def test_an_answer_to_a_hold_goes_over_a_mate_who_alone_has_a_link() -> None:
    net = subscribed(DIAMOND)
    net.cut("p", "i")
    net.cut("j", "s")
    net.pass_time(2 * SECOND)
    net.tell("s", Hold("s@disk", P, 3, {7: 12}))
    held = Held("s@disk", P, 3, {7: 15}, 40)
    net.tell("p", held)

    assert net.take(Held, "s") == [held]


def test_rows_of_what_is_not_known_go_nowhere() -> None:
    net = subscribed()
    net.tell("s", Hold("s@disk", "q@1", 3, {}))
    net.tell("p", Held("nobody@disk", P, 3, {}, 40))

    assert net.sent == []


@pytest.mark.parametrize("to", ["p", "i", "s"])
def test_mail_arrives_at_the_node_that_it_is_for_and_nowhere_else(to: str) -> None:
    """C10."""
    net = subscribed()
    net.tell("s", Post(to, "phb", b"hello"))

    assert {name: net.take(Posted, name) for name in "pis" if name != to} == {name: [] for name in "pis" if name != to}
    net.tell("s", Post(to, "phb", b"again"))
    assert net.take(Posted, to)[-1] == Posted("s", "phb", b"again")


def test_mail_for_nobody_is_dropped() -> None:
    net = subscribed()
    net.tell("s", Post("nobody", "phb", b"hello"))

    assert net.sent == []


def test_mail_takes_a_step_sideways_where_it_must() -> None:
    net = Net(DIAMOND, cut=("p-i", "j-s"))
    net.pass_time(2 * SECOND)
    net.tell("s", Post("p", "phb", b"up"))
    net.tell("p", Post("s", "shb", b"down"))

    assert net.take(Posted, "p") == [Posted("s", "phb", b"up")]
    assert net.take(Posted, "s") == [Posted("p", "shb", b"down")]


# --------------------------------------------------------------------------------------------- soft


def test_a_broker_in_between_that_forgot_everything_costs_nothing_but_time() -> None:
    """C7: all that it needs it hears again, from its neighbours alone."""
    net = subscribed()
    for name in ("p", "s"):
        net.cut("i", name)
    net.start("i")
    for name in ("p", "s"):
        net.connect("i", name)
    net.flow()
    net.pass_time(11 * SECOND)
    net.forget()
    net.say(0, 20, "b", "a")

    (one,) = net.messages(Knowledge, "i", "s")
    assert (said([one]), one.stamp) == ([(0, 20, (2,))], {"s@disk": 1})
    assert len(delivered(net)) == 1


def test_an_shb_whose_router_began_anew_is_told_of_the_pubend_when_it_speaks() -> None:
    net = subscribed()
    net.cut("i", "s")
    net.start("s")
    net.connect("i", "s")
    net.flow()
    assert net.take(Seen, "s") == []

    net.tell("s", full(1, "s@disk", "a"))
    assert [seen.enrolled_at for seen in net.take(Seen, "s")] == [0]


def test_it_wakes_only_when_something_is_due() -> None:
    net = subscribed()
    due = net.routers["p"].next_wake()
    assert due is not None
    assert due > net.now
    assert net.tell("p", Wake()) == []
    assert net.sent == []


def test_its_figures_are_links_and_the_size_of_its_cache() -> None:
    net = subscribed(DIAMOND)
    net.say(0, 20, "a")
    gauges = list(net.routers["p"].gauges())

    assert [value_of(gauges, LINKS, broker=broker) for broker in "ij"] == [1, 1]
    assert value_of(gauges, CACHED) == 7 + EVENT_BYTES + BATCH_BYTES, "one event"


def test_a_want_of_another_broker_is_heard() -> None:
    net = subscribed()
    net.arrive("s", "i", want(0, 20))

    assert net.messages(Want, "i", "p") == [want(0, 20)]
