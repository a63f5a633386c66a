"""The routers' contract as an oracle."""

from __future__ import annotations

import pytest

from gapless.core.routing import Deliver, Interest, PubendMeta
from gapless.testing.sim.observing import Violation
from gapless.testing.sim.oracles.contract import Routing
from unit.gapless.testing.sim.oracles.hands import NODE, SHB, Hands, P, violates


def opened() -> tuple[Hands, Routing]:
    hands = Hands(Routing)
    routing = hands.oracles[Routing]
    assert isinstance(routing, Routing)
    routing.called(NODE, 0, "pubend", (PubendMeta(P, NODE), {SHB: 0}))
    routing.called(NODE, 0, "interest", (Interest(SHB, 0, 1, {}, full=True),))
    routing.called(NODE, 0, "know", (hands.knowledge(0, 10, [(5, 1)]), None))
    return hands, routing


def test_a_router_may_say_what_the_pubend_did() -> None:
    hands, routing = opened()

    routing.said(NODE, 0, Deliver(hands.knowledge(0, 10, [(5, 1)])))


def test_and_no_more() -> None:
    hands, routing = opened()

    with violates("C1"):
        routing.said(NODE, 0, Deliver(hands.knowledge(0, 11, [(5, 1)])))


def test_a_core_that_contradicts_itself_is_told_apart() -> None:
    hands, routing = opened()

    with pytest.raises(Violation, match=r"^cores: "):
        routing.called(NODE, 0, "know", (hands.knowledge(0, 10), None))


def test_behind_an_old_copy_of_a_disk_it_looks_away() -> None:
    hands, routing = opened()
    routing.restored(hands.world.brokers[NODE])

    routing.said(NODE, 0, Deliver(hands.knowledge(0, 11, [(5, 1)])))
