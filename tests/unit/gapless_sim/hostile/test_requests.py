"""Openings and batches at the PHB's node, as simulations mistreat them; the rest is that of all routers (C9; T39)."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.network.facts import OpenRequest, Outcome, Pub, Submit, Verdict
from gapless.core.network.frames import Answer
from gapless_sim.hostile.requests import SUBMIT_LATE, HostileIntake
from unit.gapless_sim.hostile.parts import LINKS, TOLD, P, Parts, pub

ENTRY = 5
"""The life of the entry's router."""
OPENING = OpenRequest("loader", "i", 1, None, principal="anonymous")


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


def test_what_is_not_to_wait_does_not() -> None:
    side = Side({"unordered": 1.0})
    side.ask(3, pub(2), before=2)
    side.ask(2, pub(1))

    assert side.submitted() == [3, 2]


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

    side.requests.submitted(None, P, Outcome(Verdict.OK, sequence=1))
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
