"""Seeds that no run of another day has tried, both generators and both routers: no promise is broken."""

from __future__ import annotations

import os

import pytest

from gapless_sim.campaign import Plan, Total, campaign
from gapless_sim.probes import DECLARED
from sim.seeds import first_seed, seed_count

RARE = 40
"""So many of the probes may fail to fire in so few runs."""


@pytest.mark.timeout(2400)
def test_no_seed_breaks_a_promise() -> None:
    first, count = first_seed(), seed_count()
    total = Total()
    for summary in campaign(Plan(), range(first, first + count), processes=os.cpu_count()):
        total.add(summary)

    failures = [f"gapless simulate --router {run.router} --seed {run.seed}: {run.failure}" for run in total.failures]
    assert not failures, failures
    assert total.runs == 2 * count
    never = [probe for probe in DECLARED if not total.probes[probe]]
    assert len(never) <= RARE, (first, never)
