"""Our routers through the suite that we ship for everyone's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gapless.core.routing import BrokerId, Router
from gapless.testing.hostile import open_routing as open_hostile
from gapless.testing.hostile.hostility import BEHAVIOURS
from gapless.testing.routing import ALONE, RouterHarness, RouterSuite, Topology
from gapless.testing.routing.bounds import BoundsTests
from gapless.testing.routing.purity import PurityTests
from gapless.testing.routing.safety import SafetyTests
from gapless.testing.routing.service import ServiceTests
from gapless_routing.local import open_routing as open_local

pytestmark = pytest.mark.timeout(300)


class LocalHarness(RouterHarness):
    topologies = (ALONE,)

    def make(self) -> Router:
        return open_local({})


class HonestHarness(RouterHarness):
    """The router `hostile` as long as it is not told to be."""

    def make(self) -> Router:
        return open_hostile({})


class HostileHarness(HonestHarness):
    """Everything that the contract permits, now and then. It does not serve as fast as a router should."""

    seeds = 1

    def config(self, topology: Topology, broker: BrokerId) -> Mapping[str, Any]:
        return {**super().config(topology, broker), "hostility": dict.fromkeys(BEHAVIOURS, 0.05)}


class TestLocal(RouterSuite):
    @pytest.fixture
    def harness(self) -> RouterHarness:
        return LocalHarness()


class TestHonest(ServiceTests, BoundsTests):
    @pytest.fixture
    def harness(self) -> RouterHarness:
        return HonestHarness()


class TestHostile(SafetyTests, PurityTests):
    @pytest.fixture
    def harness(self) -> RouterHarness:
        return HostileHarness()
