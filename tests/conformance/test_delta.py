"""The router `delta` through the suite that we ship for everyone's routers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gapless.core.network.facts import BrokerId, NetworkMap, NetworkNode
from gapless.core.network.seam import Router
from gapless_routing.delta import open_routing
from gapless_testing.routing import RouterHarness, RouterSuite, Topology

pytestmark = pytest.mark.timeout(300)


class DeltaHarness(RouterHarness):
    seeds = 1  # the same contract is watched in each day's seeds of the simulator

    def make(self) -> Router:
        return open_routing({})

    def network(self, topology: Topology) -> NetworkMap:
        """The same nodes, each by itself, and of the links as many as make a tree."""
        nodes = {broker: NetworkNode(roles) for broker, roles in topology.brokers.items()}
        joined = {broker: {broker} for broker in nodes}
        links: list[tuple[BrokerId, BrokerId]] = []
        for one, other in topology.links:
            if other not in joined[one]:
                links.append((one, other))
                together = joined[one] | joined[other]
                joined.update(dict.fromkeys(together, together))
        return NetworkMap(nodes, tuple(links))

    def config(self, topology: Topology, broker: BrokerId) -> Mapping[str, Any]:
        return {"cache_bytes": 1 << 20}


class TestDelta(RouterSuite):
    @pytest.fixture
    def harness(self) -> RouterHarness:
        return DeltaHarness()
