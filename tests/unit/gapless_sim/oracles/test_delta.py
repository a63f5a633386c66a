"""D3, D4 and V4: what brokers of the router `delta` say to each other, and who serves whom in the end."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gapless.core.network.facts import Dial, Interest, Undial
from gapless.core.network.frames import Private
from gapless.core.stream.knowledge import Knowledge
from gapless.selectors.filters import Filter
from gapless_routing.common.census import InterestByDirection
from gapless_routing.common.router_state import CORE, RouterState
from gapless_routing.delta.serving import SERVE, SERVED, UNSERVE, Service, Services
from gapless_routing.delta.tree import Tree
from gapless_sim.oracles.delta import D2Rows, D3Said, D4Server
from gapless_sim.oracles.hops import HopJudge, V4ByHop
from gapless_sim.recording.frame_tap import Hop
from gapless_sim.world.network import BrokerLink
from gapless_sim.world.topology import SINGLES
from unit.gapless_sim.oracles.model_fixture import ModelFixture, P, Stand, violates

CHAIN = "phb1:phb ib1<phb1 ib2<ib1 shb1:shb<ib2"


class Chain:
    """A chain whose brokers say what a test wants them to say."""

    def __init__(self, *judges: Any, **options: Any) -> None:
        fixture_options = {"router": "delta", "topology": SINGLES, "cells": CHAIN, "delta": 1, "together": False}
        self.fixture = ModelFixture(*judges, **{**fixture_options, **options})
        self.world = self.fixture.world
        self.judges: Sequence[HopJudge] = [
            oracle for oracle in self.fixture.oracles.values() if isinstance(oracle, HopJudge)
        ]
        self._links: dict[frozenset[str], BrokerLink] = {}
        for broker in self.world.brokers.values():
            broker.life = Stand(over=False)  # type: ignore[assignment]
        self.fixture.observe.opened("phb1", Stand(pubend=P, created=0), {})

    def hop(self, source: str, target: str) -> Hop:
        ends = frozenset((source, target))
        if ends not in self._links:
            self._links[ends] = BrokerLink(self.world.brokers[source], self.world.brokers[target])
        link = self._links[ends]
        return Hop(link, next(index for index, end in enumerate(link.ends) if end.name == target))

    def sends(self, source: str, target: str, message: Any, *, lost: bool = False) -> None:
        for judge in self.judges:
            judge.frame_sent(self.hop(source, target), message, (), 100)
            if not lost:
                judge.frame_arrived(self.hop(source, target), message, ())

    def know(self, lo: int, hi: int, *ticks: int, **fields: Any) -> Knowledge:
        return self.fixture.knowledge(lo, hi, [(tick, tick) for tick in ticks], **fields)

    def service(self, source: str, target: str, kind: int, number: int, *, lo: int = 0, hi: int = 0) -> None:
        said = Services(1, (Service(number, P, lo, hi),))
        self.sends(source, target, Private(kind, msgspec.msgpack.encode(said)))

    def serves(self, server: str, served: str, number: int) -> None:
        self.service(served, server, SERVE, number)
        self.service(server, served, SERVED, number)

    @property
    def judge(self) -> HopJudge:
        return self.judges[0]


# ------------------------------------------------------------------------------------------------ D2


class Rows(Chain):
    """A chain of which each router has the tables that a test gives it."""

    def __init__(self, delta: int) -> None:
        self.rings: dict[str, Any] = {}
        super().__init__(D2Rows, delta=delta)
        topology = self.world.topology
        assert topology is not None
        for name, broker in self.world.brokers.items():
            broker.life = Stand(over=False)  # type: ignore[assignment]
            tree = Tree(topology.map(), name, delta + 1)
            table = InterestByDirection(RouterState(name, 1, 1, 0), tree.near, lambda *_: None)
            interests = SimpleNamespace(shb="s@1" if name == "shb1" else "", table=table)
            ring = self.rings[name] = SimpleNamespace(ready=True, links={})
            router = SimpleNamespace(_interests=interests, _tree=tree, _ring=ring)
            self.world.seam.started(name, router)

    def router(self, name: str) -> Any:
        return self.world.seam.router_of(name)

    def has(self, version: int, *names: str) -> None:
        """These know what the SHB wants, by this version."""
        wanted = {1: Filter((f"topic{version}",))}
        for name in names:
            router = self.router(name)
            direction = CORE if name == "shb1" else router._tree.group_of("shb1")
            router._interests.table.apply(direction, Interest("s@1", 0, version, wanted, full=True))


def test_all_between_an_shb_and_a_phb_have_its_row_in_the_end() -> None:
    chain = Rows(delta=1)
    chain.has(1, "shb1", "ib2", "ib1")
    assert chain.judge.unsettled() == "phb1 has nothing of what s@1 wants at shb1"
    chain.has(1, "phb1")
    assert chain.judge.settled()

    chain.has(2, "shb1", "ib1", "phb1")
    assert chain.judge.unsettled() == "ib2 has version 1 of what s@1 wants at shb1"
    assert not chain.judge.settled()


def test_who_is_not_ready_need_not_have_it_yet() -> None:
    chain = Rows(delta=1)
    chain.has(1, "shb1", "ib2", "ib1")
    chain.rings["phb1"].ready = False

    assert chain.judge.settled()


def test_who_is_told_by_nobody_that_has_a_link_to_it_need_not_have_a_row() -> None:
    """The SHB passes by `ib2`, and `phb1` passes by `ib1`: so each has somebody nearer, who lives, than the other."""
    chain = Rows(delta=2)
    layer = chain.world.network.layer
    assert layer is not None
    for pair in (("ib2", "shb1"), ("ib1", "phb1")):
        layer.dead[pair] = 0
    chain.has(1, "shb1", "ib1")

    assert chain.judge.settled()

    links = chain.rings["shb1"].links
    links["phb1"] = None
    assert chain.judge.unsettled() == "phb1 has nothing of what s@1 wants at shb1"
    del links["phb1"], layer.dead["ib1", "phb1"]
    assert chain.judge.unsettled() == "phb1 has nothing of what s@1 wants at shb1"


# ------------------------------------------------------------------------------------------------ D3


def test_silence_goes_on_under_the_stamp_that_it_came_with_or_a_lower_one() -> None:
    chain = Chain(D3Said)
    chain.sends("phb1", "ib1", chain.know(0, 9, 5, stamp={"a": 2, "b": 3}))
    chain.sends("ib1", "ib2", chain.know(0, 9, 5, stamp={"a": 1}))

    with violates("D3"):
        chain.sends("ib1", "ib2", chain.know(0, 9, 5, stamp={"a": 3}))


def test_what_was_not_told_is_not_known_to_be_silent() -> None:
    chain = Chain(D3Said)
    chain.sends("phb1", "ib1", chain.know(0, 4))
    chain.sends("phb1", "ib1", chain.know(6, 9), lost=True)

    with violates("D3"):
        chain.sends("ib1", "ib2", chain.know(0, 9))


def test_an_event_is_no_silence_under_whatever_stamp_it_came() -> None:
    chain = Chain(D3Said)
    chain.sends("phb1", "ib1", chain.know(0, 9, 5, stamp={"a": 1}))

    chain.sends("ib1", "ib2", chain.know(4, 5, 5))


def test_another_life_was_told_nothing_yet() -> None:
    chain = Chain(D3Said)
    chain.sends("phb1", "ib1", chain.know(0, 9))
    chain.world.brokers["ib1"].life = Stand(over=False)  # type: ignore[assignment]

    with violates("D3"):
        chain.sends("ib1", "ib2", chain.know(0, 9))


def test_the_broker_of_the_pubend_knows_whom_its_silence_is_good_for() -> None:
    chain = Chain(D3Said)

    chain.sends("phb1", "ib1", chain.know(0, 9, stamp={"a": 7}))


# ------------------------------------------------------------------------------------------------ D4


@pytest.mark.parametrize(("source", "target"), [("ib2", "ib1"), ("shb1", "ib1"), ("ib1", "phb1")])
def test_knowledge_goes_away_from_its_pubend(source: str, target: str) -> None:
    chain = Chain(D4Server)
    chain.sends("phb1", "ib1", chain.know(0, 9))
    chain.sends("phb1", "ib2", chain.know(0, 9))

    with violates("D4"):
        chain.sends(source, target, chain.know(0, 9, reply=True))


class Serving(Chain):
    """A chain whose routers serve as they say."""

    def __init__(self) -> None:
        super().__init__(D4Server)
        self.outward: dict[str, dict[str, None]] = {name: {} for name in self.world.brokers}
        for name, outward in self.outward.items():
            streams = SimpleNamespace(_streams={P: SimpleNamespace(outward=outward)})
            self.world.seam.started(name, SimpleNamespace(_streams=streams))

    def serves(self, server: str, served: str, number: int) -> None:
        super().serves(server, served, number)
        self.outward[server][served] = None


def settle(chain: Serving) -> None:
    chain.serves("phb1", "ib1", 1)
    chain.serves("ib1", "ib2", 1)
    chain.serves("ib2", "shb1", 1)


def test_in_the_end_everybody_is_served_by_the_nearest() -> None:
    chain = Serving()
    settle(chain)
    assert chain.judge.settled(), chain.judge.unsettled()

    chain.serves("phb1", "ib2", 2)

    assert chain.judge.unsettled() == f"ib2 is served with {P} by phb1, and ib1 is the nearest one of use"
    chain.service("ib2", "phb1", UNSERVE, 2)
    assert chain.judge.settled()


def test_whoever_is_taken_to_serve_does_so() -> None:
    chain = Serving()
    settle(chain)
    del chain.outward["ib1"]["ib2"]

    assert chain.judge.unsettled() == f"ib2 takes ib1 to serve it with {P}, and that does not"
    assert not chain.judge.settled()


def test_whoever_began_anew_is_served_by_nobody() -> None:
    chain = Serving()
    settle(chain)
    chain.world.brokers["ib2"].life = Stand(over=False)  # type: ignore[assignment]

    assert "ib2 is served" in chain.judge.unsettled()


def test_an_agreement_that_was_not_asked_for_is_none() -> None:
    chain = Serving()
    chain.serves("phb1", "ib1", 1)
    chain.service("ib1", "ib2", SERVED, 1)

    assert "ib2 is served with p@1 by nobody" in chain.judge.unsettled()


def test_no_link_is_wished_for_that_nobody_needs() -> None:
    chain = Serving()
    settle(chain)
    judge = chain.judge
    assert isinstance(judge, D4Server)
    judge.said("ib2", 0, Dial("ib1"))
    assert judge.settled()

    judge.said("ib2", 0, Dial("phb1"))

    assert judge.unsettled() == "ib2 wishes for a link to phb1, and nobody between them is away"
    judge.said("ib2", 0, Undial("phb1"))
    assert judge.settled()


# ------------------------------------------------------------------------------------------------ V4


def test_who_wants_to_be_served_anew_is_told_once_more_of_what_it_has_not() -> None:
    chain = Chain(V4ByHop)
    chain.service("ib1", "phb1", SERVE, 1)
    chain.sends("phb1", "ib1", chain.know(0, 9, 5))
    chain.service("ib1", "phb1", SERVE, 2, lo=0, hi=4)
    chain.sends("phb1", "ib1", chain.know(0, 9, 5))

    with violates("V4"):
        chain.sends("phb1", "ib1", chain.know(0, 9, 5))


def test_who_says_that_it_has_something_or_asks_for_the_same_service_again_is_not_told_again() -> None:
    chain = Chain(V4ByHop)
    chain.service("ib1", "phb1", SERVE, 1)
    chain.sends("phb1", "ib1", chain.know(0, 9, 5))
    chain.service("ib1", "phb1", SERVE, 1)
    chain.service("ib1", "phb1", SERVE, 2, lo=0, hi=9)

    with violates("V4"):
        chain.sends("phb1", "ib1", chain.know(0, 9, 5))
