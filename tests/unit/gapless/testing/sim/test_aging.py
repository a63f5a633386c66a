"""How old a pubend may take its events for, and which of them it may let go of although somebody needs them."""

from __future__ import annotations

from gapless.core.ticks import tick_at
from gapless.testing.sim.aging import Presents, passed_at_most
from gapless.testing.sim.clocks import WALL_BEGIN
from gapless.testing.sim.options import SECOND
from unit.gapless.testing.sim.oracles.hands import Hands, P


def test_an_event_may_be_too_old_by_a_clock_that_was_ahead() -> None:
    hands = Hands(max_retain_seconds=1.0)
    at = tick_at(WALL_BEGIN)
    hands.opens()
    hands.log((at, 1))
    history = hands.model.histories[P]

    hands.world.now = SECOND // 2
    assert not hands.model.ages.is_early(history, at)
    hands.say(at, tick_at(WALL_BEGIN + 1000))
    assert hands.model.ages.is_early(history, at), "the pubend itself was as far as that"


def test_without_a_policy_nothing_is_too_old() -> None:
    hands = Hands()
    hands.opens()
    hands.log((10, 1))
    hands.world.now = 1000 * SECOND

    assert not hands.model.ages.is_early(hands.model.histories[P], 10)


def test_the_present_of_a_broker_goes_on_and_never_back() -> None:
    presents = Presents()
    presents.note("node1", 0, 10_000)
    later = presents.latest("node1", SECOND)
    presents.note("node1", SECOND, 5_000)

    assert 11_000 < later < 11_100, "a fast clock gains a little"
    assert presents.latest("node1", SECOND) == later + passed_at_most(0)
    assert presents.latest("node2", SECOND) < 2_000
