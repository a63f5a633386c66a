"""The observer of the seam sees each breach in the step in which it happens."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gapless.core.network.facts import Enrol, Enrolled, Held, Hold, Know, Progress, Released, Seen, Wake
from gapless.core.stream.knowledge import Knowledge
from gapless_testing.routing import Clause, ContractError
from unit.gapless_testing.routing.seam import FISH, MEAT, PUBEND, Seam, breaks, events, full


@pytest.fixture
def seam() -> Seam:
    """A pubend that counts s, which wants fish."""
    seam = Seam()
    seam.call("s", full("s", 1, FISH))
    seam.open({"s": 0})
    return seam


# ------------------------------------------------------------------------------------------ C1 truth


def test_a_breach_says_what_where_and_when(seam: Seam) -> None:
    seam.know(0, 10)
    with pytest.raises(
        ContractError, match=r"C1 truth: silence of p@1 in \(10, 11\].*broker 's' at 0\.000 s"
    ) as breach:
        seam.deliver("s", 0, 11)
    assert (breach.value.clause, breach.value.broker, breach.value.now) == (Clause.TRUTH, "s", 3)


def test_knowledge_of_an_unknown_pubend(seam: Seam) -> None:
    with breaks(Clause.TRUTH, "never said anything"):
        seam.say("s", Know(Knowledge("q@1", 0, 1)))


def test_an_event_may_be_left_out_under_a_stamp_that_nobody_wants_it_by(seam: Seam) -> None:
    seam.know(0, 10, events(5, topic="meat"))
    seam.deliver("s", 0, 10, stamp={"s": 1})

    with breaks(Clause.TRUTH, "RAW silence"):
        seam.deliver("s", 0, 10)


def test_an_event_that_is_wanted_may_not_be_left_out(seam: Seam) -> None:
    seam.know(0, 10, events(5))
    seam.deliver("s", 0, 10, stamp={})
    seam.deliver("s", 0, 10, stamp={"s": 0})

    with breaks(Clause.TRUTH, "which wants the event there"):
        seam.deliver("s", 0, 10, stamp={"s": 1})


def test_a_stamp_with_a_version_that_nobody_announced(seam: Seam) -> None:
    seam.know(0, 10)
    for stamp in ({"s": 2}, {"t": 1}):
        with breaks(Clause.TRUTH, "never announced"):
            seam.deliver("s", 0, 10, stamp=stamp)


def test_silence_under_a_version_is_judged_by_that_version(seam: Seam) -> None:
    seam.know(0, 10, events(5, topic="meat"))
    seam.call("s", replace(full("s", 2, FISH, MEAT), base=1, full=False))

    seam.deliver("s", 0, 10, stamp={"s": 1})
    with breaks(Clause.TRUTH, "version 2"):
        seam.deliver("s", 0, 10, stamp={"s": 2})


def test_a_pubend_is_described_as_it_is(seam: Seam) -> None:
    meta = seam.open({"s": 0}, stable=3)
    seam.know(0, 10)
    seam.say("s", Seen(replace(meta, stable=10), 0))
    seam.say("s", Seen(meta))

    for wrong in (replace(meta, stable=11), replace(meta, topics=("x",)), replace(meta, pubend="q@1")):
        with breaks(Clause.TRUTH):
            seam.say("s", Seen(wrong))


# ------------------------------------------------------------------------------------------ C4 minima


def test_a_release_of_a_pubend_that_is_elsewhere_or_nowhere(seam: Seam) -> None:
    seam.report("s", 1, 1)
    with breaks(Clause.MINIMA, "was not given"):
        seam.say("s", Released(PUBEND, 1, 1))
    with breaks(Clause.MINIMA, "opened nowhere"):
        seam.say("p", Released("q@1", 1, 1))


def test_a_router_that_vanished_has_to_hear_everything_again(seam: Seam) -> None:
    seam.report("s", 5, 5)
    seam.release(5, 5)
    seam.contract.vanished("p")

    with breaks(Clause.MINIMA, "was not given"):
        seam.release(5, 5)
    seam.open({"s": 0})
    seam.call("p", Wake())
    with breaks(Clause.MINIMA, "before s was heard"):
        seam.release(5, 5)
    seam.report("s", 5, 5)
    seam.release(4, 4)


# ------------------------------------------------------------------------------------------- C5 enrol


def test_seen_with_a_place_only_after_enrolled() -> None:
    seam = Seam()
    seam.call("s", full("s", 1))
    meta = seam.open({})
    seam.say("s", Seen(meta))
    with breaks(Clause.ENROL):
        seam.say("s", Seen(meta, 0))

    seam.call("p", Enrolled(PUBEND, "s", 7))

    seam.say("s", Seen(meta, 7))
    with breaks(Clause.ENROL):
        seam.say("s", Seen(meta, 8))
    with breaks(Clause.ENROL):
        seam.say("t", Seen(meta, 7))


def test_no_stamp_before_enrolled() -> None:
    seam = Seam()
    seam.call("s", full("s", 1))
    seam.open({})
    seam.know(0, 10)
    with breaks(Clause.ENROL, "does not count"):
        seam.deliver("s", 0, 10, stamp={"s": 1})

    seam.call("p", Enrolled(PUBEND, "s", 10))

    seam.deliver("s", 0, 10, stamp={"s": 1})


def test_only_who_said_what_it_wants_is_enrolled_where_the_pubend_is(seam: Seam) -> None:
    seam.say("p", Enrol(PUBEND, "s"))
    assert seam.contract.enrolments == {(PUBEND, "s"): 1}
    with breaks(Clause.ENROL, "never said what it wants"):
        seam.say("p", Enrol(PUBEND, "t"))
    with breaks(Clause.ENROL, "does not have it"):
        seam.say("s", Enrol(PUBEND, "s"))


# ---------------------------------------------------------------------------------------------- holds


def test_holds_go_through_unchanged(seam: Seam) -> None:
    row, held = Hold("s", PUBEND, 1, {1: 5}), Held("s", PUBEND, 1, {1: 6})
    with breaks(Clause.HOLD):
        seam.say("p", row)
    seam.call("s", row)
    seam.say("p", row)
    with breaks(Clause.HOLD):
        seam.say("p", replace(row, at={1: 6}))
    with breaks(Clause.HOLD):
        seam.say("s", row)
    with breaks(Clause.HOLD):
        seam.say("s", held)
    seam.call("p", held)
    seam.say("s", held)
    with breaks(Clause.HOLD):
        seam.say("t", held)


# ---------------------------------------------------------------------------------- not the router's


def test_a_core_that_contradicts_itself_is_not_taken_for_a_router(seam: Seam) -> None:
    with breaks(Clause.CORES, "filtered knowledge"):
        seam.know(0, 10, stamp={"s": 1})
    with breaks(Clause.CORES, "did not say that it is an answer"):
        seam.call("p", Know(Knowledge(PUBEND, 0, 10), reply_to="s"))
    with breaks(Clause.CORES, "which is nowhere"):
        seam.call("s", Progress("s", "q@1", 1, 1))
    with breaks(Clause.CORES, "not opened at this broker"):
        seam.call("s", Enrolled(PUBEND, "t", 1))
