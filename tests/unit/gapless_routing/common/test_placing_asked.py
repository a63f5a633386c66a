"""Openings and batches at the pubend's node: each once, in order, and none that was overtaken (C9; T39)."""

from __future__ import annotations

from collections.abc import Hashable

import pytest
from msgspec.structs import replace

from gapless.core.network.facts import OpenRequest, Outcome, Pub, Submit, SubmitOpen, Verdict
from gapless.core.network.frames import Answer
from gapless_routing.common.placing import ORIGINS, REMEMBERED, RequestIntake
from unit.gapless_routing.common.placing_world import LIFE, P, World, pub
from unit.held import held

ENTRY = 5
"""The life of the entry's router."""
OPENING = OpenRequest("loader", "i", 1, None, principal="anonymous")
OK = Outcome(Verdict.OK, sequence=1)
RESUME = Outcome(Verdict.RESUME, sequence=1)
INVALID = Outcome(Verdict.INVALID)


class Owner:
    """The part that submits, and one entry at `far`."""

    def __init__(self) -> None:
        self.world = World()
        self.requests = RequestIntake(self.world, self.world, {P: None})

    def ask(
        self,
        number: int,
        message: Pub | OpenRequest,
        before: int = 0,
        life: int = LIFE,
        floor: int = 0,
        entry: int = ENTRY,
    ) -> None:
        """A question arrives."""
        self.requests.on_request("far", message, (life, entry, number, before, floor))

    def reply_to(self) -> list[Hashable]:
        """Whom what was submitted since the last call is answered to."""
        return [one.reply_to for one in self.world.take_effects() if isinstance(one, (Submit, SubmitOpen))]

    def submitted(self) -> list[object]:
        """The numbers of what was submitted since the last call."""
        return [name[1] for name in self.reply_to() if isinstance(name, tuple)]

    def answer(self, number: int, outcome: Outcome) -> None:
        """The PHB answers."""
        self.requests.submitted((("far", 1, ENTRY), number), P, outcome)

    def told(self) -> list[tuple[int, Verdict, bool]]:
        """What the entry is told: number, verdict, whether the question had been taken."""
        return [
            (int(address[1]), message.outcome.verdict, bool(address[3]))
            for _, message, address in self.world.take_messages()
            if isinstance(message, Answer)
        ]


@pytest.fixture
def owner() -> Owner:
    return Owner()


def test_a_batch_is_submitted_and_its_answer_goes_back(owner: Owner) -> None:
    owner.ask(1, pub(1))
    (submit,) = owner.world.take_effects()
    assert isinstance(submit, Submit)
    assert submit.pub == pub(1) or submit.pub.first == 1

    owner.requests.submitted(submit.reply_to, P, OK)

    assert owner.world.take_messages() == [("far", Answer(P, OK), (ENTRY, 1, LIFE, 1))]


def test_an_opening_is_submitted(owner: Owner) -> None:
    owner.ask(1, OPENING)

    (submit,) = owner.world.take_effects()
    assert isinstance(submit, SubmitOpen)
    assert submit.request == OPENING


def test_an_opening_that_another_one_has_followed_is_not_submitted(owner: Owner) -> None:
    """The router there has begun anew since it was asked for: nobody else would give it up."""
    owner.ask(4, OPENING, floor=4, entry=ENTRY + 1)
    owner.ask(3, OPENING, floor=3)
    owner.ask(2, OpenRequest("another", "i", 1, None, principal="anonymous"))

    assert owner.submitted() == [4, 2]


@pytest.mark.parametrize("message", [replace(OPENING, pubend="p@0"), pub(1, pubend="p@0")], ids=["opening", "batch"])
def test_of_a_pubend_that_is_gone_the_host_says_so(owner: Owner, message: Pub | OpenRequest) -> None:
    """Another incarnation of it is open here: an opening was put off, again and again, for ever."""
    owner.ask(1, message)

    assert owner.submitted() == [1]
    owner.ask(2, replace(message, pubend="q@0"))
    assert owner.submitted() == []
    assert owner.told() == [(2, Verdict.RETRY, True)]


def test_what_comes_again_is_not_submitted_again(owner: Owner) -> None:
    owner.ask(1, pub(1))
    owner.ask(1, pub(1))
    assert owner.submitted() == [1]
    assert owner.told() == []

    owner.answer(1, OK)
    owner.ask(1, pub(1))
    assert owner.submitted() == []
    assert owner.told() == [(1, Verdict.OK, True)] * 2


def test_what_comes_too_early_waits(owner: Owner) -> None:
    owner.ask(4, pub(3), before=3)
    owner.ask(3, pub(2), before=2)
    assert owner.submitted() == []

    owner.ask(2, pub(1))
    assert owner.submitted() == [2, 3, 4]


def test_nothing_waits_for_what_was_given_up(owner: Owner) -> None:
    owner.ask(4, pub(2), before=3, floor=4)

    assert owner.submitted() == [4]


def test_what_was_given_up_is_never_submitted(owner: Owner) -> None:
    """A client gave its sequences to others when an earlier batch was refused: it would be logged twice."""
    owner.ask(1, pub(1), floor=1)
    owner.answer(1, INVALID)
    owner.ask(4, pub(2), before=3, floor=3)
    owner.ask(3, pub(1), floor=3)
    assert owner.submitted() == [1, 3, 4]
    owner.told()

    owner.ask(2, pub(2), before=1, floor=1)
    owner.ask(1, pub(1), floor=1)

    assert owner.submitted() == []
    assert owner.told() == []


def test_what_an_entry_asked_before_it_forgot_everything_is_not_submitted_behind_what_it_asked_since(
    owner: Owner,
) -> None:
    """C9: the opening that had been given up fenced the one that came after it (simulator, churn, hostile 43)."""
    owner.ask(2, OpenRequest("loader", "i", 2, None, principal="anonymous"), floor=2, entry=ENTRY - 1)
    owner.ask(1, OPENING, floor=1)

    assert owner.submitted() == [2]


def test_publishers_give_nothing_up_for_each_other(owner: Owner) -> None:
    owner.ask(2, pub(1, publisher="another"), floor=2)
    owner.ask(3, pub(1, epoch=2), floor=3)
    owner.ask(1, pub(1), floor=1)

    assert owner.submitted() == [2, 3, 1]


def test_what_was_put_off_is_not_submitted_again(owner: Owner) -> None:
    owner.ask(2, pub(2))
    owner.answer(2, RESUME)
    owner.ask(2, pub(2))

    assert owner.submitted() == [2]
    assert owner.told() == [(2, Verdict.RESUME, True)] * 2


def test_what_was_sent_to_another_life_is_refused(owner: Owner) -> None:
    owner.ask(1, pub(1), life=LIFE - 1)

    assert owner.submitted() == []
    assert owner.told() == [(1, Verdict.RETRY, False)]


def test_what_was_forgotten_is_refused_to_those_who_knew_the_life_before(owner: Owner) -> None:
    owner.ask(1, pub(1))
    owner.world.life = 78
    owner.requests.forget()
    owner.ask(2, pub(2))
    assert owner.submitted() == [1]
    assert owner.told() == [(2, Verdict.RETRY, False)]

    owner.answer(1, OK)
    assert owner.told() == [(1, Verdict.OK, True)], "the answer finds its way without being remembered"


@pytest.mark.parametrize(
    "message", [pub(1, pubend="q@1"), OpenRequest("loader", "i", 1, None, "q@1", principal="anonymous")]
)
def test_a_pubend_that_is_not_here(owner: Owner, message: Pub | OpenRequest) -> None:
    owner.ask(1, message)

    assert owner.submitted() == []
    assert owner.told() == [(1, Verdict.RETRY, True)]


def test_nothing_is_open_yet(owner: Owner) -> None:
    owner.requests = RequestIntake(owner.world, owner.world, {})
    owner.ask(1, OPENING)

    assert owner.submitted() == []
    assert owner.told() == [(1, Verdict.RETRY, True)]


def test_another_process_at_the_entry_gets_no_answer_to_the_questions_of_the_one_before(owner: Owner) -> None:
    owner.ask(1, pub(1))
    owner.world.processes["far"] = 2

    owner.answer(1, OK)
    assert owner.told() == []

    owner.ask(1, pub(1))
    assert owner.submitted() == [1, 1], "it is another question"


def test_memory_is_bounded(owner: Owner) -> None:
    for number in range(1, REMEMBERED + 100):
        if number == REMEMBERED + 1:
            full = held(owner.requests)
        owner.world.take_effects()
        owner.ask(number, pub(1, publisher=f"p{number}"))

    assert held(owner.requests) <= full


def test_only_so_many_processes_of_entries_are_remembered(owner: Owner) -> None:
    for number in range(ORIGINS + 10):
        if number == ORIGINS:
            full = held(owner.requests) - held(owner.world)
        owner.world.processes[f"n{number}"] = 1
        owner.requests.on_request(f"n{number}", OPENING, (LIFE, ENTRY, 1, 0, 0))

    assert held(owner.requests) - held(owner.world) <= full
    assert len(owner.submitted()) == ORIGINS + 10


def test_what_is_held_back_is_bounded_too(owner: Owner) -> None:
    for number in range(2, 4 * REMEMBERED, 2):
        if number == 2 * REMEMBERED + 2:
            full = held(owner.requests) - held(owner.world)
        owner.ask(number, pub(1, publisher=f"p{number}"), before=number + 1)

    assert held(owner.requests) - held(owner.world) <= full
    assert owner.submitted() == []


def test_a_broker_that_is_not_reached_is_not_answered(owner: Owner) -> None:
    owner.ask(1, pub(1))
    del owner.world.processes["far"]
    owner.answer(1, OK)

    assert owner.told() == []


@pytest.mark.parametrize("keyed", [False, True])
def test_a_producer_and_a_publisher_of_one_name_are_two_lines(owner: Owner, *, keyed: bool) -> None:
    owner.ask(2, replace(pub(1), keyed=keyed), floor=2)
    owner.ask(1, replace(pub(1), keyed=not keyed), floor=1)

    assert owner.submitted() == [2, 1]
