"""V4: a pubend asks only for progress that it lacks."""

from __future__ import annotations

import pytest

from gapless.core.network.facts import Enrol, Enrolled, Probe, Released
from gapless_sim.oracles.progress_probes import V4Probing
from gapless_sim.world.options import SECOND
from unit.gapless_sim.oracles.model_fixture import NODE, SHB, ModelFixture, P, violates


@pytest.fixture
def fixture() -> ModelFixture:
    fixture = ModelFixture(V4Probing)
    fixture.world.now = SECOND
    return fixture


def told(fixture: ModelFixture, delivered: int) -> None:
    """The pubend hears how far all members have come; and time passes."""
    watcher(fixture).said(NODE, 0, Released(P, 0, delivered))
    fixture.world.now += SECOND


def asks(fixture: ModelFixture, upto: int) -> None:
    watcher(fixture).informed(NODE, 0, Probe(P, upto))


def watcher(fixture: ModelFixture) -> V4Probing:
    oracle = fixture.oracles[V4Probing]
    assert isinstance(oracle, V4Probing)
    return oracle


def test_what_is_not_delivered_may_be_asked_for(fixture: ModelFixture) -> None:
    asks(fixture, 10)
    told(fixture, 9)

    asks(fixture, 10)


def test_what_is_delivered_is_not_asked_for(fixture: ModelFixture) -> None:
    told(fixture, 10)

    with violates("V4"):
        asks(fixture, 10)


def test_what_is_heard_in_the_same_turn_may_come_too_late(fixture: ModelFixture) -> None:
    watcher(fixture).said(NODE, 0, Released(P, 0, 10))

    asks(fixture, 10)


def test_who_joins_bounds_it_until_a_later_word_counts_him(fixture: ModelFixture) -> None:
    told(fixture, 10)
    watcher(fixture).said(NODE, 0, Enrol(P, SHB))
    told(fixture, 11)
    asks(fixture, 10)

    watcher(fixture).informed(NODE, 0, Enrolled(P, SHB, 5))
    told(fixture, 12)
    asks(fixture, 10)
    told(fixture, 12)
    with violates("V4"):
        asks(fixture, 10)


def test_a_phb_that_starts_anew_has_heard_nothing(fixture: ModelFixture) -> None:
    told(fixture, 10)
    watcher(fixture).vanished(NODE)

    asks(fixture, 10)
