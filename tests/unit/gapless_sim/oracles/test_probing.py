"""V4: a pubend asks only for progress that it lacks."""

from __future__ import annotations

import pytest

from gapless.core.network.facts import Enrol, Enrolled, Probe, Released
from gapless_sim.options import SECOND
from gapless_sim.oracles.probing import V4Probing
from unit.gapless_sim.oracles.hands import NODE, SHB, Hands, P, violates


@pytest.fixture
def hands() -> Hands:
    hands = Hands(V4Probing)
    hands.world.now = SECOND
    return hands


def told(hands: Hands, delivered: int) -> None:
    """The pubend hears how far all members have come; and time passes."""
    watcher(hands).said(NODE, 0, Released(P, 0, delivered))
    hands.world.now += SECOND


def asks(hands: Hands, upto: int) -> None:
    watcher(hands).informed(NODE, 0, Probe(P, upto))


def watcher(hands: Hands) -> V4Probing:
    oracle = hands.oracles[V4Probing]
    assert isinstance(oracle, V4Probing)
    return oracle


def test_what_is_not_delivered_may_be_asked_for(hands: Hands) -> None:
    asks(hands, 10)
    told(hands, 9)

    asks(hands, 10)


def test_what_is_delivered_is_not_asked_for(hands: Hands) -> None:
    told(hands, 10)

    with violates("V4"):
        asks(hands, 10)


def test_what_is_heard_in_the_same_turn_may_come_too_late(hands: Hands) -> None:
    watcher(hands).said(NODE, 0, Released(P, 0, 10))

    asks(hands, 10)


def test_who_joins_bounds_it_until_a_later_word_counts_him(hands: Hands) -> None:
    told(hands, 10)
    watcher(hands).said(NODE, 0, Enrol(P, SHB))
    told(hands, 11)
    asks(hands, 10)

    watcher(hands).informed(NODE, 0, Enrolled(P, SHB, 5))
    told(hands, 12)
    asks(hands, 10)
    told(hands, 12)
    with violates("V4"):
        asks(hands, 10)


def test_a_phb_that_starts_anew_has_heard_nothing(hands: Hands) -> None:
    told(hands, 10)
    watcher(hands).vanished(NODE)

    asks(hands, 10)
