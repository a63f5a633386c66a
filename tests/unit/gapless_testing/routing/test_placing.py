"""Every opening and every batch ends once, and as a PHB said."""

from __future__ import annotations

from collections.abc import Hashable

import pytest
from msgspec.structs import replace

from gapless.core.network.facts import OpenRequest, Outcome, Pub, Submit, SubmitOpen, Submitted, Verdict
from gapless.core.wire.messages import TickRun
from gapless_testing.routing.breaches import Clause
from gapless_testing.routing.clients import columns
from unit.gapless_testing.routing.seam import PUBEND, Seam, breaks

BATCH = Pub("writer", 1, 4, columns("fish", 4, 2), PUBEND, b"", principal="anonymous")
OPENING = OpenRequest("writer", "instance", 1, "fish", principal="anonymous")
LOGGED = Outcome(Verdict.OK, sequence=5, ticks=(TickRun(1024, 1024, 2),))
LATER = Outcome(Verdict.RETRY, "later")


@pytest.fixture
def seam() -> Seam:
    """A batch was handed to the router of p, with "me" to be told."""
    seam = Seam()
    seam.call("p", Submit(BATCH, "me"))
    return seam


def place(seam: Seam, outcome: Outcome, reply_to: Hashable = "me") -> None:
    seam.say("p", Submitted(reply_to, PUBEND, outcome))


def test_openings_in_the_order_in_which_they_were_placed(seam: Seam) -> None:
    """A process, the one in its place, and the first one again: each fences the one before."""
    successor = replace(OPENING, instance="successor")
    for number, opening in enumerate([OPENING, successor, replace(OPENING, attempt=2)]):
        seam.call("p", SubmitOpen(opening, number))
        seam.say("q", SubmitOpen(opening, number))
        seam.say("q", SubmitOpen(opening, None))

    with breaks(Clause.PLACE, "behind one that was placed later"):
        seam.say("q", SubmitOpen(successor, None))


@pytest.mark.parametrize(
    "outcome",
    [LOGGED, Outcome(Verdict.FENCED), Outcome(Verdict.RESUME, sequence=2), replace(LATER, ticks=[TickRun(1, 1, 1)])],
)
def test_what_no_phb_said(seam: Seam, outcome: Outcome) -> None:
    with breaks(Clause.PLACE):
        place(seam, outcome)


@pytest.mark.parametrize(
    "otherwise",
    [replace(LOGGED, sequence=6), replace(LOGGED, ticks=[TickRun(2048, 1024, 2)]), replace(LOGGED, ticks=())],
)
def test_otherwise_than_the_phb_said(seam: Seam, otherwise: Outcome) -> None:
    seam.say("p", Submit(BATCH, 7))
    seam.call("p", Submitted(7, PUBEND, LOGGED))

    with breaks(Clause.PLACE, "which no PHB said"):
        place(seam, otherwise)


def test_twice_or_unasked(seam: Seam) -> None:
    place(seam, LATER)
    with breaks(Clause.PLACE, "nothing waits there"):
        place(seam, LATER)
    with breaks(Clause.PLACE, "nothing waits there"):
        seam.say("q", Submitted("me", PUBEND, LATER))


def test_never(seam: Seam) -> None:
    with breaks(Clause.PLACE, "was never answered at 'p'"):
        seam.contract.check_quiet()


def test_a_router_that_vanished_need_not_answer_and_the_next_one_may_once(seam: Seam) -> None:
    seam.contract.vanished("p")
    seam.contract.check_quiet()

    place(seam, LATER)
    with breaks(Clause.PLACE):
        place(seam, LATER)


def test_a_process_that_is_gone_has_no_sessions(seam: Seam) -> None:
    seam.say("p", Submit(BATCH, 7))
    seam.contract.restarted("p")
    seam.contract.check_quiet()

    with breaks(Clause.PLACE):
        place(seam, LATER)
    seam.call("p", Submit(replace(BATCH, first=6), "me"))
    seam.say("p", Submit(replace(BATCH, first=6), 7))


@pytest.mark.parametrize(
    "submitted",
    [
        replace(BATCH, first=5),
        replace(BATCH, epoch=2),
        replace(BATCH, pubend="q@1"),
        replace(BATCH, publisher="other"),
        replace(BATCH, events=columns("fish", 5, 2)),
        replace(BATCH, tokens=b"token"),
    ],
)
def test_what_nobody_asked_for_is_submitted(seam: Seam, submitted: Pub) -> None:
    with breaks(Clause.PLACE, "nobody asked for it"):
        seam.say("p", Submit(submitted, 7))


def test_what_nobody_asked_for_is_opened(seam: Seam) -> None:
    seam.call("p", SubmitOpen(replace(OPENING, pubend=PUBEND), "you"))
    for other in (replace(OPENING, pubend="q@1"), replace(OPENING, attempt=2)):
        with breaks(Clause.PLACE, "nobody asked for it"):
            seam.say("p", SubmitOpen(other, 7))


def test_one_address_for_two_things(seam: Seam) -> None:
    """The answer to the first would be taken for that to the second."""
    seam.call("p", Submit(replace(BATCH, first=6), "you"))
    seam.say("p", Submit(BATCH, 7))
    seam.say("p", Submit(BATCH, 7))
    with breaks(Clause.PLACE, "another answer is on its way"):
        seam.say("p", Submit(replace(BATCH, first=6), 7))

    seam.call("p", Submitted(7, PUBEND, LOGGED))
    seam.call("p", Submitted(7, PUBEND, LOGGED))
    seam.say("p", Submit(replace(BATCH, first=6), 7))


def test_an_answer_that_nobody_waits_for(seam: Seam) -> None:
    seam.call("p", Submit(replace(BATCH, first=6), "you"))
    seam.say("p", Submit(BATCH, None))
    seam.say("p", Submit(replace(BATCH, first=6), None))
    seam.call("p", Submitted(None, PUBEND, LOGGED))

    with breaks(Clause.PLACE, "which no PHB said"):
        place(seam, LOGGED)


def test_cores_that_contradict_themselves(seam: Seam) -> None:
    with breaks(Clause.CORES, "already waits"):
        seam.call("p", Submit(BATCH, "me"))
    with breaks(Clause.CORES, "was not submitted"):
        seam.call("p", Submitted(7, PUBEND, LOGGED))
    for _ in range(2):
        seam.say("p", Submit(BATCH, 7))
    seam.call("p", Submitted(7, PUBEND, LOGGED))
    with breaks(Clause.CORES, "logged sequence 4 of writer twice"):
        seam.call("p", Submitted(7, PUBEND, replace(LOGGED, ticks=[TickRun(2048, 1024, 2)])))
