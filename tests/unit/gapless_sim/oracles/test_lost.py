"""What is told as lost: by whom, and who must have said so before (I5, K11)."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from gapless.core.network.facts import PubendMeta
from gapless.core.stream.intervals import IntervalSet
from gapless.core.stream.knowledge import Knowledge
from gapless.core.wire.messages import DeliverGap
from gapless_sim.oracles.lost import KNOWN_FOR, Heard, I5Answered, I5Cached, K11Lost
from unit.gapless_sim.oracles.model_fixture import NODE, ModelFixture, P, Stand, violates
from unit.gapless_sim.oracles.test_hops import CELLS, Tree, want

EARLY = "released early"


def gap(start: int, end: int, reason: str = EARLY) -> DeliverGap:
    return DeliverGap(1, 0, start, end, reason)


# ------------------------------------------------------------------------------------------------ I5


def told(lo: int, hi: int, lost: int) -> tuple[ModelFixture, I5Answered]:
    fixture = ModelFixture(I5Answered)
    fixture.opens()
    fixture.observe.delivered(NODE, Knowledge(P, lo, hi, lost=lost))
    judge = fixture.oracles[I5Answered]
    assert isinstance(judge, I5Answered)
    return fixture, judge


@pytest.mark.parametrize("reason", [EARLY, "this broker was retired"])
def test_how_much_is_released_is_no_answer(reason: str) -> None:
    _, judge = told(30, 40, 30)

    with violates("I5"):
        judge.gap_sent(NODE, "", P, gap(10, 30, reason))


def test_what_a_broker_was_told_before_it_crashed_it_has_forgotten() -> None:
    fixture, judge = told(0, 40, 30)
    fixture.observe.crashed(fixture.world.brokers[NODE])

    with violates("I5"):
        judge.gap_sent(NODE, "", P, gap(10, 30))


def cached(stable: int) -> tuple[ModelFixture, I5Cached]:
    """The pubend's broker began when it was decided up to some tick."""
    fixture = ModelFixture(router="knowledge", topology="tree", cells=CELLS)
    fixture.world.brokers["phb1"].life = Stand(over=False)  # type: ignore[assignment]
    fixture.opens(broker="phb1")
    judge = I5Cached(fixture.model)
    judge.opened("phb1", PubendMeta(P, "phb1", stable=stable), {})
    return fixture, judge


def test_there_is_no_gap_in_what_the_pubends_broker_has() -> None:
    _, judge = cached(50)
    judge.gap_sent("shb1", "", P, gap(10, 51))

    with violates("I5"):
        judge.gap_sent("shb1", "", P, gap(10, 52))


def test_what_it_had_before_it_began_anew_is_gone() -> None:
    fixture, judge = cached(50)
    fixture.world.brokers["phb1"].life.over = True
    judge.gap_sent("shb1", "", P, gap(10, 60))
    fixture.world.brokers["phb1"].life = Stand(over=False)  # type: ignore[assignment]
    judge.opened("phb1", PubendMeta(P, "phb1", stable=80), {})
    judge.gap_sent("shb1", "", P, gap(10, 60))

    with violates("I5"):
        judge.gap_sent("shb1", "", P, gap(60, 90))


# ----------------------------------------------------------------------------------------------- K11


def asked() -> Tree:
    """A tree whose brokers have spoken of the pubend, and so do not drop what they hear of it."""
    tree = Tree(K11Lost)
    tree.sends("shb1", "ib1", want((0, 40)))
    tree.sends("ib1", "phb1", want((0, 40)))
    return tree


def test_nobody_says_by_himself_that_something_is_lost() -> None:
    tree = asked()
    tree.judge.known("phb1", tree.know(40, 50, lost=30))
    tree.sends("phb1", "ib1", tree.know(40, 50, lost=30))

    with violates("K11"):
        tree.sends("ib1", "shb1", tree.know(0, 30, lost=30, reply=True))


@pytest.mark.parametrize("there", [(0, 9, 5), (0, 9)], ids=["an event", "silence"])
def test_what_a_broker_has_is_not_lost_to_who_asks_it(there: tuple[int, ...]) -> None:
    tree = asked()
    tree.sends("phb1", "ib1", tree.know(*there))
    tree.after(2 * KNOWN_FOR)
    tree.judge.known("phb1", tree.know(0, 40, lost=30, reply=True))
    tree.sends("phb1", "ib1", tree.know(9, 30, lost=30, reply=True))
    tree.judge.frame_arrived(tree.hop("phb1", "ib1"), tree.know(0, 9, lost=30, reply=True), ())

    with violates("K11"):
        tree.sends("ib1", "shb1", tree.know(0, 30, lost=30, reply=True))


def test_what_a_broker_was_told_to_be_lost_it_may_say_after_an_old_disk_was_put_back_elsewhere() -> None:
    """Found by the simulator (delta 103688)."""
    tree = asked()
    tree.judge.known("phb1", tree.know(0, 40, lost=30, reply=True))
    tree.sends("phb1", "ib1", tree.know(0, 30, lost=30, reply=True))
    tree.judge.restored(tree.world.brokers["shb1"])

    tree.sends("ib1", "shb1", tree.know(0, 30, lost=30, reply=True))
    with violates("K11"):
        tree.sends("ib1", "shb1", tree.know(30, 40, lost=40, reply=True))


def test_of_what_a_mate_has_handed_over_a_broker_keeps_nothing_and_of_a_mates_answer_it_does() -> None:
    """Found by the simulator (944 of ranges, 1560 of roaming)."""
    for reply in (False, True):
        tree = asked()
        tree.sends("shb1", "ib2", want((0, 40)))
        tree.sends("ib2", "ib1", want((0, 40)))
        tree.sends("ib1", "ib2", tree.know(0, 9, 5, reply=reply), (0, "sideways", "shb1"))
        tree.after(2 * KNOWN_FOR)
        tree.judge.known("phb1", tree.know(0, 40, lost=30, reply=True))
        tree.sends("phb1", "ib2", tree.know(0, 30, lost=30, reply=True))

        with violates("K11") if reply else nullcontext():
            tree.sends("ib2", "shb1", tree.know(0, 30, lost=30, reply=True))


def test_what_a_mate_has_handed_over_as_lost_was_said_to_be_lost() -> None:
    tree = asked()
    tree.judge.known("phb1", tree.know(0, 40, lost=30))
    tree.sends("phb1", "ib1", tree.know(0, 40, lost=30))
    tree.sends("ib1", "ib2", tree.know(0, 40, lost=30), (0, "sideways", "shb1"))

    tree.sends("ib2", "shb1", tree.know(0, 40, lost=30))


def test_what_a_broker_was_told_longer_ago_than_the_window_may_be_gone_when_it_comes_again() -> None:
    """Also if it had not spoken of the pubend by then: its router keeps what comes (delta 100748)."""
    again = Tree(K11Lost).know(0, 20, 5, 15, reply=True)
    young = Heard(object(), reached=[(7, 9)], recent=[(8, again)])
    old = Heard(object(), reached=[(3, 9)], recent=[(8, again)])
    for heard in (young, old):
        heard.settle_anew(before=9, since=5)

    assert (young.events, old.events) == ({5, 15}, {15})


def test_what_came_before_an_old_disk_was_put_back_elsewhere_is_not_new_when_it_comes_again() -> None:
    """Found by the simulator (delta 103688)."""
    again = Tree(K11Lost).know(0, 20, 5, 15, reply=True)
    heard = Heard(object(), reached=[(3, 9)], recent=[(4, again)], events={5}, known=IntervalSet([(0, 9)]))
    heard.forget_known()
    assert not heard.events
    assert not heard.known
    heard.recent.append((8, again))
    heard.settle_anew(before=9, since=5)

    assert heard.events == {15}
