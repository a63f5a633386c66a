"""Two thousand runs, both generators and both routers: no promise is broken."""

from __future__ import annotations

import os

import pytest

from gapless.testing.campaign import Plan, Total, campaign
from gapless.testing.sim.probes import DECLARED

SEEDS = 1_000
"""Each under both routers."""
RARE = 40
"""So many of the probes may fail to fire in so few runs."""


@pytest.mark.timeout(2400)
def test_no_seed_breaks_a_promise() -> None:
    total = Total()
    for summary in campaign(Plan(), range(SEEDS), processes=os.cpu_count()):
        total.add(summary)

    assert not total.failures, [(run.seed, run.router, run.failure) for run in total.failures]
    assert total.runs == 2 * SEEDS
    never = [probe for probe in DECLARED if not total.probes[probe]]
    assert len(never) <= RARE, never
