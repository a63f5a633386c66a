"""The router `knowledge` through the suite that we ship for everyone's routers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gapless.core.network.facts import BrokerId
from gapless.core.network.seam import Router
from gapless_routing.knowledge import open_routing
from gapless_testing.routing import RouterHarness, RouterSuite, Topology

pytestmark = pytest.mark.timeout(300)


class KnowledgeHarness(RouterHarness):
    seeds = 1  # the same contract is watched in each day's seeds of the simulator

    def make(self) -> Router:
        return open_routing({})

    def config(self, topology: Topology, broker: BrokerId) -> Mapping[str, Any]:
        return {"cache_bytes": 1 << 20}


class TestKnowledge(RouterSuite):
    @pytest.fixture
    def harness(self) -> RouterHarness:
        return KnowledgeHarness()
