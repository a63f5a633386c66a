"""The half beside the SHB: that what it is told to do wrong is done."""

from __future__ import annotations

import pytest

from gapless.core.network.facts import Interest, Know, Progress, Want
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.stamps import RAW
from gapless_sim.hostile.subscriber_side import SubscriberSide
from unit.gapless_sim.hostile.parts import SHB, P, Parts, full, knowledge


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


# --------------------------------------------------------------------------------------- what it says


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


def test_merging_waits_for_the_next() -> None:
    side = Side({"merge": 1.0})
    assert side.delivered(knowledge(10, 20, "a", stamp={SHB: 3})) == []

    (whole,) = side.delivered(knowledge(20, 30, "b"))
    assert (whole.lo, whole.hi, list(whole.data.ticks), whole.stamp) == (10, 30, [11, 21], {SHB: 3})


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
