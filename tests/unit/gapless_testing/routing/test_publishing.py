"""The stand-in for a PHB keeps the promises of a real one."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.network.facts import (
    AskPubend,
    Enrol,
    Held,
    Hold,
    OpenRequest,
    Outcome,
    Pub,
    Released,
    Submit,
    SubmitOpen,
    Verdict,
    Want,
)
from gapless.core.network.seam import Effect
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.stamps import RAW
from gapless.core.stream.ticks import FOREVER, STEP
from gapless_testing.routing import PAIR
from gapless_testing.routing.clients import columns
from gapless_testing.routing.faults import MS, SECOND
from gapless_testing.routing.network import BrokerHost, VirtualNetwork
from gapless_testing.routing.publishing import CHUNK, PublishingStandIn, tick_at
from unit.gapless_testing.routing.scripted import ScriptedHarness, router

PUBEND = "p@1"


class Phb:
    """A stand-in at broker p of a network of scripted routers."""

    def __init__(self) -> None:
        self.network = VirtualNetwork(ScriptedHarness(), PAIR, 1)
        self.host: BrokerHost = self.network.hosts["p"]
        self.pubend = PublishingStandIn(self.host, PUBEND, number=3)
        self.host.stand_ins.append(self.pubend)
        self.network.start()

    def run(self, ms: int = 50) -> None:
        self.network.run(ms * MS)

    def attend(self, effect: Effect) -> None:
        self.pubend.attend(effect)
        self.run()

    def called(self, method: str) -> list[tuple[Any, ...]]:
        return router(self.network, "p").called(method)

    @property
    def said(self) -> list[Knowledge]:
        return [knowledge for knowledge, _ in self.called("know")]

    def answers(self) -> list[Outcome]:
        return [outcome for _, _, outcome, _ in self.called("submitted")]

    def place(self, pub: Pub, reply_to: object = 1) -> None:
        self.network.contract.informed("p", 0, Submit(pub, ("session", len(self.answers()), reply_to)))
        self.network.contract.said("p", 0, Submit(pub, reply_to))
        self.pubend.attend(Submit(pub, reply_to))

    def open(self, request: OpenRequest) -> Outcome:
        self.network.contract.informed("p", 0, SubmitOpen(request, ("opening", request.attempt)))
        self.network.contract.said("p", 0, SubmitOpen(request, ("opening", request.attempt)))
        self.attend(SubmitOpen(request, ("opening", request.attempt)))
        return self.answers()[-1]


@pytest.fixture
def phb() -> Phb:
    return Phb()


def test_it_opens_its_pubend(phb: Phb) -> None:
    assert phb.called("pubend") == [(phb.pubend.meta, {})]


def test_events_are_told_once_they_are_durable(phb: Phb) -> None:
    before = phb.pubend.stable
    first = phb.pubend.publish(columns("fish", 1, 3))
    second = phb.pubend.publish(columns("fish", 4, 2))
    assert phb.said == []
    phb.run()

    assert [list(known.data.ticks) for known in phb.said] == [[*first, *second]]
    assert (phb.said[0].lo, phb.said[0].hi) == (before, second[-1])
    assert {tick % STEP for tick in phb.pubend.ticks} == {3}


def test_what_is_not_durable_goes_in_a_crash(phb: Phb) -> None:
    lost = phb.pubend.publish(columns("fish", 1, 3))
    phb.host.crash()
    phb.host.start()
    phb.run()
    kept = phb.pubend.publish(columns("fish", 1, 3))
    phb.run()

    assert phb.pubend.ticks == list(kept)
    assert kept[0] > lost[-1]


def test_silence_is_told_when_nothing_else_is(phb: Phb) -> None:
    phb.run(3500)

    assert [(len(known.data), known.hi) for known in phb.said] == [
        (0, tick_at((second + 1) * SECOND)) for second in (1, 2, 3)
    ]


def test_a_want_is_answered_in_chunks(phb: Phb) -> None:
    ticks = phb.pubend.publish(columns("fish", 0, CHUNK + 5))
    phb.run()
    want = Want(PUBEND, ((0, ticks[2]), (ticks[5], FOREVER)), RAW, "s", again=False)
    phb.attend(AskPubend(want, "me"))
    answers = [known for known, reply_to in phb.called("know") if reply_to == "me"]

    assert all(known.reply for known in answers)
    assert [(known.lo, len(known.data)) for known in answers] == [(0, 3), (ticks[5], CHUNK - 1)]
    assert answers[-1].hi == phb.pubend.stable > ticks[-1]


def test_a_chunk_ends_at_its_last_event(phb: Phb) -> None:
    ticks = phb.pubend.publish(columns("fish", 0, CHUNK + 5))
    phb.run()
    phb.attend(AskPubend(Want(PUBEND, ((0, ticks[-1]),), RAW, "s", again=False), "me"))
    answers = [known for known, reply_to in phb.called("know") if reply_to == "me"]

    assert [(known.lo, known.hi) for known in answers] == [(0, ticks[CHUNK - 1]), (ticks[CHUNK - 1], ticks[-1])]


def test_an_shb_is_counted_from_where_it_asked(phb: Phb) -> None:
    phb.run(2000)
    at = phb.pubend.stable
    phb.attend(Enrol(PUBEND, "s"))
    phb.attend(Enrol(PUBEND, "s"))

    assert phb.called("enrolled") == [(PUBEND, "s", at)] * 2
    phb.host.crash()
    phb.host.start()
    assert phb.called("pubend") == [(phb.pubend.meta, {"s": at})]


def release(phb: Phb, tick: int) -> None:
    phb.attend(Released(PUBEND, tick, tick))
    phb.run(1000)


def test_what_everybody_has_done_with_is_given_up(phb: Phb) -> None:
    ticks = phb.pubend.publish(columns("fish", 0, 10))
    phb.run()
    release(phb, ticks[4])
    assert phb.pubend.lost == 0, "nobody is counted"
    phb.pubend.members["s"] = 0
    release(phb, ticks[4])
    phb.attend(AskPubend(Want(PUBEND, ((0, ticks[-1]),), RAW, "s", again=False), "me"))
    answer = next(known for known, reply_to in phb.called("know") if reply_to == "me")

    assert (answer.lost, list(answer.data.ticks)) == (ticks[4], list(ticks[5:]))


def test_a_hold_and_who_is_joining_bound_what_is_given_up(phb: Phb) -> None:
    ticks = phb.pubend.publish(columns("fish", 0, 10))
    phb.run()
    phb.pubend.members["t"] = 0
    phb.attend(Hold("t", PUBEND, 1, {1: ticks[2]}))
    release(phb, ticks[4])
    assert phb.pubend.lost == ticks[2]
    assert phb.called("held") == [(Held("t", PUBEND, 1, {1: ticks[2]}, ticks[-1]),)]
    phb.attend(Hold("t", PUBEND, 2, {}))
    phb.attend(Hold("t", PUBEND, 1, {1: ticks[0]}))
    phb.pubend.attend(Enrol(PUBEND, "s"))
    later = phb.pubend.publish(columns("fish", 0, 10))
    phb.pubend.attend(Released(PUBEND, later[-1], later[-1]))
    phb.run(1000)

    assert phb.pubend.lost <= phb.pubend.members["s"] < later[0]
    release(phb, later[-1])
    assert phb.pubend.lost == later[-1]


def batch(first: int, epoch: int = 1, count: int = 2) -> Pub:
    return Pub("writer", epoch, first, columns("fish", first, count), PUBEND, b"", principal="anonymous")


def test_a_publisher_goes_on_where_its_log_ends(phb: Phb) -> None:
    assert phb.open(OpenRequest("writer", "one", 1, "fish", principal="anonymous")) == Outcome(
        Verdict.OK, sequence=0, epoch=1
    )
    phb.place(batch(1), 1)
    phb.run()
    assert phb.answers()[-1].sequence == 2
    assert phb.open(OpenRequest("writer", "two", 2, "fish", principal="anonymous")) == Outcome(
        Verdict.OK, sequence=2, epoch=2
    )


def test_a_batch_is_logged_once(phb: Phb) -> None:
    phb.open(OpenRequest("writer", "one", 1, "fish", principal="anonymous"))
    phb.place(batch(1), 1)
    phb.place(batch(1), 2)
    phb.run()
    phb.place(batch(1), 3)
    phb.run()
    answers = phb.answers()[1:]

    assert len(phb.pubend.ticks) == 2
    assert answers == [answers[0]] * 3
    assert answers[0].ticks[0].first == phb.pubend.ticks[0]


@pytest.mark.parametrize(
    ("pub", "verdict"),
    [
        (batch(2), Verdict.RESUME),
        (batch(1, epoch=2), Verdict.FENCED),
        (Pub("writer", 1, 1, columns("fish", 1, 1), "q@1", b"", principal="anonymous"), Verdict.REJECTED),
    ],
)
def test_a_batch_that_cannot_be_logged(phb: Phb, pub: Pub, verdict: Verdict) -> None:
    phb.open(OpenRequest("writer", "one", 1, "fish", principal="anonymous"))
    phb.place(pub)
    phb.run()

    assert phb.answers()[-1].verdict is verdict
    assert phb.pubend.ticks == []


def test_a_pubend_that_is_not_here(phb: Phb) -> None:
    assert phb.open(OpenRequest("writer", "one", 1, "fish", "q@1", principal="anonymous")).verdict is Verdict.REJECTED


def test_it_asks_for_acknowledgements(phb: Phb) -> None:
    phb.pubend.probe()
    ticks = phb.pubend.publish(columns("fish", 0, 2))
    phb.run()
    phb.pubend.probe()

    assert phb.called("probe") == [(PUBEND, ticks[-1])]
