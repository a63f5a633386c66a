"""D8: where the router `delta` keeps events for an SHB that is away."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gapless.core.network.facts import LINK_HIGH, LinkRoom
from gapless.core.stream.knowledge import KnowledgeStream
from gapless_sim.oracles.copies import Full
from gapless_sim.oracles.piles import KEPT, LET_GO_WITHIN, D8Pile
from gapless_sim.world.options import SECOND, NetworkFaults
from unit.gapless_sim.oracles.model_fixture import P, Stand, violates
from unit.gapless_sim.oracles.test_delta import Chain

CELLS = "phb1:phb ib1<phb1 ib2<ib1 ib3<ib2 shb1:shb<ib3"
WINDOW = 10 * SECOND


class Keeping(Chain):
    """A chain of five, whose routers have what a test lets them have."""

    def __init__(self) -> None:
        super().__init__(cells=CELLS, window_seconds=WINDOW // SECOND, network=NetworkFaults(bytewise=0.0))
        self.full = Full(self.world)
        self.pile: Any = D8Pile(self.fixture.model, self.full)
        self.caches = {name: KnowledgeStream(P) for name in self.world.brokers}
        for name, cache in self.caches.items():
            streams = SimpleNamespace(_streams={P: SimpleNamespace(cache=cache)})
            self.world.seam.started(name, SimpleNamespace(_streams=streams))
            self.world.brokers[name].life = Stand(over=False)  # type: ignore[assignment]

    def publish(self, tick: int, *names: str, reply: bool = False) -> None:
        """An event; these have it."""
        said = self.know(tick - 1, tick, tick, reply=reply)
        self.pile.known("phb1", said)
        for name in names:
            self.caches[name].accumulate(said)

    def away(self, name: str) -> None:
        self.world.brokers[name].life = Stand(over=True)  # type: ignore[assignment]
        self.pile.crashed(self.world.brokers[name])

    def look(self) -> None:
        """The window is over for all there is, and everybody had time enough."""
        self.world.now += WINDOW + LET_GO_WITHIN + 1
        self.pile.checkpoint()


def test_for_who_is_away_it_is_kept_at_the_brokers_before_it_alone() -> None:
    chain = Keeping()
    chain.away("shb1")
    chain.publish(5, "ib2", "ib3")
    chain.look()
    assert chain.world.hits[KEPT] == 2
    chain.publish(6, "ib1", "ib2", "ib3")

    with violates("D8"):
        chain.look()


def test_where_nobody_is_away_it_is_kept_nowhere() -> None:
    chain = Keeping()
    chain.publish(5, "ib3")

    with violates("D8"):
        chain.look()


def test_within_the_window_everybody_may_have_it() -> None:
    chain = Keeping()
    chain.publish(5, *chain.caches)
    chain.world.now += WINDOW
    chain.pile.checkpoint()


@pytest.mark.parametrize("name", ["phb1", "ib2"])
def test_where_others_were_away_too_nothing_is_promised(name: str) -> None:
    chain = Keeping()
    chain.away(name)
    chain.publish(5, "ib1")
    chain.look()


def test_what_was_asked_for_or_met_a_full_link_may_be_anywhere() -> None:
    chain = Keeping()
    chain.publish(5, "ib1")
    chain.publish(5, reply=True)
    chain.publish(6, "ib1")
    chain.pile.frame_sent(chain.hop("ib1", "ib2"), chain.know(5, 6, 6, reply=True), (), 100)
    chain.look()

    chain.publish(7, "ib1")
    chain.full.informed("ib1", 0, LinkRoom(1, LINK_HIGH + 1))
    chain.look()
