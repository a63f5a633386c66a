"""Our routers through the suite that we ship for everyone's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gapless.core.network.facts import BrokerId
from gapless.core.network.seam import Router
from gapless_routing.local import open_routing as open_local
from gapless_sim.hostile import open_routing as open_hostile
from gapless_sim.hostile.hostility import BEHAVIOURS
from gapless_testing.routing import ALONE, RouterHarness, RouterSuite, Topology
from gapless_testing.routing.bounds import BoundsTests
from gapless_testing.routing.changing import ChangingTests
from gapless_testing.routing.operating import OperatorTests
from gapless_testing.routing.purity import PurityTests
from gapless_testing.routing.safety import SafetyTests
from gapless_testing.routing.service import ServiceTests

pytestmark = pytest.mark.timeout(300)


class LocalHarness(RouterHarness):
    topologies = (ALONE,)
    seeds = 1  # the same contract is watched in each day's seeds of the simulator

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


class TestHonest(BoundsTests, ChangingTests, OperatorTests, ServiceTests):
    @pytest.fixture
    def harness(self) -> RouterHarness:
        return HonestHarness()


class TestHostile(SafetyTests, PurityTests):
    @pytest.fixture
    def harness(self) -> RouterHarness:
        return HostileHarness()
