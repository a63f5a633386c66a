"""Our release policies through the suite that we ship for everyone's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gapless.core.ports import PubendState, ReleasePolicy
from gapless.core.stream.ticks import FOREVER, SECOND
from gapless_phb.policies import open_release as open_limits
from gapless_sim.world.greedy import open_release as open_greedy
from gapless_testing.release import Records, ReleaseHarness, ReleaseSuite

STATE = PubendState("p@1", 100 * SECOND, 0, 30 * SECOND, 0, 30 * SECOND, Records({10 * SECOND: 9, 30 * SECOND: 9}))


class LimitsHarness(ReleaseHarness):
    options = (
        {},
        {"max_retain_seconds": 60.5},
        {"max_retain_bytes": 1 << 20},
        {"max_retain_seconds": 1, "max_retain_bytes": 1},
    )
    refused = (
        ("max_retain_seconds", {"max_retain_seconds": 0}),
        ("max_retain_seconds", {"max_retain_seconds": float("inf")}),
        ("max_retain_bytes", {"max_retain_bytes": "many"}),
    )
    cases = (
        ({}, STATE, 0),
        ({"max_retain_seconds": 80}, STATE, 20 * SECOND - 1),
        ({"max_retain_bytes": 8}, STATE, 10 * SECOND),
        ({"max_retain_bytes": 9}, STATE, 0),
    )

    def make(self, options: Mapping[str, Any]) -> ReleasePolicy:
        return open_limits(options=options)


class GreedyHarness(ReleaseHarness):
    options = ({},)
    cases = (({}, STATE, FOREVER),)

    def make(self, options: Mapping[str, Any]) -> ReleasePolicy:
        return open_greedy(options=options)


class TestLimits(ReleaseSuite):
    @pytest.fixture
    def harness(self) -> ReleaseHarness:
        return LimitsHarness()


class TestGreedy(ReleaseSuite):
    @pytest.fixture
    def harness(self) -> ReleaseHarness:
        return GreedyHarness()
