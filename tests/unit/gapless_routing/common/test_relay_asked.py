"""Wants on their way, and answers on theirs (protocol: wants-in-the-network; T7, T37, T54, T55, T56)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gapless.core.network.facts import AskPubend, Know, Opened, PubendMeta, Want
from gapless.core.stream.intervals import Ranges
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.stamps import RAW, Stamp
from gapless.core.stream.ticks import FOREVER
from gapless_routing.common import askers, link_table, relay
from unit.gapless_routing.knowledge.net import (
    CHAIN,
    DIAMOND,
    FORK,
    PHB,
    SECOND,
    SHB,
    Net,
    P,
    asked,
    delivered,
    events,
    full,
    knowledge,
    network_map,
    said,
    subscribed,
    want,
)


def test_a_want_goes_up_and_its_answer_down_unfiltered() -> None:
    net = subscribed()
    net.tell("s", want(0, 20))
    assert asked(net) == [want(0, 20)]
    net.say(0, 20, "b", reply=True)

    (one,) = delivered(net)
    assert (said([one]), one.stamp, one.reply) == ([(0, 20, (1,))], RAW, True)


def test_the_nearest_cache_answers() -> None:
    net = subscribed(FORK)
    net.say(0, 20, "a")
    net.forget()
    net.tell("s", want(0, 20, {"s@disk": 1}))

    assert net.ways(Knowledge) == [("i", "s")]
    assert asked(net) == []


def test_what_a_cache_holds_under_too_low_a_stamp_is_asked_for() -> None:
    net = subscribed()
    net.say(0, 20, "a")
    net.arrive("s", "i", want(0, 20, RAW))
    assert net.messages(Want, "i", "p") == [want(1, 20)], "the event is an answer, the silence around it is none"

    assert said(net.messages(Knowledge, "p", "i")[-1:]) == [(1, 20, ())], "the pubend's broker has it unfiltered"


def test_a_want_that_came_sideways_is_answered_sideways() -> None:
    net = Net(DIAMOND, cut=("p-i", "j-s"))
    net.open()
    net.subscribe("s", 1, "a")
    net.pass_time(6 * SECOND)
    net.forget()
    net.tell("s", want(0, 20))
    assert net.ways(Want) == [("s", "i"), ("i", "j"), ("j", "p")]

    net.say(0, 20, "a", reply=True)
    assert net.ways(Knowledge) == [("p", "j"), ("j", "i"), ("i", "s")]
    assert said(delivered(net)) == [(0, 20, (1,))]


def test_what_a_log_told_before_it_was_cut_is_in_no_cache() -> None:
    """Neither what was there nor what comes late: whoever asks is answered by the pubend."""
    net = subscribed(FORK)
    net.say(0, 10)
    net.say(10, 20, "a")
    net.open(members={"s@disk": 0, "t@disk": 0}, grain=1, voids=((10, 200),), stable=200)
    net.arrive("p", "i", knowledge(10, 20, "a"))
    net.forget()
    net.tell("s", want(10, 20))

    assert len(asked(net)) == 1


def test_what_was_pushed_after_all_says_nothing_of_how_long_answers_take() -> None:
    net = subscribed()
    net.lost = lambda sent: sent.to == "p" and isinstance(sent.message, Want)
    net.tell("s", want(0, 20, {"s@disk": 1}))
    net.lost = lambda _: False
    net.say(0, 20, "b")
    net.pass_time(9 * SECOND)
    net.arrive("i", "s", knowledge(0, 20, "b", reply=True))

    (stream,) = net.streams("s")._streams.values()
    assert stream.asked.forget == relay.TIMES.forget


def test_two_that_wait_for_the_same_are_each_answered() -> None:
    net = subscribed(FORK)
    net.tell("s", want(0, 20))
    net.tell("t", want(10, 30, RAW, "t@disk"))
    assert [one.ranges for one in asked(net)] == [((0, 20),), ((20, 30),)]
    net.say(0, 20, "a", reply=True)
    net.say(20, 30, "a", reply=True)

    assert said(delivered(net, "s")) == [(0, 20, (1,))]
    assert said(delivered(net, "t")) == [(10, 20, ()), (20, 30, (21,))]


def test_a_want_without_an_end_asks_for_what_lies_above_all_that_is_known() -> None:
    net = subscribed()
    net.say(0, 20, "a")
    net.forget()
    net.tell("s", want(10, FOREVER, {"s@disk": 1}))
    assert said(delivered(net)) == [(10, 20, ())]
    assert [one.ranges for one in asked(net)] == [((20, FOREVER),)]

    net.say(20, 50, "b", reply=True)
    assert said(delivered(net)) == [(20, 50, (21,))]


def test_what_is_pushed_to_who_waits_for_it_is_not_sent_twice() -> None:
    net = subscribed()
    net.tell("s", want(0, 20, {"s@disk": 1}))
    net.forget()
    net.say(0, 20, "a")

    assert len(net.messages(Knowledge, "p", "i")) == 1
    assert len(net.messages(Knowledge, "i", "s")) == 1
    assert said(delivered(net)) == [(0, 20, (1,))]


def test_an_shb_in_the_middle_of_the_tree_is_not_told_twice_either() -> None:
    net = subscribed(network_map({"P": {"p": PHB}, "M": {"m": SHB}, "S": {"s": SHB}}, "p-m", "m-s"))
    net.tell("m", want(0, 20, {"m@disk": 1}, "m@disk"))
    net.forget()
    net.say(0, 20, "a")

    assert said(delivered(net, "m")) == [(0, 20, (1,))]


def test_who_needs_more_than_a_push_says_is_answered_as_well() -> None:
    net = subscribed()
    net.tell("s", want(0, 20, RAW))
    net.forget()
    net.say(0, 20, "a", "b")

    answers = [one for one in net.messages(Knowledge, "i", "s") if one.reply]
    assert said(answers) == [(0, 1, (1,)), (1, 20, (2,))], "the event needs no stamp, and goes as soon as it is here"
    assert answers[1].stamp is RAW


def test_what_comes_of_its_own_accord_answers_who_waits_for_it_elsewhere() -> None:
    net = subscribed(FORK, t="b")
    net.tell("t", want(0, 20, {"t@disk": 1}, "t@disk"))
    net.forget()
    net.arrive("p", "i", knowledge(0, 20, "a", stamp={"s@disk": 1, "t@disk": 1}), (1000,))

    assert said(delivered(net, "t")) == [(0, 20, (1,))]


def test_a_reply_keeps_the_versions_that_its_want_needs() -> None:
    """T62: a guest at `t` asks with the version of its home at `s`; else each broker asks the next one, for ever."""
    net = subscribed(FORK)
    net.say(0, 20, "b", "b")
    net.pass_time(2 * SECOND)
    net.forget()
    net.tell("t", want(0, 20, {"s@disk": 1}, "t@disk"))

    assert [(one.lo, one.hi, one.stamp) for one in delivered(net, "t")] == [(0, 20, {"s@disk": 1, "t@disk": 1})]
    assert net.messages(Want, "i", "p") == [], "the broker between them has it"

    net.tell("t", want(30, 50, {"s@disk": 1}, "t@disk"))
    (question,) = net.messages(Want, "i", "p")
    assert question.need == {"s@disk": 1, "t@disk": 1}
    net.arrive("p", "i", knowledge(30, 50, stamp={"s@disk": 1, "t@disk": 1}, reply=True))
    assert [(one.lo, one.hi, one.stamp) for one in delivered(net, "t")] == [(30, 50, {"s@disk": 1, "t@disk": 1})]


def test_lost_ticks_are_an_answer() -> None:
    net = subscribed()
    net.tell("s", want(0, 40))
    net.tell("p", Know(Knowledge(P, 0, 40, events("a", first=31), lost=30, reply=True), 1))

    assert [(one.lo, one.hi, one.lost) for one in delivered(net)] == [(0, 30, 30), (30, 40, 0)]


def released(net: Net, upto: int, *, at: int) -> None:
    """The pubend has given up what is up to a tick, and says so with what is new."""
    net.tell("p", Know(Knowledge(P, at, at + 10, lost=upto)))
    net.pass_time(2 * SECOND)
    net.forget()


def test_what_the_pubend_has_given_up_is_asked_for_as_anything_else() -> None:
    """Its broker has it still, with the silence between, which was filtered on the way: there is no gap."""
    net = subscribed(FORK)
    net.say(0, 20, "a", "b", "a")
    released(net, 20, at=20)
    net.tell("t", want(0, 20, RAW, "t@disk"))

    got = delivered(net, "t")
    assert sorted(tick for one in got for tick in one.data.ticks) == [1, 2, 3]
    assert {(one.lost, one.stamp) for one in got} == {(0, RAW)}
    assert asked(net) == []


def test_the_events_of_a_cache_are_not_lost_with_the_silence_between_them() -> None:
    """They lie inside of what was asked for, and the pubend's broker, which began anew, has nothing of it."""
    net = subscribed(FORK)
    net.say(0, 20, "a", "b", "a")
    net.pass_time(2 * SECOND)
    net.cut("p", "i")
    net.start("p")
    net.tell("p", Opened(PubendMeta(P, "p"), {"s@disk": 0, "t@disk": 0}))
    net.connect("p", "i")
    net.flow()
    net.forget()
    net.tell("t", want(0, 20, RAW, "t@disk"))
    (question,) = asked(net)
    (lo, hi), *_ = question.ranges
    net.tell("p", Know(Knowledge(P, lo, hi, lost=30, reply=True), 1))

    got = delivered(net, "t")
    assert sorted(tick for one in got for tick in one.data.ticks) == [1, 3]
    assert [one.lost for one in got if one.hi > lo] == [30]


def test_what_was_answered_to_be_lost_is_not_asked_for_again() -> None:
    net = subscribed(FORK)
    net.tell("s", want(0, 20))
    net.tell("p", Know(Knowledge(P, 0, 20, lost=20, reply=True), 1))
    net.forget()
    net.tell("t", want(0, 20, RAW, "t@disk"))

    assert [(one.lo, one.hi, one.lost) for one in delivered(net, "t")] == [(0, 20, 20)]
    assert net.ways(Want) == [("t", "i")]


def test_an_answer_is_no_larger_than_there_is_room_for_and_the_rest_follows_little_by_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay, "REPLY_BYTES_MAX", 100)
    net = subscribed()
    net.say(0, 100, *["a" * 30] * 10, reply=True)
    net.forget()
    net.arrive("i", "p", want(0, 100))

    def answered() -> list[int]:
        return [tick for _, _, ticks in said(net.messages(Knowledge, "p", "i")) for tick in ticks]

    assert answered() == [1, 2], "what fits"
    net.pass_time(relay.MORE_AFTER)
    assert answered() == [1, 2, 3, 4]
    net.pass_time(SECOND)
    assert answered() == list(range(1, 11))
    (*_, last) = said(net.messages(Knowledge, "p", "i"))
    assert last[1] == 100
    net.forget()
    net.pass_time(SECOND)
    assert net.messages(Knowledge, "p", "i") == []


def test_a_node_that_slept_does_not_answer_each_repetition_that_came_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """K6: it hears in one turn what was asked again and again, before it is told what waits on the link."""
    monkeypatch.setattr(relay, "REPLY_BYTES_MAX", 1000)
    net = subscribed(FORK)
    net.say(0, 100, *["a" * 30] * 10, reply=True)
    net.forget()
    for _ in range(20):
        net.arrive("i", "p", want(0, 100))
    sent = net.messages(Knowledge, "p", "i")
    assert sum(one.data.size for one in sent) <= 1000
    assert len(sent) < 20

    net.pass_time(SECOND)
    net.forget()
    net.arrive("i", "p", want(0, 100))
    assert said(net.messages(Knowledge, "p", "i")) == [(0, 100, tuple(range(1, 11)))], "the next turn has room again"


def test_on_a_full_link_nothing_is_answered_until_there_is_room() -> None:
    net = subscribed()
    net.say(0, 20, "b")
    net.pass_time(2 * SECOND)
    net.forget()
    net.fill("p", "i")
    net.arrive("i", "p", want(0, 20))
    assert net.messages(Knowledge) == []
    assert asked(net) == [], "it is known here"

    net.fill("p", "i", 0)
    assert said(net.messages(Knowledge, "p", "i")) == [(0, 20, (1,))]
    net.forget()
    net.fill("p", "i")
    net.fill("p", "i", 0)
    assert net.messages(Knowledge) == [], "it was answered"


def test_what_comes_while_the_link_of_an_asker_is_full_is_kept_for_him() -> None:
    net = subscribed()
    net.pass_time(2 * SECOND)
    net.arrive("i", "p", want(0, 20))
    assert len(asked(net)) == 1
    net.fill("p", "i")
    net.forget()
    net.say(0, 20, "b", reply=True)
    assert net.messages(Knowledge) == []

    net.fill("p", "i", 0)
    assert said(net.messages(Knowledge, "p", "i")) == [(0, 20, (1,))]


def test_what_no_cache_can_keep_for_a_full_link_is_kept_or_asked_for_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """One statement is kept in any case; others a small cache has let go of before there is room (delta 100022)."""
    monkeypatch.setattr(relay, "KEPT_BYTES", 0)
    net = subscribed(cache_bytes=0)
    net.pass_time(2 * SECOND)
    net.arrive("i", "p", want(0, 60))
    net.fill("p", "i")
    net.forget()
    for lo in (0, 20, 40):
        net.say(lo, lo + 20, "b", reply=True)
        net.pass_time(2 * SECOND)
    assert net.messages(Knowledge, "p", "i") == []

    net.fill("p", "i", 0)
    assert said(net.messages(Knowledge, "p", "i")) == [(0, 20, (1,)), (41, 60, ())], "silence takes no room"
    assert asked(net) == [replace(want(20, 41), shb="")]
    net.say(20, 40, "b", reply=True)
    net.say(40, 60, "b", reply=True)
    assert said(net.messages(Knowledge, "p", "i"))[2:] == [(20, 40, (21,)), (40, 41, (41,))]
    net.forget()
    net.fill("p", "i")
    net.fill("p", "i", 0)
    assert (net.messages(Knowledge), asked(net)) == ([], []), "it was answered"


def kept_for_a_full_link() -> Net:
    """A log that others append to has answered, and there was no room for that on the way to who asked."""
    net = subscribed(cache_bytes=0)
    net.open(members={"s@disk": 0}, grain=1)
    net.pass_time(2 * SECOND)
    net.arrive("i", "p", want(0, 20))
    net.fill("p", "i")
    net.forget()
    net.say(0, 20, "b", reply=True)
    net.pass_time(2 * SECOND)
    return net


def test_what_was_kept_and_is_taken_back_is_asked_for_once_more() -> None:
    net = kept_for_a_full_link()
    net.open(members={"s@disk": 0}, grain=1, voids=((0, 20),), stable=40)
    net.forget()
    net.fill("p", "i", 0)

    assert [tick for said in net.messages(Knowledge, "p", "i") for tick in said.data.ticks] == []
    assert asked(net) == [replace(want(0, 20), shb="")]


def test_what_was_kept_goes_with_the_link() -> None:
    net = kept_for_a_full_link()
    net.cut("p", "i")
    net.connect("p", "i")
    net.fill("p", "i")
    net.fill("p", "i", 0)

    assert [tick for said in net.messages(Knowledge, "p", "i") for tick in said.data.ticks] == []


def again(lo: int, hi: int, need: Stamp = RAW) -> Want:
    """The repetition of a want."""
    return replace(want(lo, hi, need), again=True)


def slow(stamp: Stamp = RAW) -> Net:
    """The link to a broker was full a moment ago, and that broker was answered on it."""
    net = subscribed()
    net.tell("p", Know(knowledge(0, 20, "b", stamp=stamp)))
    net.pass_time(2 * SECOND)
    net.arrive("i", "p", want(0, 20, {}))
    net.fill("p", "i")
    net.forget()
    return net


def test_on_a_slow_link_what_is_under_way_is_not_sent_again_to_who_asks_again() -> None:
    """Its answer waits on that link, and another one would wait behind it."""
    net = slow()
    net.arrive("i", "p", again(0, 20))
    net.fill("p", "i", 0)
    net.arrive("i", "p", again(0, 20))
    net.pass_time(SECOND)

    assert net.messages(Knowledge, "p", "i") == []
    assert asked(net) == []

    net.arrive("i", "p", again(10, 40))
    assert [one.ranges for one in asked(net)] == [((20, 40),)], "of that nothing is under way"


def test_what_was_asked_for_again_long_after_it_was_sent_is_sent_again() -> None:
    """Whoever still asks then has not got it."""
    net = slow()
    net.pass_time(askers.UNDER_WAY - SECOND)
    net.arrive("i", "p", again(0, 20))
    net.fill("p", "i", 0)
    assert net.messages(Knowledge, "p", "i") == []

    net.pass_time(SECOND)
    net.arrive("i", "p", again(0, 20))

    assert said(net.messages(Knowledge, "p", "i")) == [(0, 20, (1,))]


def test_whoever_asks_anew_has_kept_nothing_and_is_answered() -> None:
    net = slow()
    net.fill("p", "i", 0)
    net.arrive("i", "p", want(0, 20))

    assert said(net.messages(Knowledge, "p", "i")) == [(0, 20, (1,))]


def test_what_was_sent_before_somebody_asked_anew_is_no_answer_to_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """There was no room for all of its answer, and the rest is not known here any more when it is asked for again."""
    net = slow()
    net.fill("p", "i", 0)
    monkeypatch.setattr(relay, "REPLY_BYTES_MAX", 0)
    net.arrive("i", "p", want(0, 20))
    monkeypatch.undo()
    assert net.messages(Knowledge, "p", "i") == []

    net.arrive("i", "p", again(0, 20))

    assert said(net.messages(Knowledge, "p", "i")) == [(0, 20, (1,))]


def test_on_a_link_that_was_not_full_lately_every_repetition_is_answered() -> None:
    """It may lose frames, and an answer comes soon or never."""
    net = slow()
    net.fill("p", "i", 0)
    net.pass_time(link_table.SLOW_LASTS)
    net.arrive("i", "p", want(0, 20))
    net.forget()
    net.arrive("i", "p", again(0, 20))

    assert said(net.messages(Knowledge, "p", "i")) == [(0, 20, (1,))]


def test_what_was_on_its_way_is_gone_with_the_link() -> None:
    net = slow()
    net.cut("p", "i")
    net.connect("p", "i")
    net.fill("p", "i")
    net.fill("p", "i", 0)
    net.forget()
    net.arrive("i", "p", again(0, 20))

    assert said(net.messages(Knowledge, "p", "i")) == [(0, 20, (1,))]


def test_an_answer_under_way_that_says_less_than_is_needed_does_not_count() -> None:
    net = slow({"s@disk": 1})
    net.arrive("i", "p", again(0, 20, {"s@disk": 1}))
    net.fill("p", "i", 0)
    assert net.messages(Knowledge, "p", "i") == []
    assert asked(net) == []

    net.arrive("i", "p", again(0, 20, {"s@disk": 2}))

    assert [one.ranges for one in asked(net)] != [], "for silence: it is asked on"


def test_a_broker_in_between_says_so_when_it_asks_again() -> None:
    """Whether it does is its own affair: it may ask for somebody else, or have been answered meanwhile."""

    def repeats(wanted: Want) -> list[tuple[Ranges, bool]]:
        net.forget()
        net.pass_time(SECOND)
        net.tell("s", wanted)
        return [(one.ranges, one.again) for one in net.messages(Want, "i", "p")]

    net = subscribed()
    net.pass_time(2 * SECOND)

    assert repeats(again(0, 20)) == [(((0, 20),), False)]
    assert repeats(want(0, 30)) == [(((20, 30),), False), (((0, 20),), True)]
    net.arrive("p", "i", knowledge(0, 10, stamp={}, reply=True))
    assert repeats(want(0, 20)) == [(((0, 20),), True)], "that answers nothing"
    net.arrive("p", "i", knowledge(0, 10, reply=True))
    assert repeats(want(0, 20)) == [(((10, 20),), True)]


def test_a_want_for_a_pubend_of_which_nobody_has_heard_is_dropped() -> None:
    net = subscribed()
    net.tell("s", Want("q@1", ((0, 20),), RAW, "s@disk", again=False))

    assert net.ways(Want) == []


def test_the_pubend_is_asked_in_the_name_of_this_life() -> None:
    net = subscribed(CHAIN)
    net.tell("s", want(0, 20))
    (one,) = net.take(AskPubend, "p")

    assert one.reply_to == net.life("p")


def test_after_a_broker_in_between_began_anew_wants_find_the_pubend_again() -> None:
    net = subscribed()
    net.cut("p", "i")
    net.cut("i", "s")
    net.start("i")
    net.connect("p", "i")
    net.connect("i", "s")
    net.flow()
    net.forget()
    net.tell("s", want(0, 20))
    net.say(0, 20, "a", reply=True)

    assert said(delivered(net)) == [(0, 20, (1,))]


def test_after_the_pubends_broker_began_anew_everything_goes_unfiltered_until_a_census() -> None:
    net = subscribed()
    net.cut("p", "i")
    net.start("p")
    net.tell("p", Opened(PubendMeta(P, "p"), {"s@disk": 0}))
    net.lost = lambda sent: sent.to == "p"
    net.connect("p", "i")
    net.flow()
    net.forget()
    net.say(0, 20, "b")
    assert [(one.stamp, said([one])) for one in net.messages(Knowledge, "p", "i")] == [(RAW, [(0, 20, (1,))])]

    net.lost = lambda _: False
    net.tell("s", full(1, "s@disk", "a"))
    net.pass_time(11 * SECOND)
    net.say(20, 40, "b", "a")
    assert net.messages(Knowledge, "p", "i")[-1].stamp == {"s@disk": 1}
