"""The router `knowledge` through the suite that we ship for everyone's routers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gapless.core.network.facts import BrokerId, NetworkMap, NetworkNode
from gapless.core.network.seam import Router
from gapless_routing.knowledge import open_routing
from gapless_testing.routing import RouterHarness, RouterSuite, Topology

pytestmark = pytest.mark.timeout(300)

CELLS = {"i": "middle", "j": "middle"}
"""The brokers of the suite's networks that do the same job; every other one is a cell of its own."""


class KnowledgeHarness(RouterHarness):
    def make(self) -> Router:
        return open_routing({})

    def network(self, topology: Topology) -> NetworkMap:
        plain = topology.network
        nodes = {name: NetworkNode(node.roles, (CELLS.get(name, name),)) for name, node in plain.nodes.items()}
        return NetworkMap(nodes, plain.links)

    def config(self, topology: Topology, broker: BrokerId) -> Mapping[str, Any]:
        return {"cache_bytes": 1 << 20}


class TestKnowledge(RouterSuite):
    @pytest.fixture
    def harness(self) -> RouterHarness:
        return KnowledgeHarness()
