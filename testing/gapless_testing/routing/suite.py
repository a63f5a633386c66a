"""All of the suite for routers."""

from __future__ import annotations

from gapless_testing.routing.bounds import BoundsTests
from gapless_testing.routing.changing import ChangingTests
from gapless_testing.routing.operating import OperatorTests
from gapless_testing.routing.purity import PurityTests
from gapless_testing.routing.safety import SafetyTests
from gapless_testing.routing.service import ServiceTests


class RouterSuite(SafetyTests, BoundsTests, PurityTests, ChangingTests, OperatorTests, ServiceTests):
    """Every clause of the contract. Override the fixture `harness`.

    pytest runs the tests of the last base first: what is simple comes before the random schedules.
    """
