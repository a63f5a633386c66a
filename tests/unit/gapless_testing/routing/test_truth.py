"""What a pubend said is what may be said of it: no event more, no silence more, and no loss."""

from __future__ import annotations

import pytest

from gapless.core.stream.columns import EventBatch
from gapless.core.stream.knowledge import Knowledge
from gapless_testing.routing.breaches import Clause
from gapless_testing.routing.interests import InterestHistory
from gapless_testing.routing.truth import PubendTruth
from unit.gapless_testing.routing.seam import FISH, PUBEND, breaks, events, full, known


@pytest.fixture
def truth() -> PubendTruth:
    """Events at 15, 25 and 26; nothing is known up to 10 but an event at 8; between 30 and 40 nothing was said."""
    truth = PubendTruth(PUBEND)
    truth.know(known(10, 20, events(15)))
    truth.know(known(20, 30, events(25, 26)))
    truth.know(known(40, 50))
    truth.know(known(0, 10, events(8), lost=10))
    return truth


def check(truth: PubendTruth, knowledge: Knowledge) -> None:
    history = InterestHistory("s")
    history.announce(full("s", 1, FISH))
    truth.check(knowledge, {"s": history})


@pytest.mark.parametrize(
    ("knowledge", "words"),
    [
        (known(30, 31), "of which it said nothing"),
        (known(29, 41), r"\(30, 40\]"),
        (known(49, 51), r"\(50, 51\]"),
        (known(0, 20, events(15)), r"silence of p@1 in \(0, 7\]"),
        (known(0, 20, events(8, 15), lost=9), r"\(9, 10\]"),
        (known(0, 20, events(15), lost=11), "lost up to 11, it said 10"),
        (known(10, 20), "RAW silence of p@1 at 15"),
        (known(20, 30, events(25)), "RAW silence of p@1 at 26"),
        (known(20, 30, events(26)), "RAW silence of p@1 at 25"),
        (known(20, 30, events(25), stamp={"s": 1}), "version 1 of s"),
        (known(10, 20, events(14, 15)), "at 14, where it said none"),
        (known(10, 20, events(15, topic="meat")), "not the one that it said"),
        (known(10, 14, events(15)), "outside of"),
        (known(15, 20, events(15)), "outside of"),
        (known(20, 30, EventBatch.concatenate([events(26), events(25)])), "out of order"),
    ],
)
def test_what_was_not_said(truth: PubendTruth, knowledge: Knowledge, words: str) -> None:
    with breaks(Clause.TRUTH, words):
        check(truth, knowledge)


def test_a_body_that_is_cut_elsewhere_is_another_event(truth: PubendTruth) -> None:
    data = events(15)
    cut = EventBatch(data.ticks, data.events, [length - 1 for length in data.body_lengths])

    with breaks(Clause.TRUTH, "not the one"):
        check(truth, known(10, 20, cut))


@pytest.mark.parametrize(
    ("knowledge", "words"),
    [
        (known(14, 16), "says silence at 15"),
        (known(14, 17, events(15, 16)), "says an event at 16"),
        (known(14, 15, events(15, topic="meat")), "two different events at 15"),
    ],
)
def test_a_pubend_that_contradicts_itself(truth: PubendTruth, knowledge: Knowledge, words: str) -> None:
    with breaks(Clause.CORES, words):
        truth.know(knowledge)


def test_what_a_pubend_said_is_damaged_is_so_and_nothing_else(truth: PubendTruth) -> None:
    """Neither silence nor an event, whatever it said there before."""
    truth.know(Knowledge.of_damage(PUBEND, 20, 30, 0))

    check(truth, Knowledge.of_damage(PUBEND, 22, 28, 0))
    with breaks(Clause.TRUTH, r"\(30, 31\] of p@1 is called damaged"):
        check(truth, Knowledge.of_damage(PUBEND, 22, 31, 0))
    with breaks(Clause.TRUTH, "silence"):
        check(truth, known(20, 30))
