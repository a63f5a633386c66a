"""All of the suite for routers."""

from __future__ import annotations

from gapless_testing.routing.bounds import BoundsTests
from gapless_testing.routing.operating import OperatorTests
from gapless_testing.routing.purity import PurityTests
from gapless_testing.routing.safety import SafetyTests
from gapless_testing.routing.service import ServiceTests


class RouterSuite(SafetyTests, ServiceTests, PurityTests, BoundsTests, OperatorTests):
    """Every clause of the contract. Override the fixture `harness`."""
