"""Routers let go of links, in a simulated network with the link cores of production: K10 sees whether they heed it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gapless.core.network.facts import Dial, Undial
from gapless.core.network.seam import Effects, RouterBase, RouterContext
from gapless_sim.oracles.links import K10Links
from gapless_sim.recording.model import Model
from gapless_sim.recording.observation import Violation
from gapless_sim.recording.trace import Trace
from gapless_sim.world.choices import Choices
from gapless_sim.world.core_links import CoreNetwork
from gapless_sim.world.options import SECOND, Options
from gapless_sim.world.world import World
from gapless_sim.world.world_builder import build
from sim.switches.catalogue import switch_named

LETS_GO_AFTER = 3 * SECOND


class LetsGo(RouterBase):
    """It wishes for a link to everybody on the map, and after a while for none any more."""

    def __init__(self) -> None:
        self._peers: list[str] = []
        self._at: int | None = None

    def start(self, now: int, context: RouterContext) -> Effects:
        self._peers = [peer for peer in context.network.nodes if peer != context.broker]
        self._at = now + LETS_GO_AFTER
        return list(map(Dial, self._peers))

    def next_wake(self) -> int | None:
        return self._at

    def wake(self, now: int, _: object) -> Effects:
        self._at = None
        return list(map(Undial, self._peers))


def live(*boots: str) -> World:
    """Ten seconds of three nodes, of which these are there."""
    options = Options(1, router="knowledge", topology="tree", cells="phb1:phb ib1<phb1 shb1:shb<ib1", link_cores=True)
    world = build(options, Choices(1), Trace())
    assert isinstance(world.network, CoreNetwork)
    judge = K10Links(Model(world), world.network)
    world.seam.watchers.append(judge)
    world.network.watchers.append(judge)
    for name in boots:
        broker = world.brokers[name]
        broker.loaded = replace(broker.loaded, open_routing=lambda options: LetsGo())  # noqa: ARG005 - as the hook calls it
        broker.boot()
    world.run_until(world.now + LETS_GO_AFTER - SECOND)
    assert bool(world.network.links_up()) is (len(boots) > 1)
    world.run_until(world.now + 10 * SECOND)
    judge.checkpoint()
    return world


@pytest.mark.parametrize("boots", [("phb1", "ib1", "shb1"), ("phb1",)], ids=["links", "nobody is there"])
def test_what_no_router_wishes_for_is_over(boots: tuple[str, ...]) -> None:
    assert live(*boots).network.links_up() == []


@pytest.mark.parametrize(
    ("boots", "what"),
    [
        (("phb1", "ib1", "shb1"), "have a link for which neither"),
        (("phb1",), "phb1 dials .*, of which its router has let go"),
    ],
    ids=["links", "nobody is there"],
)
def test_cores_that_ignore_it_are_noticed(boots: tuple[str, ...], what: str) -> None:
    with switch_named("undial_ignored").applied(), pytest.raises(Violation, match=f"^K10: .*{what}"):
        live(*boots)
