"""Which events are kept, for whom, and what is said of those that are not."""

from __future__ import annotations

import pytest
from msgspec import msgpack
from msgspec.structs import replace

from gapless.core.network.facts import AskPubend, Know, Want
from gapless.core.network.frames import Private
from gapless.core.stream.knowledge import Knowledge
from gapless_routing.delta import copies
from gapless_routing.delta.copies import REPORT, Report, Reports
from gapless_routing.delta.ring import STATUS, Status
from unit.gapless_routing.delta.net import HUB, DeltaNet, chain, settled
from unit.gapless_routing.knowledge.net import SECOND, P, delivered, full, knowledge, private, want

LONG = chain("p", "i", "j", "k", "s")
WINDOW = 10 * SECOND
LOOK = 4 * SECOND
"""Until reports have come up the way, and it was looked at what is safe."""


def kept(net: DeltaNet) -> dict[str, list[int]]:
    """The events that each router holds."""
    found: dict[str, list[int]] = {}
    for name in net.routers:
        cache = net.pubend(name).cache
        found[name] = list(cache.take(cache.base, cache.known_upto).ticks)
    return found


def test_events_are_kept_within_the_window_and_go_after_it() -> None:
    net = settled(LONG)
    net.say(10, 20, "a")
    net.pass_time(WINDOW - 2 * SECOND)
    assert kept(net) == {"p": [11], "i": [11], "j": [11], "k": [11], "s": []}
    net.pass_time(LOOK)
    assert kept(net) == {name: [] for name in LONG.nodes}
    net.say(20, 30, "a")
    assert [list(one.data.ticks) for one in delivered(net)] == [[11], [21]]
    assert not net.messages(Want)


def test_for_who_is_away_they_are_kept_at_the_brokers_before_it_alone() -> None:
    """One more of them than there may be dead, and no others, however long it is away (D8)."""
    for delta, keepers in ((1, ("j", "k")), (2, ("i", "j", "k"))):
        net = settled(LONG, delta=delta)
        net.kill("s")
        for number in range(20):
            net.say(10 * number + 10, 10 * number + 20, "a", "b")
            net.pass_time(SECOND)
        net.pass_time(WINDOW + LOOK)
        wanted = [10 * number + 11 for number in range(20)]
        assert kept(net) == {name: wanted if name in keepers else [] for name in ("p", "i", "j", "k")}
        assert max(net.pubend(name).cache.run_count for name in ("p", "i", "j", "k")) < 10
        net.forget()
        net.revive("s")
        net.tell("s", full(1, "s@disk", "a"))
        net.pass_time(6 * SECOND)
        assert sorted(tick for one in delivered(net) for tick in one.data.ticks) == wanted
        assert not net.messages(Want)
        net.pass_time(WINDOW + LOOK)
        assert kept(net) == {name: [] for name in LONG.nodes}


def test_what_one_needs_is_kept_and_what_another_has_is_not() -> None:
    net = settled(HUB)
    net.tell("t", full(2, "t@disk", "b"))
    net.kill("t")
    net.say(10, 30, "a", "b", "a", "b")
    net.pass_time(WINDOW + LOOK)
    assert kept(net)["h"] == [12, 14]
    assert kept(net)["p"] == [12, 14]


def test_a_body_that_is_gone_is_silence_for_nobody_who_may_want_it() -> None:
    """Who wants it and asks again gets it from the pubend; who does not is told silence from the cache."""
    net = settled(HUB)
    net.tell("t", full(2, "t@disk", "b"))
    net.say(10, 20, "a")
    net.pass_time(WINDOW + LOOK)
    assert kept(net)["h"] == []
    net.tell("t", want(10, 20, {"t@disk": 2}, "t@disk"))
    assert not net.take(AskPubend, "p")
    [answer] = [one for one in delivered(net, "t") if one.reply]
    assert (answer.lo, answer.hi, len(answer.data)) == (10, 20, 0)
    net.tell("s", want(10, 20, {"s@disk": 1}))
    [asked] = net.take(AskPubend, "p")
    assert asked.want.ranges == ((10, 20),)
    net.say(10, 20, "a", reply=True)
    [answer] = [one for one in delivered(net, "s") if one.reply]
    assert list(answer.data.ticks) == [11]


def test_an_interest_that_was_widened_since_finds_no_silence_where_a_body_went() -> None:
    net = settled(HUB)
    net.say(10, 20, "a", "b")
    net.pass_time(WINDOW + LOOK)
    net.tell("t", full(2, "t@disk", "a", "b"))
    net.tell("t", want(10, 20, {"t@disk": 2}, "t@disk"))
    [asked] = net.take(AskPubend, "p")
    assert asked.want.ranges == ((10, 20),)


def test_what_an_answer_brings_back_is_let_go_of_again() -> None:
    """A reader from the earliest would fill every cache on its way, and nothing would take it out again."""
    net = settled(LONG)
    net.say(10, 30, "a", "b", "a", "b")
    net.pass_time(WINDOW + LOOK)
    net.tell("s", full(2, "s@disk", "a", "b"))
    net.tell("s", want(10, 30, {"s@disk": 2}, "s@disk"))
    net.say(10, 30, "a", "b", "a", "b", reply=True)
    [answer] = [one for one in delivered(net, "s") if one.reply]
    assert list(answer.data.ticks) == kept(net)["k"] == kept(net)["p"] == [11, 12, 13, 14]
    net.pass_time(LOOK)
    assert kept(net) == {name: [] for name in LONG.nodes}


def test_an_answer_where_all_else_is_lost_is_let_go_of_for_want_of_room_or_after_its_time() -> None:
    """Delta 1247221: it was in no stretch of silence, so room was to be made of it for ever."""
    net = settled(LONG, cache_bytes=20_000)
    lost = 1_000
    net.tell("s", want(10, lost, {"s@disk": 1}, "s@disk"))
    brought = replace(knowledge(10, lost, *["a"] * 9, reply=True), lost=lost)
    net.tell("p", Know(brought, 1))
    assert kept(net)["j"] == list(range(11, 20))
    net.say(lost, lost + 10, "a")

    net.pass_time(WINDOW + LOOK)
    assert kept(net) == {name: [] for name in LONG.nodes}

    net.tell("s", want(10, lost, {"s@disk": 1}, "s@disk"))
    net.tell("p", Know(brought, 2))
    for number in range(101, 140):
        net.say(10 * number, 10 * number + 10, *["a"] * 9)
    assert min(kept(net)["j"]) > lost
    assert net.pubend("j").evicted > lost


def test_a_broker_that_came_back_empty_has_no_copy_whatever_it_reported_before() -> None:
    """The report of a former life is worth nothing (TD2): else what only it had would be let go of above."""
    net = settled(LONG)
    net.lost = lambda sent: sent.to == "s"
    net.say(10, 20, "a")
    net.pass_time(2 * SECOND)
    assert net.pubend("j").reports["k"].hi >= 20
    net.kill("k")
    net.revive("k")
    assert "k" not in net.pubend("j").reports
    net.lost = lambda sent: sent.to in ("k", "s") and isinstance(sent.message, Knowledge)
    net.pass_time(WINDOW + LOOK)
    assert kept(net)["j"] == [11]


def test_reports_go_as_far_up_as_they_are_needed() -> None:
    net = settled(LONG)
    net.forget()
    net.pass_time(2 * SECOND)
    heard = {name: set(net.pubend(name).reports) for name in LONG.nodes}
    assert heard == {"p": {"i", "j"}, "i": {"j", "k"}, "j": {"k", "s"}, "k": {"s"}, "s": set()}
    said = [msgpack.decode(each, type=Status) for each in private(net, STATUS, "p")]
    assert said
    assert not any(each.reports for each in said), "nobody is on the way from a pubend to itself"


def test_what_is_too_much_for_one_message_comes_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "portions", lambda rows: ([row] for row in rows))
    net = settled(LONG)
    net.forget()
    net.pass_time(2 * SECOND)

    assert private(net, REPORT, "k", "j")
    heard = {name: set(net.pubend(name).reports) for name in LONG.nodes}
    assert heard == {"p": {"i", "j"}, "i": {"j", "k"}, "j": {"k", "s"}, "k": {"s"}, "s": set()}


def test_much_that_comes_is_reported_before_the_next_beat() -> None:
    net = settled()
    net.pass_time(SECOND // 2)
    net.forget()
    for number in range(40):
        net.say(10_000 * number + 10, 10_000 * number + 10_000, *["a"] * 5_000)
    assert any(msgpack.decode(each, type=Status).reports for each in private(net, STATUS, "s", "j"))


def test_what_an_eviction_took_is_below_every_run() -> None:
    """A run never reaches below what was let go of for room: no copy is where none is."""
    net = settled(cache_bytes=20_000)
    for number in range(40):
        net.say(10 * number + 10, 10 * number + 20, *["a"] * 9)
    net.pass_time(2 * SECOND)
    pubend = net.pubend("j")
    assert pubend.evicted > 0
    lo, hi = net.routers["j"]._streams.copies.run(pubend)
    assert lo >= pubend.evicted
    assert hi == pubend.cache.known_upto
    net.tell("s", want(10, 20, {"s@disk": 1}))
    assert net.take(AskPubend, "p")


def test_what_was_safe_is_had_although_nothing_can_be_said_of_it_any_more() -> None:
    """Else those above never learn that what they still keep of it is safe (delta 102598)."""
    net = settled(LONG)
    net.arrive("i", "j", knowledge(10, 20, "a"))  # nothing was published beside it: what goes leaves no silence
    net.pass_time(WINDOW + LOOK)
    assert net.pubend("j").cache.unknown(10, 20, {})
    report = net.pubend("i").reports["j"]
    assert (report.lo, report.hi, report.done) == (10, 20, 20)


def test_a_server_that_has_evicted_serves_from_what_it_has() -> None:
    net = settled(LONG, cache_bytes=20_000)
    for number in range(40):
        net.say(10 * number + 10, 10 * number + 20, *["a"] * 9)
    net.pass_time(2 * SECOND)
    net.kill("k")
    net.forget()
    net.pass_time(SECOND)
    assert net.server("s") == "j"
    net.say(500, 510, "a")
    assert [list(one.data.ticks) for one in delivered(net)] == [[501]]
    assert not net.messages(Want)


def test_a_report_that_says_what_cannot_be_harms_nobody_else() -> None:
    net = settled(LONG)
    net.say(10, 20, "a")
    lie = Reports((Report(P, "p", 1, 1, 0, 99, 99), Report("nobody@1", "k", 1, 1, 0, 99, 99)))
    net.arrive("k", "j", Private(REPORT, msgpack.encode(lie)))
    assert "p" not in net.pubend("j").reports
    net.arrive("k", "j", Private(REPORT, b"\xc1"))
    assert net.take(AskPubend, "p") == []
