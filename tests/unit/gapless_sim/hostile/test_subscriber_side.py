"""The half beside the SHB: what it says, how it delivers, what its cache answers (C1, C2; T4, T37)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gapless.core.network.facts import AskInterest, Held, Hold, Interest, Know, Probe, Progress, PubendMeta, Seen, Want
from gapless.core.network.frames import InterestPart, InterestQuestion, InterestSummary, ProgressRows
from gapless.core.network.interest import digest
from gapless.core.network.seam import Effect
from gapless.core.stream.knowledge import Knowledge, KnowledgeStream
from gapless.core.stream.stamps import RAW
from gapless.core.stream.ticks import FOREVER
from gapless.selectors.filters import Filter
from gapless_sim.hostile.subscriber_side import LATE_MAX, MERGED_WITHIN, ROWS_WITHIN, SubscriberSide
from unit.gapless_sim.hostile.parts import LIFE, SHB, P, Parts, Sent, full, knowledge, whole

META = PubendMeta(P, "far", stable=10)


class Side:
    """The part, with an SHB that has said what it is interested in; the pubend is at `far`."""

    def __init__(self, rates: dict[str, float] | None = None) -> None:
        self.parts = Parts(rates)
        self.parts.station.owners[P] = "far"
        self.side = SubscriberSide(self.parts.station, self.parts.mesh)
        self.interest(full(3, SHB, a="a"))
        self.parts.sent()

    def interest(self, interest: Interest) -> None:
        """The SHB says what it is interested in, whatever the rates."""
        self.side.interest(interest)

    def delivered(self, *said: Knowledge) -> list[Knowledge]:
        """What the SHB is told of it."""
        for one in said:
            self.side.on_knowledge("far", one)
        return [effect.knowledge for effect in self.parts.effects() if isinstance(effect, Know)]


@pytest.fixture
def side() -> Side:
    return Side()


# --------------------------------------------------------------------------------------- what it says


def test_interest_goes_to_every_broker_with_pubends(side: Side) -> None:
    change = Interest(SHB, 3, 4, {7: Filter(("b",))})
    side.interest(change)

    assert sorted(side.parts.sent()) == [Sent("far", whole(change), ()), Sent("here", whole(change), ())]
    assert side.parts.effects() == []


def test_a_version_is_repeated_with_its_digest(side: Side) -> None:
    side.interest(Interest(SHB, 3, 3, {}))

    assert set(side.parts.messages()) == {InterestSummary(SHB, 3, digest({0: Filter(("a",))}))}


def test_a_hole_in_the_shbs_own_interest_is_asked_about(side: Side) -> None:
    side.interest(Interest(SHB, 5, 6, {}))

    assert side.parts.effects() == [AskInterest()]


@pytest.mark.parametrize("shb", ["", SHB])
def test_who_asks_is_told_the_whole(side: Side, shb: str) -> None:
    side.side.on_question("far", InterestQuestion(shb))

    assert side.parts.sent() == [Sent("far", whole(full(3, SHB, a="a")), ())]


def test_an_interest_may_come_in_many_parts() -> None:
    side = Side({"part_interest": 1.0})
    change = Interest(SHB, 3, 4, {7: Filter(("b",)), 8: Filter(("c",))}, frozenset({0}))
    side.side.interest(change)
    parts = [sent.message for sent in side.parts.sent() if sent.peer == "far"]

    assert [(part.start, part.end) for part in parts if isinstance(part, InterestPart)] == [(0, 7), (7, 8), (8, None)]
    assert len(parts) == 3


def test_who_asks_for_another_is_told_nothing(side: Side) -> None:
    side.side.on_question("far", InterestQuestion("another"))

    assert side.parts.sent() == []


def test_a_new_process_with_pubends_is_told_the_whole(side: Side) -> None:
    side.side.on_new_peer("there")
    assert side.parts.sent() == []

    side.side.on_new_peer("far")
    assert side.parts.sent() == [Sent("far", whole(full(3, SHB, a="a")), ())]


def test_wants_and_holds_go_to_the_pubends_broker(side: Side) -> None:
    want, row = Want(P, ((1, 2),), RAW, SHB, again=False), Hold(SHB, P, 1, {})
    side.side.want(want)
    side.side.hold(row)
    side.side.want(Want("q@1", ((1, 2),), RAW, SHB, again=False))

    assert side.parts.sent() == [Sent("far", want, ()), Sent("far", row, ())]


def test_rows_of_progress_go_together_to_each_pubends_broker(side: Side) -> None:
    side.parts.station.owners["o@1"] = "far"
    rows = [Progress(SHB, pubend, 1, 2) for pubend in (P, "nowhere@1", "o@1")]
    for row in rows:
        side.side.progress(row)
    assert side.parts.sent() == []

    assert ("rows",) in side.parts.pass_time(ROWS_WITHIN)
    side.side.say_rows()
    side.side.say_rows()

    assert side.parts.sent() == [Sent("far", ProgressRows((rows[0], rows[2])), ())]


def test_rows_do_not_pile_up(side: Side) -> None:
    for number in range(LATE_MAX):
        side.side.progress(Progress(SHB, P, number, number))

    (message,) = side.parts.messages()
    assert isinstance(message, ProgressRows)
    assert len(message.rows) == LATE_MAX


@pytest.mark.parametrize("behaviour", ["drop_want", "drop_progress", "drop_interest"])
def test_what_is_dropped_goes_nowhere(behaviour: str) -> None:
    side = Side({behaviour: 1.0})
    side.side.want(Want(P, ((1, 2),), RAW, SHB, again=False))
    side.side.progress(Progress(SHB, P, 1, 2))
    side.side.interest(Interest(SHB, 3, 4, {}))
    side.side.say_rows()

    kinds = {type(message).__name__.removesuffix("Rows").removesuffix("Part") for message in side.parts.messages()}
    assert kinds == {"Want", "Progress", "Interest"} - {behaviour.partition("_")[2].capitalize()}
    assert side.parts.pass_time(10**12) == []


@pytest.mark.parametrize("behaviour", ["late_answer", "delay_progress", "delay_interest"])
def test_what_is_delayed_is_said_in_the_end(behaviour: str) -> None:
    side = Side({behaviour: 1.0})
    for _ in side.parts.pass_time(10**12):
        pass
    side.side.want(Want(P, ((1, 2),), RAW, SHB, again=False))
    side.side.progress(Progress(SHB, P, 1, 2))
    side.side.interest(Interest(SHB, 3, 4, {}))
    side.side.say_rows()
    early = {type(message).__name__ for message in side.parts.messages()}

    for _, number in side.parts.pass_time(10**12):
        side.side.say_late(int(number))
    side.side.say_rows()

    (late,) = {type(message).__name__ for message in side.parts.messages()}
    assert {*early, late} == {"Want", "ProgressRows", "InterestPart"}
    assert late not in early


# ------------------------------------------------------------------------------------ what it is told


def test_of_what_was_said_of_a_pubend_the_newest_counts(side: Side) -> None:
    newer = replace(META, stable=30, voids=((10, 20),))
    side.side.on_seen("far", Seen(newer, 5), (SHB, LIFE))
    side.side.on_seen("far", Seen(META, 5), (SHB, LIFE))

    assert side.parts.effects() == [Seen(newer, 5)] * 2


def test_only_its_own_enrolment_concerns_it(side: Side) -> None:
    side.side.on_seen("far", Seen(META, 5), ("another", LIFE))

    assert side.parts.effects() == [Seen(META, None)]


def test_probes_and_held_rows(side: Side) -> None:
    held = Held(SHB, P, 1, {})
    side.side.on_probe("far", Probe(P, 7))
    side.side.on_held("far", replace(held, shb="another"))
    side.side.on_held("far", held)

    assert side.parts.effects() == [Probe(P, 7), held]


def test_a_node_without_an_shb_is_told_nothing() -> None:
    parts = Parts()
    side = SubscriberSide(parts.station, parts.mesh)
    side.on_knowledge("far", knowledge())
    side.on_seen("far", Seen(META, 5), (SHB, LIFE))
    side.on_probe("far", Probe(P, 7))
    side.on_question("far", InterestQuestion())

    assert parts.effects() == []
    assert parts.sent() == []
    assert parts.station.owners == {P: "far"}, "clients may publish there"


def test_knowledge_is_delivered_as_it_comes(side: Side) -> None:
    said = knowledge(10, 20, "a", stamp={SHB: 3})

    assert side.delivered(said, said) == [said, said]


# ------------------------------------------------------------------------------------------ in pieces


def test_splitting_says_the_same() -> None:
    side = Side({"split": 1.0})
    cuts = set()
    for _ in range(50):
        first, second = side.delivered(knowledge(10, 20, "a", "b", "c"))
        assert (first.lo, first.hi, second.hi) == (10, second.lo, 20)
        assert [*first.data.ticks, *second.data.ticks] == [11, 12, 13]
        cuts.add(first.hi)
    assert {11, 12, 13} < cuts <= set(range(11, 20))


def test_merging_waits_for_the_next(side: Side) -> None:
    side = Side({"merge": 1.0})
    assert side.delivered(knowledge(10, 20, "a", stamp={SHB: 3})) == []

    (whole,) = side.delivered(knowledge(20, 30, "b"))
    assert (whole.lo, whole.hi, list(whole.data.ticks), whole.stamp) == (10, 30, [11, 21], {SHB: 3})


def test_merging_does_not_wait_for_ever(side: Side) -> None:
    side = Side({"merge": 1.0})
    side.delivered(knowledge(10, 20))
    ((_, pubend),) = side.parts.pass_time(MERGED_WITHIN)
    side.side.deliver_waiting(str(pubend))

    assert side.delivered() == [knowledge(10, 20)]


def test_what_does_not_touch_is_not_merged() -> None:
    side = Side({"merge": 1.0})

    assert side.delivered(knowledge(10, 20), knowledge(25, 30)) == [knowledge(10, 20), knowledge(25, 30)]


def test_overlapping_says_the_one_before_again() -> None:
    side = Side({"overlap": 1.0})
    delivered = side.delivered(knowledge(10, 20, "a"), knowledge(20, 30, "b"), knowledge(30, 40, "c"))

    assert [(one.lo, one.hi) for one in delivered] == [(10, 20), (10, 30), (20, 40)]
    assert [list(one.data.ticks) for one in delivered] == [[11], [11, 21], [21, 31]]


def test_an_answer_comes_twice() -> None:
    side = Side({"twice": 1.0})
    reply = knowledge(10, 20, "a", reply=True)

    assert side.delivered(reply) == [reply, reply]
    assert side.delivered(knowledge()) == [knowledge()]


# ----------------------------------------------------------------------------------------- the cache


def test_a_cache_answers_what_it_can_and_leaves_the_rest() -> None:
    side = Side({"stale_cache": 1.0})
    side.delivered(knowledge(10, 20, "a", stamp={SHB: 2}), knowledge(20, 30, "a", stamp={SHB: 3}))

    side.side.want(Want(P, ((10, FOREVER),), {SHB: 3}, SHB, again=False))

    replies = [effect.knowledge for effect in side.parts.effects() if isinstance(effect, Know)]
    known = KnowledgeStream(P, 10)
    for reply in replies:
        assert reply.reply
        known.accumulate(reply)
    assert known.unknown(10, 30, {SHB: 3}) == ((11, 20),), "what was filtered for less than is needed is no answer"
    ((_, want, _),) = side.parts.sent()
    assert want == Want(P, ((11, 20), (30, FOREVER)), {SHB: 3}, SHB, again=False)


def test_what_a_cache_answers_whole_is_not_asked(side: Side) -> None:
    side = Side({"stale_cache": 1.0})
    side.delivered(knowledge(10, 20, "a"))
    side.side.want(Want(P, ((12, 18),), RAW, SHB, again=False))

    assert len(side.parts.effects()) == 1
    assert side.parts.sent() == []


def test_what_contradicts_a_cache_is_delivered_all_the_same() -> None:
    side = Side({"stale_cache": 1.0})
    side.delivered(knowledge(10, 20, "a"))

    said = knowledge(10, 20)
    assert side.delivered(said) == [said], "the SHB hears of it, and will say so"


# ------------------------------------------------------------------------------------------- needless


def test_needless_questions_and_probes() -> None:
    side = Side({"ask_interest": 1.0, "probe": 1.0})
    side.delivered(knowledge(10, 20))
    side.side.housekeep()
    expected: list[Effect] = [AskInterest(), Probe(P, 20)]
    assert side.parts.effects() == expected


def test_what_was_forgotten_is_asked_for(side: Side) -> None:
    side.side.forget()
    assert side.parts.effects() == [AskInterest()]

    side.side.on_question("far", InterestQuestion())
    assert side.parts.effects() == [AskInterest()]
    assert side.parts.sent() == []
