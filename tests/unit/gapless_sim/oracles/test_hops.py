"""V4, K5, K6, K7 and K12: what brokers say to each other, hop by hop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gapless.core.network.facts import LINK_HIGH, LinkRoom, LinkUp, SendFrame, Want
from gapless.core.network.frames import Address, encode
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.events import encode_event
from gapless.core.stream.knowledge import Knowledge
from gapless_sim.oracles.hops import HopJudge, K5Answered, K6Queued, K7Consolidated, K12Slack, TimesAsked, V4ByHop
from gapless_sim.recording.frame_tap import Hop
from gapless_sim.world.network import BrokerLink
from gapless_sim.world.options import SECOND
from unit.gapless_sim.oracles.model_fixture import ModelFixture, P, Stand, violates

CELLS = "phb1:phb ib1+ib2<phb1 shb1:shb<ib1"


class Tree:
    """A tree whose brokers say what a test wants them to say."""

    def __init__(self, judge: type[HopJudge]) -> None:
        self.fixture = ModelFixture(judge, router="knowledge", topology="tree", cells=CELLS)
        self.world = self.fixture.world
        oracle = self.fixture.oracles[judge]
        assert isinstance(oracle, HopJudge)
        self.judge: HopJudge = oracle
        self._links: dict[frozenset[str], BrokerLink] = {}
        for broker in self.world.brokers.values():
            broker.life = Stand(over=False)  # type: ignore[assignment]

    def hop(self, source: str, target: str) -> Hop:
        ends = frozenset((source, target))
        if ends not in self._links:
            self._links[ends] = BrokerLink(self.world.brokers[source], self.world.brokers[target])
            self.world.network._broker_links[min(ends), max(ends)] = self._links[ends]
        link = self._links[ends]
        return Hop(link, next(index for index, end in enumerate(link.ends) if end.name == target))

    def breaks(self, one: str, other: str) -> None:
        """The link of the two is another one from now on."""
        self._links.pop(frozenset((one, other))).up = False

    def sends(
        self, source: str, target: str, message: Any, address: Address = (), *, lost: bool = False, size: int = 100
    ) -> None:
        self.judge.frame_sent(self.hop(source, target), message, address, size)
        if not lost:
            self.judge.frame_arrived(self.hop(source, target), message, address)

    def after(self, nanoseconds: int) -> None:
        self.world.now += nanoseconds

    def know(self, lo: int, hi: int, *ticks: int, **fields: Any) -> Knowledge:
        return self.fixture.knowledge(lo, hi, [(tick, tick) for tick in ticks], **fields)


def want(*ranges: tuple[int, int], need: Any = None, pubend: str = P) -> Want:
    return Want(pubend, tuple(ranges), need, "shb1@disk", again=False)


# ------------------------------------------------------------------------------------------------ V4


def test_who_asks_is_told_once_more_for_each_time_that_it_is_asked() -> None:
    tree = Tree(V4ByHop)
    tree.sends("phb1", "ib1", tree.know(0, 9, 5), lost=True)
    tree.sends("ib1", "phb1", want((0, 9)))
    tree.sends("phb1", "ib1", tree.know(0, 9, 5, reply=True))

    with violates("V4"):
        tree.sends("phb1", "ib1", tree.know(0, 9, 5, reply=True))


@pytest.mark.parametrize(
    "asked",
    [[want((0, 4))], [want((5, 9))], [want((0, 9), pubend="q@1")], []],
    ids=["below", "above", "another", "none"],
)
def test_a_want_of_something_else_is_no_reason(asked: Sequence[Want]) -> None:
    tree = Tree(V4ByHop)
    tree.sends("phb1", "ib1", tree.know(0, 9, 5))
    for each in asked:
        tree.sends("ib1", "phb1", each)

    with violates("V4"):
        tree.sends("phb1", "ib1", tree.know(0, 9, 5, reply=True))


def test_a_want_that_is_lost_on_its_way_is_no_reason() -> None:
    tree = Tree(V4ByHop)
    tree.sends("phb1", "ib1", tree.know(0, 9, 5))
    tree.sends("ib1", "phb1", want((0, 9)), lost=True)

    with violates("V4"):
        tree.sends("phb1", "ib1", tree.know(0, 9, 5, reply=True))


def test_what_a_mate_hands_over_is_said_in_its_stead() -> None:
    tree = Tree(V4ByHop)
    tree.sends("ib1", "shb1", tree.know(0, 9, 5))
    tree.sends("ib2", "ib1", tree.know(0, 9, 5))
    tree.sends("ib1", "shb1", tree.know(0, 9, 5))

    with violates("V4"):
        tree.sends("ib1", "shb1", tree.know(0, 9, 5))


def test_a_mate_is_handed_an_event_once_for_each_cell_that_it_is_to_speak_to() -> None:
    tree = Tree(V4ByHop)  # the cell of the IBs has two neighbours
    tree.sends("ib1", "ib2", tree.know(0, 9, 5))
    tree.sends("ib1", "ib2", tree.know(0, 9, 5))

    with violates("V4"):
        tree.sends("ib1", "ib2", tree.know(0, 9, 5))


def test_what_a_mate_has_handed_over_is_no_reason_to_hand_it_to_a_mate() -> None:
    tree = Tree(V4ByHop)
    for _ in range(3):
        tree.sends("ib2", "ib1", tree.know(0, 9, 5), lost=True)
        tree.judge.frame_arrived(tree.hop("ib2", "ib1"), tree.know(0, 9, 5), ())
        tree.breaks("ib1", "ib2")
    tree.sends("ib1", "ib2", tree.know(0, 9, 5))
    tree.sends("ib1", "ib2", tree.know(0, 9, 5))

    with violates("V4"):
        tree.sends("ib1", "ib2", tree.know(0, 9, 5))


def test_who_has_asked_is_not_told_again_without_a_word_that_it_is_an_answer() -> None:
    tree = Tree(V4ByHop)
    tree.sends("phb1", "ib1", tree.know(0, 9, 5))
    tree.sends("ib1", "phb1", want((0, 9)))

    with violates("V4"):
        tree.sends("phb1", "ib1", tree.know(0, 9, 5))


def test_how_often_a_tick_was_asked_for_is_how_many_ranges_have_it() -> None:
    asked, times = [((0, 5), (7, 9)), ((3, 8),), ((4, 5),), ((5, 9),)], TimesAsked()
    for ranges in asked:
        times.add(ranges)

    counts = [sum(lo < tick <= hi for ranges in asked for lo, hi in ranges) for tick in range(11)]
    assert [times.count(tick) for tick in range(11)] == counts


# ------------------------------------------------------------------------------------------------ K5


def asked(**fields: Any) -> Tree:
    """An IB has been asked by an SHB, and has passed that on."""
    tree = Tree(K5Answered)
    tree.sends("shb1", "ib1", want((0, 9), **fields))
    tree.sends("ib1", "phb1", want((0, 9), **fields))
    return tree


def test_silence_under_a_lower_stamp_answers_nobody_but_events_at_an_end_of_it_do() -> None:
    tree = asked(need={"shb1@disk": 2})
    tree.sends("phb1", "ib1", tree.know(0, 9, 5, stamp={"shb1@disk": 1}))
    tree.after(6 * SECOND)
    tree.judge.checkpoint()

    tree.sends("phb1", "ib1", tree.know(0, 9, 8, 9, stamp={"shb1@disk": 1}))
    tree.after(6 * SECOND)
    with violates("K5"):
        tree.judge.checkpoint()


def test_who_asks_again_with_a_higher_need_gets_one_answer_that_is_good_for_both() -> None:
    tree = asked(need={"shb1@disk": 1})
    tree.sends("shb1", "ib1", want((0, 9), need={"shb1@disk": 2}))
    tree.sends("phb1", "ib1", tree.know(0, 9, stamp={"shb1@disk": 1}))
    tree.after(6 * SECOND)
    tree.judge.checkpoint()

    tree.sends("phb1", "ib1", tree.know(0, 9, stamp={"shb1@disk": 2}))
    tree.after(6 * SECOND)
    with violates("K5"):
        tree.judge.checkpoint()


@pytest.mark.parametrize("how", ["answered", "asked again"])
def test_of_a_question_that_is_over_nothing_is_kept(how: str) -> None:
    """Knowledge 2681: thousands were asked within a second, and with each frame all of them were looked at."""
    tree = asked()
    questions = tree.judge._questions  # type: ignore[attr-defined]
    hop = tree.hop("ib1", "shb1")
    if how == "answered":
        tree.sends("ib1", "shb1", tree.know(0, 9, reply=True))
    else:
        tree.sends("shb1", "ib1", want((0, 10)))

    assert [tuple(each.ranges) for each in questions[hop]] == ([] if how == "answered" else [((0, 10),)])


# ------------------------------------------------------------------------------------------------ K6


class Links:
    """A router that is told what waits on its links, and sends there."""

    def __init__(self) -> None:
        self.fixture = ModelFixture(K6Queued, router="knowledge", topology="tree", cells=CELLS)
        oracle = self.fixture.oracles[K6Queued]
        assert isinstance(oracle, K6Queued)
        self.judge = oracle
        for link, peer in enumerate(("shb1", "phb1")):
            self.judge.informed("ib1", 0, LinkUp(link, peer, frozenset(), 1))

    def waits(self, pending: int) -> None:
        self.judge.informed("ib1", 0, LinkRoom(0, pending))

    def sends(self, size: int = 0, *, link: int = 0, at: int = 0) -> None:
        data = EventColumns.of([encode_event("t", {}, None, bytes(size))], [size]).batch([5])
        said = Knowledge(P, 0, 9, data, 0, None)
        self.judge.said("ib1", at, SendFrame(link, encode(said)))


def test_what_is_sent_in_one_instant_counts_as_well() -> None:
    links = Links()
    links.waits(LINK_HIGH)
    links.sends(1 << 20)
    links.sends(at=1)
    links.sends(1 << 20, at=1)

    with violates("K6"):
        links.sends(at=1)


# ------------------------------------------------------------------------------------------------ K7


def consolidating() -> Tree:
    """A PHB with two neighbours."""
    tree = Tree(K7Consolidated)
    tree.fixture.opens(broker="phb1")
    tree.hop("ib1", "phb1")
    tree.hop("ib2", "phb1")
    tree.after(10 * SECOND)
    return tree


def test_when_a_pubend_has_begun_anew_it_is_asked_again() -> None:
    tree = consolidating()
    for _ in range(2):
        tree.sends("ib1", "phb1", want((0, 9)))
        tree.sends("ib2", "phb1", want((0, 9)))
        tree.fixture.opens(broker="phb1")
    tree.after(2 * SECOND)
    tree.sends("ib1", "phb1", want((0, 9)))
    tree.sends("ib2", "phb1", want((0, 9)))

    with violates("K7"):
        tree.sends("ib1", "phb1", want((5, 7)))


def test_whose_links_have_changed_may_ask_again() -> None:
    """A mate that is there again may know another way, and is heard of a little later."""
    tree = consolidating()
    tree.sends("ib1", "phb1", want((0, 9)))
    tree.hop("ib1", "ib2")
    for _ in range(2):
        tree.sends("ib1", "phb1", want((0, 9)))
    tree.after(2 * SECOND)
    tree.sends("ib1", "phb1", want((0, 9)))
    tree.sends("ib2", "phb1", want((0, 9)))

    with violates("K7"):
        tree.sends("ib1", "phb1", want((5, 7)))


def test_a_neighbour_whose_answer_came_after_its_repetition_may_ask_again() -> None:
    """Seed 2000229: somebody else at the SHB reads the same, which keeps nothing."""
    tree = consolidating()
    answer = tree.know(0, 9, reply=True)
    tree.sends("ib2", "phb1", want((0, 9)))
    tree.sends("phb1", "ib1", answer, lost=True)  # that is, on its way
    tree.sends("ib1", "phb1", want((0, 9)))
    tree.judge.frame_arrived(tree.hop("phb1", "ib1"), answer, ())

    tree.sends("ib1", "phb1", want((0, 9)))
    with violates("K7"):
        tree.sends("ib1", "phb1", want((0, 9)))


def test_who_needs_more_than_it_asked_for_asks_again_and_others_may_ask_too() -> None:
    """Seed 2002886: it slept, and has taken both questions at once."""
    tree = consolidating()
    tree.sends("ib1", "phb1", want((0, 9), need={"shb1@disk": 1}))
    tree.sends("ib1", "phb1", want((0, 9)))

    tree.sends("ib2", "phb1", want((0, 9), need={"shb1@disk": 1}))
    with violates("K7"):
        tree.sends("ib2", "phb1", want((0, 9), need={"shb1@disk": 1}))


# ----------------------------------------------------------------------------------------------- K12


def test_silence_may_wait_no_longer_than_it_might_when_it_came() -> None:
    tree = Tree(K12Slack)
    tree.sends("phb1", "ib1", tree.know(0, 9, 5), (1000,))
    tree.sends("phb1", "ib1", tree.know(9, 20, 15), (300,))
    tree.sends("ib1", "shb1", tree.know(0, 9, 5), (1000,))
    tree.sends("ib1", "shb1", tree.know(9, 20, 15), (250,))
    tree.sends("ib1", "shb1", tree.know(9, 20), ())

    with violates("K12"):
        tree.sends("ib1", "shb1", tree.know(9, 20, 15), (1000,))
