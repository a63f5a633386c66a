"""What silence under a version has to leave in, as subscriptions come and go."""

from __future__ import annotations

import pytest

from gapless.core.network.facts import Interest
from gapless.core.stream.events import Event
from gapless_testing.routing.breaches import Clause
from gapless_testing.routing.interests import InterestHistory
from unit.gapless_testing.routing.seam import FISH, MEAT, breaks, full

A_FISH = Event("fish", {}, None, b"")
A_MEAT = Event("meat", {}, None, b"")


@pytest.fixture
def history() -> InterestHistory:
    """Fish since version 3, meat since version 4."""
    history = InterestHistory("s")
    history.announce(full("s", 3, FISH))
    history.announce(Interest("s", 3, 4, {1: MEAT}))
    return history


def test_a_version_wants_what_came_with_it_or_before(history: InterestHistory) -> None:
    assert history.wanted(2, A_FISH) is None
    assert history.wanted(3, A_FISH) == FISH
    assert history.wanted(3, A_MEAT) is None
    assert history.wanted(4, A_MEAT) == MEAT


def test_what_was_dropped_wants_nothing_under_any_version(history: InterestHistory) -> None:
    """Else silence under a higher version would not be silence under a lower one, as the order of stamps says."""
    history.announce(Interest("s", 4, 5, {}, frozenset({0})))

    assert history.wanted(3, A_FISH) is None
    assert history.wanted(5, A_FISH) is None


def test_the_same_filter_of_another_subscription_counts_from_its_own_version(history: InterestHistory) -> None:
    history.announce(Interest("s", 4, 5, {2: FISH}, frozenset({0})))

    assert history.wanted(4, A_FISH) is None
    assert history.wanted(5, A_FISH) == FISH


def test_of_two_subscriptions_with_one_filter_the_older_counts(history: InterestHistory) -> None:
    history.announce(Interest("s", 4, 5, {2: FISH}))

    assert history.wanted(3, A_FISH) == FISH


def test_the_whole_interest_replaces_what_differs(history: InterestHistory) -> None:
    history.announce(full("s", 7, FISH))

    assert history.wanted(3, A_FISH) == FISH
    assert history.wanted(7, A_MEAT) is None


def test_only_what_was_announced_is_known_and_what_is_less(history: InterestHistory) -> None:
    history.announce(full("s", 7, FISH))

    assert [version for version in range(10) if history.knows(version)] == [0, 1, 2, 3, 4, 5, 6, 7]


def test_repetitions_change_nothing(history: InterestHistory) -> None:
    history.announce(Interest("s", 4, 4, {}))
    history.announce(full("s", 4, FISH, MEAT))
    history.announce(full("s", 3, MEAT))

    assert history.version == 4
    assert history.wanted(3, A_FISH) == FISH


@pytest.mark.parametrize(
    ("interest", "words"),
    [
        (Interest("s", 3, 5, {}), "changed version 3, having announced 4"),
        (Interest("s", 4, 4, {1: FISH}), "said version 4 twice"),
        (full("s", 4, MEAT), "said version 4 twice"),
    ],
)
def test_an_shb_that_contradicts_itself(history: InterestHistory, interest: Interest, words: str) -> None:
    with breaks(Clause.CORES, words):
        history.announce(interest)
