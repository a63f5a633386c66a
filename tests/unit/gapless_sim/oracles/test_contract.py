"""The routers' contract as an oracle."""

from __future__ import annotations

import pytest

from gapless.core.network.facts import Interest, Know, Opened, PubendMeta
from gapless_sim.oracles.contract import Routing
from gapless_sim.recording.observation import Violation
from unit.gapless_sim.oracles.model_fixture import NODE, SHB, ModelFixture, P, violates


def opened() -> tuple[ModelFixture, Routing]:
    fixture = ModelFixture(Routing)
    routing = fixture.oracles[Routing]
    assert isinstance(routing, Routing)
    routing.informed(NODE, 0, Opened(PubendMeta(P, NODE), {SHB: 0}))
    routing.informed(NODE, 0, Interest(SHB, 0, 1, {}, full=True))
    routing.informed(NODE, 0, Know(fixture.knowledge(0, 10, [(5, 1)]), None))
    return fixture, routing


def test_a_router_may_say_what_the_pubend_did() -> None:
    fixture, routing = opened()

    routing.said(NODE, 0, Know(fixture.knowledge(0, 10, [(5, 1)])))


def test_and_no_more() -> None:
    fixture, routing = opened()

    with violates("C1"):
        routing.said(NODE, 0, Know(fixture.knowledge(0, 11, [(5, 1)])))


def test_a_core_that_contradicts_itself_is_told_apart() -> None:
    fixture, routing = opened()

    with pytest.raises(Violation, match=r"^cores: "):
        routing.informed(NODE, 0, Know(fixture.knowledge(0, 10), None))


def test_behind_an_old_copy_of_a_disk_it_looks_away() -> None:
    fixture, routing = opened()
    routing.restored(fixture.world.brokers[NODE])

    routing.said(NODE, 0, Know(fixture.knowledge(0, 11, [(5, 1)])))
