"""All of the suite for routers."""

from __future__ import annotations

from gapless.testing.routing.bounds import BoundsTests
from gapless.testing.routing.purity import PurityTests
from gapless.testing.routing.safety import SafetyTests
from gapless.testing.routing.service import ServiceTests


class RouterSuite(SafetyTests, ServiceTests, PurityTests, BoundsTests):
    """Every clause of the contract. Override the fixture `harness`."""
