"""Who serves whom, and what is said because of it."""

from __future__ import annotations

import pytest

from gapless.core.network.facts import AskPubend, Know, NetworkMap, Opened, Progress, PubendMeta, Want
from gapless.core.network.frames import Private
from gapless.core.stream.columns import EMPTY
from gapless.core.stream.knowledge import Knowledge
from gapless_routing.common.pubend_flow import NOTICE_EVERY, PUBEND
from gapless_routing.delta import serving
from gapless_routing.delta.serving import SERVE, SERVED, SILENT, UNSERVE
from unit.gapless_routing.delta.net import CHAIN, HUB, DeltaNet, chain, settled
from unit.gapless_routing.knowledge.net import MILLISECOND, SECOND, P, delivered, events, knowledge, private, said, want

BYPASS = 600 * MILLISECOND
"""Long enough for the links around one broker, and for a service over them."""


def ticks(net: DeltaNet, name: str = "s") -> list[int]:
    """The events that the SHB of a broker was told since the last call, in the order in which they came."""
    return [tick for knowledge in delivered(net, name) for tick in knowledge.data.ticks]


def test_each_broker_is_served_by_its_neighbour() -> None:
    net = settled()
    assert [net.server(name) for name in ("p", "i", "j", "s")] == [None, "p", "i", "j"]
    assert [net.linked(name) for name in net.network.nodes] == [{"i"}, {"p", "j"}, {"i", "s"}, {"j"}]
    net.say(10, 20, "a", "b")
    assert ticks(net) == [11]
    assert not net.messages(Want)


def test_the_next_takes_over_from_its_copies() -> None:
    """What the dead one had, and had not passed on, comes from the broker before it, and nobody asks for it."""
    net = settled()
    net.lost = lambda sent: sent.source == "j" and isinstance(sent.message, Knowledge)
    net.say(10, 20, "a")
    net.kill("j")
    net.lost = lambda _: False
    net.pass_time(BYPASS)
    assert net.server("s") == "i"
    net.say(20, 30, "a")
    assert ticks(net) == [11, 21]
    assert not net.messages(Want)
    assert not net.take(AskPubend, "p")


def test_who_is_back_serves_only_when_it_is_ready_and_the_other_is_let_go_of_then() -> None:
    net = settled()
    net.kill("j")
    net.pass_time(BYPASS)
    net.lost = lambda sent: sent.source == "i" and sent.to == "j"  # so it does not hear who there is
    net.revive("j")
    net.pass_time(4 * SECOND)
    assert net.server("s") == "i"
    net.lost = lambda _: False
    net.forget()
    net.pass_time(6 * SECOND)
    assert net.server("s") == "j"
    assert net.server("j") == "i"
    [over] = private(net, UNSERVE, "s", "i")
    assert over
    net.say(40, 50, "a")
    assert ticks(net) == [41]
    assert not net.messages(Want)
    net.pass_time(20 * SECOND)
    assert net.linked("s") == {"j"}


def test_what_a_broker_had_is_not_copied_to_it_again() -> None:
    net = settled(chain("p", "i", "j", "s", "t"))
    net.say(10, 20, "a", "a")
    net.kill("i")
    net.forget()
    net.pass_time(BYPASS)
    assert net.server("j") == "p"
    assert said(net.messages(Knowledge, "p", "j")) == []
    net.say(20, 30, "a")
    assert said(net.messages(Knowledge, "p", "j")) == [(20, 30, (21,))]


def test_a_broker_that_comes_back_empty_is_copied_all_that_is_held_above() -> None:
    net = settled()
    net.say(10, 20, "a", "b")
    net.kill("i")
    net.pass_time(BYPASS)
    net.forget()
    net.revive("i")
    net.pass_time(6 * SECOND)
    assert net.server("i") == "p"
    assert (10, 20, (11,)) in said(net.messages(Knowledge, "p", "i"))
    assert ticks(net) == []  # it was there already, and who has it is told nothing twice


def test_what_is_pushed_while_there_is_more_to_copy_is_not_copied_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event that fills a hole comes in between (delta 101025)."""
    net = settled()
    net.say(10, 20, "a")
    net.say(30, 40, "a")
    net.kill("i")
    net.pass_time(BYPASS)
    net.forget()
    monkeypatch.setattr(serving, "COPIED_AT_ONCE", 0)
    net.revive("i")
    net.pass_time(6 * SECOND)
    assert net.pubend("p").copying["i"]
    net.say(20, 30, "a")
    monkeypatch.undo()
    net.pass_time(SECOND)

    assert not net.pubend("p").copying.get("i")
    copied = [tick for each in net.messages(Knowledge, "p", "i") for tick in each.data.ticks]
    assert sorted(copied) == [11, 21, 31]


def test_what_was_let_go_of_is_not_pushed_to_who_came_since_when_it_comes_again() -> None:
    """The one who asks to be served may have it, as here, and who misses it asks (delta 102505)."""
    net = settled()
    net.say(10, 20, "a")
    net.pass_time(14 * SECOND)
    known = net.pubend("i")
    assert known.let_go_upto == 20
    known.cache.forget(0, 20)
    net.kill("j")
    net.pass_time(BYPASS)
    assert net.server("s") == "i"
    net.forget()
    net.arrive("p", "i", knowledge(10, 20, "a"))
    assert said(net.messages(Knowledge, "i", "s")) == []
    net.say(20, 30, "a")
    assert said(net.messages(Knowledge, "i", "s")) == [(20, 30, (21,))]


def test_each_of_those_beyond_a_dead_hub_is_served_from_beyond_it() -> None:
    net = settled(HUB)
    net.kill("h")
    net.pass_time(BYPASS)
    assert [net.server(name) for name in ("s", "t")] == ["p", "p"]
    net.say(10, 20, "a")
    assert [ticks(net, name) for name in ("s", "t")] == [[11], [11]]


@pytest.mark.parametrize("delta", [1, 2])
def test_more_in_a_row_than_there_may_be_are_waited_for(delta: int) -> None:
    net = settled(chain("p", "i", "j", "s"), delta=delta)
    net.kill("i", "j")
    net.pass_time(3 * SECOND)
    assert net.server("s") == {1: None, 2: "p"}[delta]
    net.say(10, 20, "a")
    assert ticks(net) == {1: [], 2: [11]}[delta]
    net.revive("i", "j")
    net.pass_time(10 * SECOND)
    assert net.server("s") == "j"
    net.say(20, 30, "a")
    assert 21 in ticks(net)


def test_a_link_that_breaks_between_two_that_live_is_bypassed_from_below() -> None:
    """The one below the break is cut off as long as it reaches no other: those below it go past it."""
    net = settled()
    net.broken |= {frozenset(("p", "j"))}
    net.break_link("i", "j")
    net.pass_time(1 * SECOND)
    assert net.server("j") is None
    assert net.ring("j").cut == ("p@1",)
    assert net.server("s") == "i"
    net.say(10, 20, "a")
    assert ticks(net) == [11]


def test_who_does_not_know_a_pubend_is_bypassed_as_who_is_cut_off() -> None:
    """The broker before it tells it nothing of the pubend, and those behind it have heard of that past it."""
    net = DeltaNet(chain("p", "i", "j", "s"))
    net.break_link("p", "i")
    net.pass_time(2 * SECOND)
    net.open()
    net.subscribe("s", 1, "a")
    net.pass_time(12 * SECOND)
    assert P not in net.pubends("i")

    assert net.server("j") == "p"
    assert net.server("s") == "j"
    net.say(10, 20, "a")
    assert ticks(net) == [11]
    net.mend_link("p", "i")
    net.pass_time(20 * SECOND)
    assert net.server("j") == "i"


def test_who_takes_a_higher_life_for_placing_is_served_on() -> None:
    """A clock was set back: what its publishers ask has to surpass what they asked before, and nothing else is anew."""
    net = settled()
    net.routers["s"]._state.life += 1 << 32
    net.pass_time(3 * SECOND)
    net.say(10, 20, "a")

    assert ticks(net) == [11]
    assert not net.messages(Want)


def test_a_service_that_is_over_is_not_ended_by_what_was_said_of_it_late() -> None:
    """UNSERVE of an earlier number comes when a later SERVE has: it ends nothing."""
    net = settled()
    net.kill("j")
    net.pass_time(BYPASS)
    serve = private(net, SERVE, "s", "i")
    assert serve
    net.revive("j")
    net.pass_time(6 * SECOND)
    assert net.server("s") == "j"
    [over] = private(net, UNSERVE, "s", "i")
    net.kill("j")
    net.pass_time(BYPASS)
    assert net.server("s") == "i"
    net.arrive("s", "i", Private(UNSERVE, over))
    assert "s" in net.pubend("i").outward
    net.arrive("s", "i", Private(SERVE, serve[0]))  # and an earlier SERVE begins nothing anew
    assert net.pubend("i").numbers["s"] > 2


def test_a_late_answer_to_an_earlier_question_does_not_end_the_service_that_is_asked_for() -> None:
    """Who has gone on after a while in which it stood still has asked the same broker twice, say."""
    net = settled()
    net.lost = lambda sent: isinstance(sent.message, Private) and sent.message.kind == SERVED and sent.source == "i"
    net.kill("j")
    net.pass_time(BYPASS)
    net.break_link("i", "s")
    net.mend_link("i", "s")
    net.pass_time(BYPASS)
    answers = private(net, SERVED, "i", "s")
    assert len(answers) >= 2
    for answer in answers:
        net.arrive("i", "s", Private(SERVED, answer))
    assert net.server("s") == "i"
    assert "s" in net.pubend("i").outward
    net.say(10, 20, "a")
    assert ticks(net) == [11]


def test_who_is_pushed_to_by_another_than_its_server_ends_that() -> None:
    net = settled()
    net.kill("j")
    net.pass_time(BYPASS)
    net.lost = lambda sent: sent.source == "s" and sent.to == "i"
    net.revive("j")
    net.pass_time(6 * SECOND)
    assert net.server("s") == "j"
    assert "s" in net.pubend("i").outward  # it has not heard that it is over
    net.lost = lambda _: False
    net.say(30, 40, "a")
    assert "s" not in net.pubend("i").outward


def test_what_is_said_of_services_is_explained_in_traces() -> None:
    net = settled()
    net.kill("j")
    net.pass_time(BYPASS)
    net.revive("j")
    net.pass_time(6 * SECOND)
    frames = [sent for sent in net.sent if isinstance(sent.message, Private) and {sent.source, sent.to} == {"s", "i"}]
    told = [(sent.source, text) for sent in frames if (text := net.routers["p"].explain(sent.message))]
    assert told == [("s", "serve me with p@1"), ("i", "I serve you with p@1"), ("s", "no more of p@1")]


def test_a_want_goes_to_the_server_and_its_answer_to_who_asked() -> None:
    net = settled()
    net.tell("s", want(2, 9, {"s@disk": 1}))
    assert net.ways(Want) == [("s", "j"), ("j", "i"), ("i", "p")]
    net.say(2, 9, "a", reply=True)
    assert ticks(net) == [3]


@pytest.mark.parametrize("network", [CHAIN, HUB])
def test_no_frame_says_anything_when_nothing_happens(network: NetworkMap) -> None:
    """Once a second a status and a report, and every five seconds what may have been lost: nothing for each event."""
    net = settled(network)
    net.forget()
    net.pass_time(5 * SECOND)
    links = len(net.links)
    assert len(net.sent) <= links * (2 * 5 + 4)


ANEW = "p@2"
"""The pubend that stands in the place of another one, whose volume was lost."""


def live(net: DeltaNet, pubend: str, seconds: int) -> None:
    """A pubend says each second that it is silent, by the clock of these tests."""
    for _ in range(seconds):
        net.pass_time(SECOND)
        net.tell("p", Know(Knowledge(pubend, net.now - SECOND, net.now, EMPTY), None))


def with_a_volume() -> DeltaNet:
    """A network whose pubend's volume is known, and has gone on for a while."""
    net = settled(delta=1, forget_seconds=60)
    net.tell("p", Opened(PubendMeta(P, "p", volume="one"), {"s@disk": 0}))
    live(net, P, 3 * NOTICE_EVERY // SECOND)
    return net


def start_anew(net: DeltaNet, pubend: str, volume: str) -> None:
    """The pubend's broker starts with a volume, and the pubend on that."""
    net.kill("p")
    net.pass_time(SECOND)
    net.revive("p")
    net.tell("p", Opened(PubendMeta(pubend, "p", volume=volume), {"s@disk": 0}))


def test_a_pubend_that_is_gone_with_its_volume_is_asked_for_no_more_and_forgotten() -> None:
    net = with_a_volume()
    start_anew(net, ANEW, "two")
    live(net, ANEW, SILENT // SECOND - NOTICE_EVERY // SECOND)
    assert net.pubend("i").gone_since is None, "late words of it may be on their way"
    live(net, ANEW, 3 * NOTICE_EVERY // SECOND)

    assert [net.ring(name).cut for name in ("i", "j", "s")] == [(), (), ()]
    net.forget()
    live(net, ANEW, 20)
    assert not private(net, SERVE)
    assert net.wished("j") == {"i", "s"}, "no way past a broker is tried for its sake"
    assert [net.pubend(name, ANEW).server.broker for name in ("i", "j", "s")] == ["p", "i", "j"]  # type: ignore[union-attr]

    live(net, ANEW, 60)
    for name in ("i", "j", "s"):
        assert list(net.pubends(name)) == [ANEW]
    net.tell("s", Progress("s@disk", P, 5, 5), want(0, 10))  # of an SHB that has not heard of it
    live(net, ANEW, 20)
    net.tell("p", Know(Knowledge(ANEW, net.now, net.now + 10, EMPTY), None))


def test_a_pubend_whose_broker_is_away_is_not_gone_however_long_it_is() -> None:
    net = with_a_volume()
    net.say(net.now, net.now + 10, "a")
    assert len(ticks(net)) == 1
    net.kill("p")
    net.pass_time(120 * SECOND)
    assert net.ring("i").cut == (P,)
    net.revive("p")
    net.tell("p", Opened(PubendMeta(P, "p", volume="one"), {"s@disk": 0}))
    net.pass_time(10 * SECOND)
    assert net.server("i") == "p"


def test_a_volume_that_is_put_back_is_served_and_the_one_that_stood_in_its_place_is_gone() -> None:
    net = with_a_volume()
    start_anew(net, ANEW, "two")
    live(net, ANEW, (SILENT + 2 * NOTICE_EVERY) // SECOND)
    assert net.pubend("s").gone_since is not None
    start_anew(net, P, "one")
    live(net, P, (SILENT + 2 * NOTICE_EVERY) // SECOND)

    assert [net.pubend(name).server.broker for name in ("i", "j", "s")] == ["p", "i", "j"]  # type: ignore[union-attr]
    assert [net.pubend(name, ANEW).gone_since is None for name in ("i", "j", "s")] == [False] * 3
    net.tell("p", Know(Knowledge(P, net.now, net.now + 10, events("a", first=net.now + 1)), None))
    assert ticks(net)[-1:] == [net.now + 1]


def test_a_late_word_of_a_volume_that_was_forgotten_does_not_make_the_other_one_gone() -> None:
    """Whoever hears of a pubend for the first time does not hear that it goes on."""
    net = with_a_volume()
    net.forget()
    net.pass_time(NOTICE_EVERY)
    late = [notice for notice in net.messages(Private, "i", "j") if notice.kind == PUBEND]
    start_anew(net, ANEW, "two")
    live(net, ANEW, (SILENT + 2 * NOTICE_EVERY) // SECOND + 60)
    net.kill("p")
    net.pass_time(SILENT + 2 * NOTICE_EVERY)
    net.arrive("i", "j", late[-1])
    assert net.pubend("j").gone_since is None, "nobody can tell as long as neither goes on"
    assert net.pubend("j", ANEW).gone_since is None


def test_a_pubend_whose_log_lies_in_no_volume_is_not_gone_because_it_is_silent() -> None:
    net = with_a_volume()
    net.tell("p", Opened(PubendMeta("log", "p"), {"s@disk": 0}))
    live(net, P, (SILENT + 2 * NOTICE_EVERY) // SECOND)
    assert net.pubend("i", "log").gone_since is None
