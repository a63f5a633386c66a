"""What the author of a router tells the suite: how a router is made, and in which networks it can serve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gapless.core.network.facts import BrokerId, NetworkMap
from gapless.core.network.seam import Router
from gapless_testing.routing.topology import ALL, Topology


class RouterHarness:
    """One kind of router. `make` is a must; the rest describes what most routers can.

    The suite makes harnesses of this class itself too, in a process of its own: so the class stands at the
    top of a module, and needs no arguments.
    """

    topologies: tuple[Topology, ...] = ALL
    """The networks in which it can serve; a router for one node has ALONE alone."""
    seeds = 3
    """How many random schedules are run per network and kind of fault."""
    state_bytes_max = 4 << 20
    """The most that one router may hold in these tests: let `config` set small caches."""
    frames_per_call_max = 200
    """The most frames that it may send in one call.

    While nothing happens, it may send as many in a second, and be woken as often.
    """
    push_seconds = 3.0
    """How long an event, or the silence of an idle pubend, may take to an SHB when nothing goes wrong."""
    settle_seconds = 120.0
    """How long after the last fault it may take until everything is served again."""

    def make(self) -> Router:
        """A fresh router, that was not started."""
        raise NotImplementedError("override RouterHarness.make")

    def network(self, topology: Topology) -> NetworkMap:
        """What every router finds as `context.network`. Override it if your router needs places, or other links.

        Its links are those that there are in the suite's world from the start on.
        """
        return topology.network

    def config(self, topology: Topology, broker: BrokerId) -> Mapping[str, Any]:
        """What a broker's router finds as `context.config`; by default nothing."""
        return {}


def of_any_shape(harness: RouterHarness) -> tuple[Topology, ...]:
    """The networks for what is the same in any shape: those that are there for it only if there are no others."""
    return tuple(topology for topology in harness.topologies if not topology.for_shape) or harness.topologies


class RouterFixtures:
    """The fixtures of every part of the suite."""

    @pytest.fixture
    def harness(self) -> RouterHarness:
        """What is tested. Override it."""
        raise NotImplementedError("override the fixture `harness` to return your RouterHarness")
