"""The half beside the PHB: who is counted, what is pushed and under which stamp (C1, C4, C5; T4, T20, T27, T37)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gapless.core.network.facts import (
    AskPubend,
    Enrol,
    Held,
    Hold,
    Interest,
    Probe,
    Progress,
    PubendMeta,
    Released,
    Seen,
    Want,
)
from gapless.core.network.frames import InterestQuestion, InterestSummary, ProgressRows
from gapless.core.network.interest import digest, parts_of
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.stamps import RAW
from gapless.core.stream.ticks import FOREVER
from gapless.selectors.filters import Filter
from gapless_sim.hostile.publisher_side import PublisherSide
from gapless_sim.hostile.pushes import SILENCE
from unit.gapless_sim.hostile.parts import LIFE, SHB, THERE, TOLD, P, Parts, Sent, full, knowledge, whole

META = PubendMeta(P, "here", stable=10)


class Side:
    """The part, with a pubend that counts the SHB `there`."""

    def __init__(self, rates: dict[str, float] | None = None, members: dict[str, int] | None = None) -> None:
        self.parts = Parts(rates)
        self.side = PublisherSide(self.parts.station, self.parts.mesh)
        self.side.pubend(META, {THERE: 5} if members is None else members)
        self.parts.sent()

    def pushed(self, said: Knowledge, broker: str = "there") -> list[Knowledge]:
        """What a broker is told of it, at once."""
        self.side.know(said, None)
        return [sent.message for sent in self.parts.sent() if sent.peer == broker]  # type: ignore[misc]


@pytest.fixture
def side() -> Side:
    return Side()


# ------------------------------------------------------------------------------------- who is counted


def test_the_first_interest_of_an_unknown_shb_enrols_it() -> None:
    side = Side(members={})
    side.side.on_interest("there", whole(Interest(THERE, 3, 4, {})))

    assert side.parts.effects() == [Enrol(P, THERE)]

    side.side.on_summary("there", InterestSummary(THERE, 4, 0))
    assert side.parts.effects() == [Enrol(P, THERE)], "the first may have been lost"


def test_an_enrolled_shb_is_told_so(side: Side) -> None:
    side.side.on_interest("there", whole(full(1)))
    assert side.parts.effects() == []
    assert side.parts.sent() == [Sent("there", Seen(META, 5), (THERE, TOLD))]

    side.side.on_interest("here", whole(full(1, SHB)))
    side.parts.sent()
    side.side.enrolled(P, SHB, 12)
    assert side.parts.sent() == [Sent("here", Seen(META, 12), (SHB, LIFE))]


def test_a_new_pubend_is_told_to_every_shb_that_is_known(side: Side) -> None:
    side.side.on_interest("there", whole(full(1)))
    side.parts.sent()

    side.side.pubend(PubendMeta("q@1", "here"), {})

    assert side.parts.effects() == [Enrol("q@1", THERE)]
    (sent,) = side.parts.sent()
    assert isinstance(sent.message, Seen)
    assert sent.message.enrolled_at is None


def test_a_retired_shb_is_counted_again_only_when_it_is_heard_of(side: Side) -> None:
    side.side.on_interest("there", whole(full(1, a="a")))
    side.parts.sent()
    side.side.pubend(META, {})
    assert side.parts.effects() == []
    side.side.housekeep()
    assert InterestQuestion() in side.parts.messages(), "nothing of it is left"

    side.side.on_summary("there", InterestSummary(THERE, 1, digest({0: Filter(("a",))})))
    assert side.parts.effects() == [Enrol(P, THERE)]


def test_a_hole_in_an_interest_is_asked_about(side: Side) -> None:
    side.side.on_interest("there", whole(full(1)))
    side.parts.sent()
    side.side.on_interest("there", whole(Interest(THERE, 1, 2, {9: Filter(("a",))})))
    assert side.parts.messages() == []

    side.side.on_interest("there", whole(Interest(THERE, 3, 4, {})))
    assert side.parts.messages() == [InterestQuestion(THERE)]


@pytest.mark.parametrize(
    ("version", "filters", "asked"),
    [
        (2, {0: Filter(("a",))}, False),
        (2, {0: Filter(("b",))}, True),
        (3, {0: Filter(("a",))}, True),
        (1, {0: Filter(("b",))}, False),
    ],
    ids=["the same", "other filters", "a later version", "an earlier version"],
)
def test_what_is_repeated_is_compared(side: Side, version: int, filters: Any, asked: bool) -> None:
    side.side.on_interest("there", whole(full(2, a="a")))
    side.parts.sent()

    side.side.on_summary("there", InterestSummary(THERE, version, digest(filters)))

    assert side.parts.messages() == [InterestQuestion(THERE)] * asked


# --------------------------------------------------------------------------------------- what is pushed


def test_without_interest_everything_is_pushed_raw(side: Side) -> None:
    said = knowledge(10, 20, "a", "b")

    assert side.pushed(said) == [said]
    assert side.pushed(said, "here") == [said]
    assert side.pushed(said, "far") == [], "it has no SHB"


def test_what_nobody_wants_is_left_out_under_the_versions_that_were_honoured(side: Side) -> None:
    side.side.on_interest("there", whole(full(4, a="a")))
    side.parts.sent()

    (pushed,) = side.pushed(knowledge(10, 20, "a", "b"))

    assert list(pushed.data.ticks) == [11]
    assert (pushed.lo, pushed.hi, pushed.stamp) == (10, 20, {THERE: 4})


def test_nothing_is_left_out_for_who_is_no_member() -> None:
    side = Side(members={})
    side.side.on_interest("there", whole(full(4, a="a")))
    side.parts.sent()
    said = knowledge(10, 20, "a", "b")
    assert side.pushed(said) == [said]

    side.side.enrolled(P, THERE, 10)
    side.parts.sent()
    assert [one.stamp for one in side.pushed(knowledge(20, 30, "a", "b"))] == [{THERE: 4}]


def test_nothing_is_left_out_for_who_was_heard_of_but_not_of_its_interest(side: Side) -> None:
    side.side.on_summary("there", InterestSummary(THERE, 4, 0))
    side.parts.sent()
    said = knowledge(10, 20, "a")

    assert side.pushed(said) == [said]


def test_silence_waits_for_an_event_to_travel_with(side: Side) -> None:
    side.side.on_interest("there", whole(full(4, a="a")))
    side.parts.sent()

    assert side.pushed(knowledge(10, 20, "b")) == []
    assert side.pushed(knowledge(20, 30, "b")) == []
    (pushed,) = side.pushed(knowledge(30, 40, "a"))
    assert (pushed.lo, pushed.hi, list(pushed.data.ticks)) == (10, 40, [31])
    assert side.parts.pass_time(SILENCE) == []


def test_silence_does_not_wait_for_longer_than_sil(side: Side) -> None:
    side.side.on_interest("there", whole(full(4, a="a")))
    side.parts.sent()
    side.pushed(knowledge(10, 20, "b"))

    (due,) = side.parts.pass_time(SILENCE)
    assert due == ("silence", P, "there")
    side.side.flush(P, "there")

    assert side.parts.messages() == [knowledge(10, 20, stamp={THERE: 4})]


def test_how_far_a_pubend_is_decided_is_told_as_far_as_it_was_pushed(side: Side) -> None:
    """More would be asked for, although it is on its way."""
    side.side.on_interest("there", whole(full(4, a="a")))
    side.pushed(knowledge(10, 20, "a"))
    side.pushed(knowledge(20, 30, "b"))

    side.side.housekeep()

    seen = [sent.message for sent in side.parts.sent() if sent.peer == "there"]
    assert [message.meta.stable for message in seen if isinstance(message, Seen)] == [20]


def test_probes_go_to_every_shb(side: Side) -> None:
    side.side.probe(Probe(P, 15))

    assert sorted(sent.peer for sent in side.parts.sent() if sent.message == Probe(P, 15)) == ["here", "there"]


def test_flooding() -> None:
    side = Side({"flood": 1.0})
    side.side.on_interest("there", whole(full(4, a="a")))
    side.parts.sent()
    said = knowledge(10, 20, "b")

    assert side.pushed(said) == [said]


def test_over_delivering_adds_what_nobody_wants() -> None:
    side = Side({"over_deliver": 1.0})
    side.side.on_interest("there", whole(full(4, a="a")))
    side.parts.sent()

    pushed = [side.pushed(knowledge(lo, lo + 10, "a", "b", "b", "b"))[0] for lo in range(10, 200, 10)]

    assert all(one.lo + 1 in one.data.ticks and one.stamp == {THERE: 4} for one in pushed)
    assert {len(one.data) for one in pushed} > {1, 2}


def test_understating_lowers_the_stamp() -> None:
    side = Side({"understate": 1.0})
    side.side.on_interest("there", whole(full(4, a="a")))
    side.parts.sent()

    stamps = [side.pushed(knowledge(lo, lo + 10, "a"))[0].stamp for lo in range(10, 500, 10)]

    assert {stamp[THERE] for stamp in stamps if stamp is not None} == {0, 1, 2, 3, 4}


# ------------------------------------------------------------------------------------------ what is asked


def test_an_answer_goes_only_where_it_was_asked_for(side: Side) -> None:
    side.side.on_want("there", Want(P, ((10, FOREVER),), {THERE: 3}, THERE, again=False))
    (ask,) = side.parts.effects()
    assert isinstance(ask, AskPubend)
    assert ask.want.ranges == ((10, FOREVER),)

    answer = knowledge(10, 20, "b", reply=True)
    side.side.know(answer, ask.reply_to)

    assert side.parts.sent() == [Sent("there", answer, ())]


def test_a_want_for_a_pubend_that_is_elsewhere_goes_nowhere(side: Side) -> None:
    side.side.on_want("there", Want("q@1", ((1, 2),), RAW, THERE, again=False))

    assert side.parts.effects() == []


def test_more_is_asked_than_was_wanted() -> None:
    side = Side({"answer_more": 1.0})
    side.side.on_want("there", Want(P, ((10**12, 10**12 + 5), (3 * 10**12, FOREVER)), RAW, THERE, again=False))

    (ask,) = side.parts.effects()
    assert isinstance(ask, AskPubend)
    assert ask.want.ranges[0][0] < 10**12 < 10**12 + 5 < ask.want.ranges[0][1]
    assert ask.want.ranges[-1][1] == FOREVER


def test_a_cache_answers_with_what_was_pushed_and_as_it_was_stamped() -> None:
    side = Side({"stale_cache": 1.0})
    side.side.on_interest("there", whole(full(4, a="a")))
    side.pushed(knowledge(10, 20, "a"))
    side.side.on_want("there", Want(P, ((10, 30),), {THERE: 4}, THERE, again=False))

    (ask,) = side.parts.effects()
    assert isinstance(ask, AskPubend)
    assert ask.want.ranges == ((20, 30),)
    (sent,) = side.parts.sent()
    assert isinstance(sent.message, Knowledge)
    assert (sent.message.hi, sent.message.stamp, sent.message.reply) == (20, {THERE: 4}, True)

    side.side.on_want("there", Want(P, ((10, 20),), RAW, THERE, again=False))
    (ask,) = side.parts.effects()
    assert isinstance(ask, AskPubend)
    assert ask.want.ranges == ((11, 20),), "of what was filtered only events are an answer to who needs all of it"


def test_a_cache_goes_with_all_that_is_forgotten() -> None:
    side = Side({"stale_cache": 1.0})
    side.pushed(knowledge(10, 20, "a"))
    side.side.forget()
    side.side.on_want("there", Want(P, ((10, 20),), RAW, THERE, again=False))

    assert [type(effect) for effect in side.parts.effects()] == [AskPubend]
    assert not [sent for sent in side.parts.sent() if isinstance(sent.message, Knowledge)]


@pytest.mark.parametrize(
    ("need", "stamp"), [({THERE: 4}, {THERE: 4}), ({THERE: 5}, RAW), (RAW, RAW)], ids=["good", "too low", "raw"]
)
def test_an_answer_is_thinned_only_where_its_stamp_is_good_enough(need: Any, stamp: Any) -> None:
    side = Side({"thin_answer": 1.0})
    side.side.on_interest("there", whole(full(4, a="a")))
    side.side.on_want("there", Want(P, ((10, 20),), need, THERE, again=False))
    (ask,) = side.parts.effects()
    assert isinstance(ask, AskPubend)
    side.parts.sent()

    side.side.know(knowledge(10, 20, "b", reply=True), ask.reply_to)

    (sent,) = side.parts.sent()
    assert isinstance(sent.message, Knowledge)
    assert (sent.message.stamp, len(sent.message.data)) == (stamp, 0 if stamp else 1)
    assert sent.message.reply


def test_holds_and_their_answers(side: Side) -> None:
    row = Hold(THERE, P, 2, {1: 0})
    side.side.on_hold("there", row)
    assert side.parts.effects() == [row]

    held = Held(THERE, P, 2, {1: 8})
    side.side.held(held)
    side.side.held(replace(held, shb="nobody"))
    assert side.parts.sent() == [Sent("there", held, ())]


# --------------------------------------------------------------------------------------------- minima


def test_half_an_interest_is_none() -> None:
    """Its version does not count, and nothing is introduced, before all of it is here."""
    side = Side(members={THERE: 5})
    add = {number: Filter(("b",), f"k = '{'x' * 15_000}'") for number in range(2, 22)}
    first, second = parts_of(Interest(THERE, 0, 4, {1: Filter(("a",)), **add}, full=True))
    event = knowledge(10, 20, "b")

    side.side.on_interest("there", first)
    assert side.parts.sent() == []
    assert side.pushed(event) == [event]
    side.side.on_summary("there", InterestSummary(THERE, 4, 1))
    assert InterestQuestion(THERE) in side.parts.messages()

    side.side.on_interest("there", second)
    assert side.parts.sent(), "it is introduced"


def test_nothing_is_released_before_every_member_was_heard() -> None:
    side = Side(members={THERE: 5, SHB: 5})
    side.side.on_progress("there", ProgressRows((Progress(THERE, P, 9, 12),)))
    assert side.parts.effects() == []

    side.side.on_progress("here", ProgressRows((Progress(SHB, P, 7, 15),)))
    assert side.parts.effects() == [Released(P, 7, 12)]


def test_a_membership_that_is_handed_over_must_be_heard_again(side: Side) -> None:
    side.side.on_progress("there", ProgressRows((Progress(THERE, P, 9, 12),)))
    side.parts.effects()

    side.side.pubend(META, {THERE: 5, SHB: 5})
    side.side.on_progress("there", ProgressRows((Progress(THERE, P, 10, 13),)))
    assert side.parts.effects() == []


def test_what_was_forgotten_is_asked_for_and_heard_again() -> None:
    side = Side(members={THERE: 5, SHB: 5})
    side.side.on_interest("there", whole(full(4, a="a")))
    side.side.on_progress("there", ProgressRows((Progress(THERE, P, 9, 12),)))
    side.pushed(knowledge(10, 20, "b"))

    side.side.forget()

    assert side.parts.pass_time(10 * SILENCE) == [], "what waited is dropped, not said"
    side.side.on_progress("here", ProgressRows((Progress(SHB, P, 7, 15),)))
    assert side.parts.effects() == []
    said = knowledge(20, 30, "b")
    assert side.pushed(said) == [said], "nothing is filtered by what nobody remembers"
    side.side.housekeep()
    assert sorted(sent.peer for sent in side.parts.sent() if sent.message == InterestQuestion()) == ["here", "there"]


def test_a_new_process_behind_a_link_is_told_and_asked(side: Side) -> None:
    side.side.on_interest("there", whole(full(4, a="a")))
    side.parts.sent()

    side.side.on_new_peer("there")

    assert side.parts.messages() == [InterestQuestion(), Seen(META, None)]
    said = knowledge(20, 30, "b")
    assert side.pushed(said) == [said]
