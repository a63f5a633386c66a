"""What is pushed, filtered and held back (protocol: first-time-knowledge, slow-links; T37, T51, T52, T53, T57)."""

from __future__ import annotations

import gc
import tracemalloc

import pytest
from msgspec.structs import replace

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.network.facts import Enrolled, Know, Opened, Probe, PubendMeta, Seen
from gapless.core.stream.columns import EventBatch
from gapless.core.stream.knowledge import Knowledge, KnowledgeStream
from gapless.core.stream.stamps import RAW
from gapless_routing.common import relay
from gapless_routing.common.census import InterestByDirection
from gapless_routing.common.relay import BATCH_BYTES, EVENT_BYTES, SILENCE_AFTER
from gapless_routing.knowledge.streams import NOTICE_EVERY, PUBEND
from unit.gapless_routing.knowledge.net import (
    CHAIN,
    DIAMOND,
    FORK,
    PAIR,
    PHB,
    SECOND,
    SHB,
    Net,
    P,
    asked,
    delivered,
    full,
    knowledge,
    network_map,
    private,
    said,
    subscribed,
    want,
)

SLACK = (1000,)
"""The address of what a pubend's own broker has just said: its silence may wait for so many milliseconds."""
SEVEN = network_map(
    {"P": {"p": PHB}, "S": {"s": SHB}}
    | {f"I{number}": {f"i{number}": ()} for number in range(1, 6)}
    | {f"T{number}": {f"t{number}": SHB} for number in range(1, 6)},
    *("p-i1", "i1-i2", "i2-i3", "i3-i4", "i4-i5", "i5-s"),
    *(f"i{number}-t{number}" for number in range(1, 6)),
)
"""A chain of seven, and an SHB beside each broker on the way."""


def pushed(net: Net, source: str, to: str) -> list[tuple[int, int, tuple[int, ...]]]:
    """What one broker pushed to another, in short."""
    return said(one for one in net.messages(Knowledge, source, to) if not one.reply)


def cache(net: Net, name: str) -> KnowledgeStream:
    """What a broker keeps of the pubend."""
    return net.streams(name)._streams[P].cache


# ------------------------------------------------------------------------------------- first time


def test_an_event_is_pushed_to_those_who_want_it_with_the_silence_before_it() -> None:
    net = subscribed(FORK, t="b")
    net.say(0, 20, "c")
    net.say(20, 30, "a", "b")

    assert pushed(net, "p", "i") == [(0, 30, (21, 22))]
    assert pushed(net, "i", "s") == [(0, 30, (21,))]
    assert pushed(net, "i", "t") == [(0, 30, (22,))]
    assert said(delivered(net)) == [(0, 30, (21,))]


def test_what_is_filtered_is_silence_under_the_versions_that_were_honoured() -> None:
    net = subscribed(FORK, t="b")
    net.say(0, 30, "a", "b", "c")

    (one,) = net.messages(Knowledge, "p", "i")
    assert (one.stamp, tuple(one.data.ticks)) == ({"s@disk": 1, "t@disk": 1}, (1, 2))
    (one,) = net.messages(Knowledge, "i", "s")
    assert (one.stamp, tuple(one.data.ticks)) == ({"s@disk": 1}, (1,)), "the others are not behind that link"


def test_for_an_shb_that_is_not_enrolled_nothing_is_filtered_or_stamped() -> None:
    net = Net(CHAIN)
    net.open()
    net.tell("s", full(1, "s@disk", "a"))
    net.pass_time(6 * SECOND)
    net.forget()
    net.say(0, 30, "c")

    (one,) = net.messages(Knowledge, "i", "s")
    assert (one.stamp, said([one])) == (RAW, [(0, 30, (1,))])


def test_the_shb_gets_nothing_before_it_knows_where_it_counts() -> None:
    net = Net(CHAIN)
    net.open()
    net.tell("s", full(1, "s@disk", "a"))
    net.pass_time(6 * SECOND)
    net.say(0, 30, "a")
    assert [seen.enrolled_at for seen in net.take(Seen, "s")] == [None]
    assert delivered(net) == []

    net.tell("p", Enrolled(P, "s@disk", 12))
    net.say(30, 40, "a")
    assert [seen.enrolled_at for seen in net.take(Seen, "s")][-1] == 12
    assert said(delivered(net)) == [(30, 40, (31,))]


def test_the_shb_of_the_pubends_own_broker_gets_all_of_it_at_once() -> None:
    net = subscribed(network_map({"P": {"p": ("phb", "shb")}}))
    net.say(0, 20)
    net.say(20, 30, "b")

    (silence, event) = delivered(net, "p")
    assert said([silence, event]) == [(0, 20, ()), (20, 30, (21,))]
    assert (silence.stamp, event.stamp) == (RAW, RAW)


def test_a_push_goes_over_one_broker_of_a_cell() -> None:
    net = subscribed(DIAMOND)
    net.say(0, 30, "a")

    assert len(net.ways(Knowledge)) == 2
    assert len(delivered(net)) == 1


def test_a_push_reaches_back_only_to_what_is_unknown() -> None:
    net = subscribed()
    net.say(0, 20, "c")
    net.say(25, 40, "a")
    assert pushed(net, "p", "i") == [(25, 40, (26,))]

    net.say(20, 25, "a")
    net.say(40, 45, "a")
    assert pushed(net, "p", "i")[1:] == [(20, 25, (21,)), (40, 45, (41,))]


def test_what_reaches_back_stops_at_silence_that_says_less() -> None:
    net = subscribed()
    net.arrive("p", "i", knowledge(0, 20, "c", stamp={}), SLACK)
    net.arrive("p", "i", knowledge(20, 40, "a", stamp={"s@disk": 1}), SLACK)

    assert pushed(net, "i", "s") == [(20, 40, (21,))], "the lower stamp would hold for all of it"


def test_only_what_is_new_is_said_again() -> None:
    net = subscribed()
    net.say(0, 20, "a")
    net.say(0, 20, "a")
    assert pushed(net, "p", "i") == [(0, 20, (1,))]

    net.arrive("p", "i", knowledge(10, 30, "a", stamp={"s@disk": 1}), SLACK)
    assert pushed(net, "i", "s")[1:] == [(10, 11, (11,))], "and the silence above it waits"


def test_nothing_is_pushed_where_nobody_is_and_who_comes_later_is_not_sent_the_past() -> None:
    net = Net(CHAIN)
    net.open()
    net.pass_time(6 * SECOND)
    net.say(0, 30, "a", "a")
    assert pushed(net, "p", "i") == []

    net.subscribe("s", 1, "a")
    net.pass_time(6 * SECOND)
    net.say(30, 40, "a")
    assert pushed(net, "p", "i") == [(30, 40, (31,))]


def test_lost_ticks_are_not_silence() -> None:
    net = subscribed()
    net.tell("p", Know(Knowledge(P, 0, 20, lost=10)))
    assert [(one.lo, one.hi, one.lost) for one in net.messages(Knowledge, "p", "i")] == [(10, 20, 10)]

    net.say(20, 30, "a")
    assert pushed(net, "p", "i")[1:] == [(20, 30, (21,))]


# -------------------------------------------------------------------------------------- lazy silence


def test_an_event_that_nobody_wants_is_silence_that_waits() -> None:
    net = subscribed()
    net.say(0, 20, "b")
    assert pushed(net, "p", "i") == []
    net.pass_time(SILENCE_AFTER)

    assert pushed(net, "p", "i") == [(0, 20, ())]
    assert pushed(net, "i", "s") == [(0, 20, ())], "it waits once, not at every hop"


def test_silence_that_waits_travels_with_the_next_event() -> None:
    net = subscribed()
    net.say(0, 20, "b")
    net.say(20, 40, "a")
    assert pushed(net, "p", "i") == [(0, 40, (21,))]

    net.pass_time(2 * SILENCE_AFTER)
    assert len(pushed(net, "p", "i")) == 1


def test_silence_with_many_events_in_it_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the cache would forget them, and who is behind would ask for them: they would be read, and sent to nobody."""
    net = subscribed()
    monkeypatch.setattr(relay, "SILENCE_BYTES", 3 * (EVENT_BYTES + BATCH_BYTES))
    for at in range(0, 100, 20):
        net.say(at, at + 20, "b")

    assert pushed(net, "p", "i") == [(0, 60, ())]
    net.pass_time(SILENCE_AFTER)
    assert pushed(net, "p", "i")[1:] == [(60, 100, ())]


def test_what_waits_is_not_looked_at_with_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    matches = InterestByDirection.matches

    def counted(self: InterestByDirection, cell: str, pubend: str, events: EventBatch) -> int:
        looked.append(len(events))
        return matches(self, cell, pubend, events)

    monkeypatch.setattr(InterestByDirection, "matches", counted)
    net = subscribed()
    looked.clear()
    for at in range(0, 2000, 20):
        net.say(at, at + 20, "b")
    net.pass_time(SILENCE_AFTER)

    assert sum(looked) == 100, "each event when it comes, and not again when its silence is said"


def test_what_waits_is_looked_at_again_when_more_is_wanted() -> None:
    net = subscribed()
    net.say(0, 20, "b")
    net.say(20, 40, "c")
    net.forget()
    net.tell("s", full(2, "s@disk", "a", "b"))
    net.pass_time(SILENCE_AFTER)

    assert pushed(net, "i", "s") == [(0, 40, (1,))]


def test_in_a_group_silence_does_not_wait() -> None:
    net = Net(CHAIN)
    net.open(group="g")
    net.subscribe("s", 1, "a")
    net.pass_time(6 * SECOND)
    net.forget()
    net.say(0, 20, "b")

    assert pushed(net, "i", "s") == [(0, 20, ())]


def test_a_hole_does_not_end_the_silence() -> None:
    """T53: nobody ever fills it here."""
    net = subscribed()
    net.say(0, 20, "a")
    net.arrive("p", "i", knowledge(30, 40, "b"), SLACK)
    net.arrive("p", "i", knowledge(40, 50, "b"), SLACK)
    net.pass_time(SILENCE_AFTER)

    assert pushed(net, "i", "s") == [(0, 20, (1,)), (30, 50, ())]


def test_silence_waits_once_however_many_brokers_it_passes() -> None:
    """T63: at each broker an event turns off, and what follows waits for another one; else it would be 3.7 s here."""
    net = subscribed(SEVEN, t1="t1", t2="t2", t3="t3", t4="t4", t5="t5")
    began = net.now
    for number in range(5):
        net.say(20 * number, 20 * number + 20, f"t{number + 1}")
        net.pass_time(9 * SECOND // 10)
    assert net.now - began > 4 * SECOND

    at, first = next((one.at, one.message) for one in net.sent if one.to == "s" and isinstance(one.message, Knowledge))
    assert (first.lo, first.data.ticks) == (0, ())
    assert at - began <= SILENCE_AFTER


def test_what_was_pushed_with_an_event_may_wait_on_for_the_rest_of_its_time() -> None:
    net = subscribed(FORK, t="b")
    net.say(0, 20, "c")
    net.pass_time(SECOND // 4)
    net.say(20, 40, "b")

    (slack,) = (one.address for one in net.sent if (one.source, one.to) == ("p", "i") and one.address)
    assert slack == (750,)
    net.pass_time(3 * SECOND // 4 - 1)
    assert pushed(net, "i", "s") == []
    net.pass_time(1)
    assert pushed(net, "i", "s") == [(0, 40, ())]


@pytest.mark.parametrize("before", [0, 20])
def test_what_was_known_before_and_goes_along_with_an_event_waits_nowhere_from_here_on(before: int) -> None:
    """Knowledge 889: a broker began anew, had its answers, and pushed all of that as if it had come with the event."""
    net = subscribed()
    if before:
        net.arrive("p", "i", replace(knowledge(0, before, "c"), reply=True))
    net.arrive("p", "i", knowledge(before, 30, "a"), (500,))

    assert pushed(net, "i", "s") == [(0, 30, (before + 1,))]
    (slack,) = (
        one.address for one in net.sent if (one.source, one.to) == ("i", "s") and type(one.message) is Knowledge
    )
    assert slack == (() if before else (500,))


def test_silence_that_was_known_before_waits_for_no_event_either() -> None:
    net = subscribed()
    net.arrive("p", "i", replace(knowledge(0, 20, "c"), reply=True))
    net.arrive("p", "i", knowledge(20, 30, "c"), SLACK)

    assert pushed(net, "i", "s") == [(0, 30, ())]


def test_nobody_makes_silence_wait_for_longer_than_there_is_a_reason_to() -> None:
    net = subscribed()
    net.arrive("p", "i", knowledge(0, 20, "c"), (3_600_000,))
    net.pass_time(SILENCE_AFTER)

    assert pushed(net, "i", "s") == [(0, 20, ())]


# ---------------------------------------------------------------------------------- over a mate


def test_where_a_cell_is_not_reached_a_mate_passes_a_push_on_and_keeps_nothing() -> None:
    net = Net(DIAMOND, cut=("p-j", "i-s"))
    net.open()
    net.subscribe("s", 1, "a")
    net.pass_time(6 * SECOND)
    net.forget()
    net.say(0, 20, "a")

    assert net.ways(Knowledge) == [("p", "i"), ("i", "j"), ("j", "s")]
    assert net.cached_bytes("j") == 0
    assert said(delivered(net)) == [(0, 20, (1,))]


def test_what_came_sideways_goes_sideways_no_more() -> None:
    net = Net(DIAMOND, cut=("p-j", "i-s"))
    net.open()
    net.subscribe("s", 1, "a")
    net.pass_time(6 * SECOND)
    net.lost = lambda sent: sent.to == "i" and sent.source == "j"  # it does not hear that the way is gone
    net.cut("j", "s")
    net.forget()
    net.say(0, 20, "a")

    assert net.ways(Knowledge) == [("p", "i"), ("i", "j")]


# --------------------------------------------------------------------------------------- full links


def behind(net: Net) -> Net:
    """The only link to an SHB is full, and something is to be said on it."""
    net.say(0, 20, "a")
    net.forget()
    net.fill("p", "i")
    net.say(20, 40, "a")
    return net


def test_before_it_is_full_no_notice_says_more_than_was_pushed() -> None:
    """Else the SHB would ask at once for what is on its way."""
    net = subscribed()
    net.say(0, 20, "a")
    net.say(20, 40, "b")
    net.tell("p", Opened(PubendMeta(P, "p", ("a.#",), stable=40), {"s@disk": 0}))

    assert [seen.meta.stable for seen in net.take(Seen, "s")] == [20]


def test_a_full_link_that_has_room_again_is_pushed_on_from_there() -> None:
    net = behind(subscribed())
    net.pass_time(2 * SILENCE_AFTER)
    net.fill("p", "i", 100 << 10)
    net.say(40, 60, "a")
    assert net.messages(Knowledge) == [], "who is behind asks until somebody looks"

    net.pass_time(SILENCE_AFTER)
    assert pushed(net, "p", "i") == [(40, 60, (41,))], "what lies below was said to be there, and is asked for"
    net.say(60, 80, "a")
    assert pushed(net, "p", "i") == [(40, 60, (41,)), (60, 80, (61,))]


def test_silence_that_came_while_a_link_was_full_waits_no_longer_for_that() -> None:
    """It may wait a second in all: what has waited is said when there is room, and may wait nowhere from there on."""
    net = subscribed()
    net.say(0, 20, "a")
    net.fill("i", "s")
    net.arrive("p", "i", knowledge(20, 40, "a"), SLACK)  # there is no room for it
    net.pass_time(SECOND // 4)
    net.arrive("p", "i", knowledge(40, 50))
    net.fill("i", "s", 0)
    net.forget()
    net.pass_time(3 * SILENCE_AFTER // 4)

    assert pushed(net, "i", "s") == [(20, 50, (21,))]
    assert [one.address for one in net.sent if one.to == "s" and isinstance(one.message, Knowledge)] == [()]


def test_what_met_a_full_link_and_silence_that_waited_before_are_said_when_there_is_room() -> None:
    net = subscribed()
    net.arrive("p", "i", knowledge(0, 20, "b"), SLACK)
    net.pass_time(SECOND // 2)
    net.fill("i", "s")
    net.arrive("p", "i", knowledge(20, 40, "a"))
    net.fill("i", "s", 0)
    net.pass_time(SILENCE_AFTER - 1)
    assert pushed(net, "i", "s") == []
    net.pass_time(1)
    assert pushed(net, "i", "s") == [(0, 40, (21,))]

    net.fill("i", "s")
    net.arrive("p", "i", knowledge(40, 60, "a"))
    net.fill("i", "s", 0)
    net.pass_time(SILENCE_AFTER)
    assert pushed(net, "i", "s")[1:] == [(40, 60, (41,))]


def test_silence_that_may_wait_yet_when_a_link_is_not_full_any_more_waits_for_the_rest_of_its_time() -> None:
    net = subscribed()
    net.fill("i", "s")
    net.arrive("p", "i", knowledge(0, 20, "a"), SLACK)
    net.pass_time(SILENCE_AFTER)  # up to here they ask
    net.pass_time(SECOND // 4)
    net.arrive("p", "i", knowledge(20, 40, "b"), SLACK)
    net.fill("i", "s", 0)
    net.forget()
    net.pass_time(SILENCE_AFTER - 1)
    assert pushed(net, "i", "s") == []
    net.pass_time(1)
    assert pushed(net, "i", "s") == [(20, 40, ())]


def test_another_broker_of_the_cell_is_taken_while_a_link_is_full() -> None:
    net = subscribed(DIAMOND)
    net.fill("p", "i")
    net.say(0, 20, "a")
    net.fill("p", "i", 0)
    net.fill("p", "j")
    net.say(20, 40, "a")

    assert [way for way in net.ways(Knowledge) if way[0] == "p"] == [("p", "j"), ("p", "i")]


def test_one_full_link_holds_up_nobody_else() -> None:
    net = subscribed(FORK)
    net.fill("i", "s")
    net.say(0, 20, "a")

    assert (pushed(net, "i", "s"), pushed(net, "i", "t")) == ([], [(0, 20, (1,))])


# ------------------------------------------------------------------------------------------ notices


def test_a_pubend_is_known_everywhere_and_to_the_shb() -> None:
    net = Net(FORK)
    net.tell("s", full(1, "s@disk", "a"))
    net.open(topics=("a.#",))

    assert [seen.meta.topics for seen in net.take(Seen, "s")] == [("a.#",)]
    assert all(net.streams(name).notices.meta_of(P) for name in net.routers)


def test_a_notice_that_was_lost_is_repeated() -> None:
    net = Net(CHAIN)
    net.tell("s", full(1, "s@disk", "a"))
    net.lost = lambda sent: sent.source == "i"
    net.open()
    net.lost = lambda _: False
    assert net.take(Seen, "s") == []

    net.pass_time(NOTICE_EVERY)
    assert len(net.take(Seen, "s")) == 1


def test_a_notice_that_was_lost_between_mates_is_repeated_too() -> None:
    net = Net(DIAMOND, cut=("p-i", "j-s"))
    net.tell("s", full(1, "s@disk", "a"))
    net.lost = lambda sent: (sent.source, sent.to) == ("j", "i")
    net.open()
    net.lost = lambda _: False
    assert net.take(Seen, "s") == []

    net.pass_time(2 * NOTICE_EVERY)
    assert len(net.take(Seen, "s")) == 1


def test_an_older_notice_that_a_mate_brings_late_changes_nothing() -> None:
    """It did: the SHB was a member no more, and got nothing until the next notice."""
    net = Net(DIAMOND)
    net.open()
    (older,) = private(net, PUBEND, "p", "j")
    net.subscribe("s", 1, "a")
    net.forget()

    net.streams("i").on_notice("j", older)
    net.streams("s").on_notice("j", older)
    net.say(0, 20, "a")

    assert private(net, PUBEND, "i", "s") == []
    assert said(delivered(net, "s")) == [(0, 20, (1,))]


def test_what_only_a_mate_said_is_not_said_to_mates_again() -> None:
    net = Net(DIAMOND, cut=("p-i", "j-s"))
    net.open()
    net.pass_time(SECOND)
    net.forget()
    net.pass_time(3 * NOTICE_EVERY)

    assert private(net, PUBEND, "j", "i") != []
    assert private(net, PUBEND, "i", "j") == []


def test_who_tells_the_shb_all_again_is_told_of_every_pubend_again() -> None:
    net = subscribed()
    net.tell("s", full(1, "s@disk", "a"))

    assert [(seen.meta.pubend, seen.enrolled_at) for seen in net.take(Seen, "s")] == [(P, 0)]


def test_a_new_link_brings_the_pubends() -> None:
    net = Net(CHAIN, cut=("p-i",))
    net.tell("s", full(1, "s@disk", "a"))
    net.open()
    assert net.take(Seen, "s") == []
    net.connect("p", "i")
    net.flow()

    assert len(net.take(Seen, "s")) == 1


# -------------------------------------------------------------------------------------------- probes


def test_a_probe_reaches_every_shb_and_once() -> None:
    net = subscribed(FORK)
    net.tell("p", Probe(P, 20))

    assert [net.take(Probe, name) for name in "st"] == [[Probe(P, 20)], [Probe(P, 20)]]
    assert sorted(net.ways(Probe)) == [("i", "s"), ("i", "t"), ("p", "i")]


@pytest.mark.parametrize("gone", ["i", "j"])
def test_a_probe_takes_a_way_that_leads_on(gone: str) -> None:
    net = subscribed(DIAMOND)
    net.cut(gone, "s")
    net.cut("i", "j")
    net.forget()
    net.tell("p", Probe(P, 20))

    assert net.take(Probe, "s") == [Probe(P, 20)]


# --------------------------------------------------------------------------------------------- cache


def test_two_that_contradict_each_other_raise_an_alarm_and_the_later_one_is_passed_on_by_itself() -> None:
    net = subscribed()
    net.say(0, 20, "a")
    net.arrive("p", "i", knowledge(0, 30))

    (alarm,) = net.take(Alarm, "i")
    assert (alarm.code, alarm.about) == (AlarmCode.BROKERS_CONTRADICT, P)
    assert asked(net) == []
    net.tell("s", want(0, 20))
    assert said(net.messages(Knowledge, "i", "s")[-1:]) == [(0, 20, ())]


def test_what_is_cached_stays_within_its_limit_and_the_oldest_goes() -> None:
    each = 7 + EVENT_BYTES + BATCH_BYTES
    net = subscribed(cache_bytes=4 * each)
    for first in range(0, 10_000, 100):
        net.say(first, first + 100, "a")

    net.pass_time(2 * SECOND)
    assert each <= net.cached_bytes("i") <= 4 * each
    net.tell("s", want(9_900, 10_000))
    assert asked(net) == [], "the newest is still there"


@pytest.mark.parametrize("together", [1, 10, 100])
def test_what_is_cached_takes_no_more_memory_than_is_counted(together: int) -> None:
    """Small events take far more than their bytes, most of all where each came by itself."""

    def taken_and_counted() -> tuple[int, int]:
        net = subscribed()
        gc.collect()
        tracemalloc.start()
        try:
            for first in range(0, 600, together):
                net.say(10 * first, 10 * (first + together), *["b"] * together)
                net.forget()
            net.routers.pop("i")
            gc.collect()
            taken, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        return taken, net.cached_bytes("p")

    # Threads of tests before this one may allocate meanwhile: then once more.
    found = (taken_and_counted() for _ in range(3))
    assert any(taken < 1.2 * counted for taken, counted in found)


def test_what_was_decoded_of_what_is_cached_is_let_go_within_a_second() -> None:
    """Headers take several times the memory of a small event, and whoever was to get it has matched it."""
    net = subscribed()
    net.say(0, 100, "a", "b")
    net.pass_time(2 * SECOND)

    events = cache(net, "p").take(0, 100)
    assert len(events) == 2
    assert not events.decoded
    assert events._singles == {}


def test_what_was_forgotten_is_unknown_and_not_silence() -> None:
    net = subscribed(cache_bytes=0)
    net.say(0, 100, "a", "a", "a")
    net.pass_time(2 * SECOND)
    assert net.cached_bytes("p") == 0

    net.forget()
    net.arrive("i", "p", want(0, 3))
    assert [one.ranges for one in asked(net)] == [((0, 3),)]
    assert net.messages(Knowledge, "p", "i") == []


def test_only_so_many_runs_of_silence_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "RUNS_MAX", 4)
    net = subscribed()
    for number in range(20):
        net.arrive("p", "i", knowledge(10 * number, 10 * number + 5, stamp={"s@disk": 1}))
    net.pass_time(2 * SECOND)

    assert cache(net, "i").run_count <= 4


def test_an_shb_at_the_end_of_the_tree_caches_nothing() -> None:
    net = subscribed(PAIR)
    net.say(0, 20, "a")

    assert net.cached_bytes("s") == 0
    assert net.cached_bytes("p") > 0


def test_where_no_shb_is_nothing_goes_but_notices() -> None:
    net = Net(network_map({"P": {"p": PHB}, "M": {"i": ()}, "Q": {"q": PHB}, "S": {"s": SHB}}, "p-i", "q-i", "s-i"))
    net.open()
    net.subscribe("s", 1, "a")
    net.pass_time(6 * SECOND)
    net.forget()
    net.say(0, 20, "a")
    net.pass_time(6 * SECOND)

    assert net.messages(Knowledge, "i", "q") == []
    assert private(net, PUBEND, "i", "q") != []
    meta = net.streams("q").notices.meta_of(P)
    assert meta is not None
    assert replace(meta, stable=0) == PubendMeta(P, "p")


# ------------------------------------------------------------------------------------------- forks


def test_silence_that_was_known_behind_a_new_fork_is_asked_for_again_and_events_are_kept() -> None:
    net = subscribed(FORK, t="b")
    net.say(0, 20)
    net.say(20, 40, "a")
    net.tell("t", want(0, 40, shb="t@disk"))
    assert asked(net) == [], "all of it is known on the way"
    net.forget()

    net.open(stable=60, forks=((10, 50),))
    net.tell("t", want(0, 40, shb="t@disk"))

    [asking] = asked(net)
    assert asking.ranges == ((10, 20), (21, 40))
    events = [tick for one in net.messages(Knowledge, "i", "t") if one.reply for tick in one.data.ticks]
    assert events == [21], "nobody else has it"
