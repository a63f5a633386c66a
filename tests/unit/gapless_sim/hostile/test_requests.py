"""Openings and batches at the PHB's node: each once, in order, and none that was overtaken (C9; T39)."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.network.facts import OpenRequest, Outcome, Pub, Submit, SubmitOpen, Verdict
from gapless.core.network.frames import Answer
from gapless.core.network.placing import REMEMBERED
from gapless_sim.hostile.requests import SUBMIT_LATE, HostileIntake
from unit.gapless_sim.hostile.parts import LINKS, TOLD, P, Parts, Sent, pub

ENTRY = 5
"""The life of the entry's router."""
OPENING = OpenRequest("loader", "i", 1, None, principal="anonymous")
OK = Outcome(Verdict.OK, sequence=1)
RESUME = Outcome(Verdict.RESUME, sequence=1)
INVALID = Outcome(Verdict.INVALID)


class Side:
    """The part, and one entry at `far`."""

    def __init__(self, rates: dict[str, float] | None = None) -> None:
        self.parts = Parts(rates)
        self.requests = HostileIntake(self.parts.station, self.parts.mesh, {P: None})

    def ask(
        self,
        number: int,
        message: Pub | OpenRequest,
        before: int = 0,
        life: int = TOLD,
        floor: int = 0,
        entry: int = ENTRY,
    ) -> None:
        """A question arrives."""
        self.requests.on_request("far", message, (life, entry, number, before, floor))

    def submitted(self) -> list[Any]:
        """What the PHB was told: numbers of batches and openings."""
        return [effect.reply_to[1] if effect.reply_to else None for effect in self.parts.effects()]  # type: ignore[union-attr,index]

    def answer(self, number: int, outcome: Outcome) -> None:
        """The PHB answers."""
        self.requests.submitted((("far", 1, ENTRY), number), P, outcome)

    def told(self) -> list[tuple[int, Verdict, bool]]:
        """What the entry is told: number, verdict, whether the question had been taken."""
        return [
            (int(sent.address[1]), sent.message.outcome.verdict, bool(sent.address[3]))
            for sent in self.parts.sent()
            if isinstance(sent.message, Answer)
        ]


@pytest.fixture
def side() -> Side:
    return Side()


def test_a_batch_is_submitted_and_its_answer_goes_back(side: Side) -> None:
    side.ask(1, pub(1))
    (submit,) = side.parts.effects()
    assert isinstance(submit, Submit)
    assert submit.pub == pub(1) or submit.pub.first == 1

    side.requests.submitted(submit.reply_to, P, OK)

    assert side.parts.sent() == [Sent("far", Answer(P, OK), (ENTRY, 1, TOLD, 1))]


def test_an_opening_is_submitted(side: Side) -> None:
    side.ask(1, OPENING)

    (submit,) = side.parts.effects()
    assert isinstance(submit, SubmitOpen)
    assert submit.request == OPENING


def test_an_opening_that_another_one_has_followed_is_not_submitted(side: Side) -> None:
    """The router there has begun anew since it was asked for: nobody else would give it up."""
    side.ask(4, OPENING, floor=4, entry=ENTRY + 1)
    side.ask(3, OPENING, floor=3)
    side.ask(2, OpenRequest("another", "i", 1, None, principal="anonymous"))

    assert side.submitted() == [4, 2]


def test_what_comes_again_is_not_submitted_again(side: Side) -> None:
    side.ask(1, pub(1))
    side.ask(1, pub(1))
    assert side.submitted() == [1]
    assert side.told() == []

    side.answer(1, OK)
    side.ask(1, pub(1))
    assert side.submitted() == []
    assert side.told() == [(1, Verdict.OK, True)] * 2


def test_what_comes_too_early_waits(side: Side) -> None:
    side.ask(4, pub(3), before=3)
    side.ask(3, pub(2), before=2)
    assert side.submitted() == []

    side.ask(2, pub(1))
    assert side.submitted() == [2, 3, 4]


def test_what_is_not_to_wait_does_not() -> None:
    side = Side({"unordered": 1.0})
    side.ask(3, pub(2), before=2)
    side.ask(2, pub(1))

    assert side.submitted() == [3, 2]


def test_nothing_waits_for_what_was_given_up(side: Side) -> None:
    side.ask(4, pub(2), before=3, floor=4)

    assert side.submitted() == [4]


def test_what_was_given_up_is_never_submitted(side: Side) -> None:
    """A client gave its sequences to others when an earlier batch was refused: it would be logged twice."""
    side.ask(1, pub(1), floor=1)
    side.answer(1, INVALID)
    side.ask(4, pub(2), before=3, floor=3)
    side.ask(3, pub(1), floor=3)
    assert side.submitted() == [1, 3, 4]
    side.told()

    side.ask(2, pub(2), before=1, floor=1)
    side.ask(1, pub(1), floor=1)

    assert side.submitted() == []
    assert side.told() == []


def test_what_an_entry_asked_before_it_forgot_everything_is_not_submitted_behind_what_it_asked_since(
    side: Side,
) -> None:
    """C9: the opening that had been given up fenced the one that came after it (simulator, churn, hostile 43)."""
    side.ask(2, OpenRequest("loader", "i", 2, None, principal="anonymous"), floor=2, entry=ENTRY - 1)
    side.ask(1, OPENING, floor=1)

    assert side.submitted() == [2]


def test_publishers_give_nothing_up_for_each_other(side: Side) -> None:
    side.ask(2, pub(1, publisher="another"), floor=2)
    side.ask(3, pub(1, epoch=2), floor=3)
    side.ask(1, pub(1), floor=1)

    assert side.submitted() == [2, 3, 1]


def test_what_was_put_off_is_not_submitted_again(side: Side) -> None:
    side.ask(2, pub(2))
    side.answer(2, RESUME)
    side.ask(2, pub(2))

    assert side.submitted() == [2]
    assert side.told() == [(2, Verdict.RESUME, True)] * 2


def test_what_was_sent_to_another_life_is_refused(side: Side) -> None:
    side.ask(1, pub(1), life=TOLD - 1)

    assert side.submitted() == []
    assert side.told() == [(1, Verdict.RETRY, False)]


def test_what_was_forgotten_is_refused_to_those_who_knew_the_life_before(side: Side) -> None:
    side.ask(1, pub(1))
    side.parts.station.life = 78
    side.requests.forget()
    side.ask(2, pub(2))
    assert side.submitted() == [1]
    assert side.told() == [(2, Verdict.RETRY, False)]

    side.answer(1, OK)
    assert side.told() == [(1, Verdict.OK, True)], "the answer finds its way without being remembered"


@pytest.mark.parametrize(
    "message", [pub(1, pubend="q@1"), OpenRequest("loader", "i", 1, None, "q@1", principal="anonymous")]
)
def test_a_pubend_that_is_not_here(side: Side, message: Pub | OpenRequest) -> None:
    side.ask(1, message)

    assert side.submitted() == []
    assert side.told() == [(1, Verdict.RETRY, True)]


def test_nothing_is_open_yet(side: Side) -> None:
    side.requests = HostileIntake(side.parts.station, side.parts.mesh, {})
    side.ask(1, OPENING)

    assert side.submitted() == []
    assert side.told() == [(1, Verdict.RETRY, True)]


def test_another_process_at_the_entry_gets_no_answer_to_the_questions_of_the_one_before(side: Side) -> None:
    side.ask(1, pub(1))
    side.parts.mesh.link_down(LINKS["far"])
    side.parts.mesh.link_up(LINKS["far"], "far", 2)

    side.answer(1, OK)
    assert side.told() == []

    side.ask(1, pub(1), life=TOLD + 1)
    assert side.submitted() == [1, 1], "it is another question"


def test_what_a_process_asked_that_is_over_is_not_submitted_for_the_one_after_it(side: Side) -> None:
    """Found by the simulator: an opening that was late beyond its link fenced the publisher of the next process."""
    side.parts.mesh.link_down(LINKS["far"])
    side.parts.mesh.link_up(LINKS["far"], "far", 2)

    side.ask(1, OPENING)

    assert side.submitted() == []
    assert side.told() == [(1, Verdict.RETRY, False)]


def test_submitting_twice() -> None:
    side = Side({"submit_twice": 1.0})
    side.ask(1, pub(1))
    side.ask(2, OPENING)
    assert side.submitted() == [1, None, 2, None]

    side.requests.submitted(None, P, OK)
    assert side.told() == []


def test_submitting_late_what_was_not_given_up() -> None:
    side = Side({"submit_late": 1.0})
    side.ask(1, pub(1))
    side.ask(2, pub(1, publisher="another"))
    side.ask(3, pub(2, publisher="another"), floor=3)
    assert side.submitted() == [1, 2, 3]

    for _, number in side.parts.pass_time(SUBMIT_LATE):
        side.requests.submit_late(int(number))

    again = [effect.pub for effect in side.parts.effects() if isinstance(effect, Submit)]
    assert sorted((one.publisher, one.first) for one in again) == [("another", 2), ("loader", 1)]


def test_memory_is_bounded(side: Side) -> None:
    for number in range(1, REMEMBERED + 100):
        side.parts.effects()
        side.ask(number, pub(1, publisher=f"p{number}"))
    (origin,) = side.requests._origins.values()

    assert len(origin.asked) == len(origin.floors) == REMEMBERED
