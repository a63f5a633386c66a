"""Seeds that no run of another day has tried, both generators and all routers: no promise is broken."""

from __future__ import annotations

import os

import pytest

from gapless_sim.campaign import Plan, Total, campaign
from gapless_sim.sometimes import DECLARED
from sim.seeds import first_seed, seed_count

RARE = 40
"""So many of the *sometimes* assertions may not hold once in so few runs."""


@pytest.mark.timeout(2400)
def test_no_seed_breaks_a_promise() -> None:
    first, count = first_seed(), seed_count()
    on_trees = count // 3  # of which a run takes three times as long
    total = Total()
    for plan, seeds in ((Plan(), count), (Plan(("knowledge",)), on_trees)):
        for summary in campaign(plan, range(first, first + seeds), processes=os.cpu_count()):
            total.add(summary)

    failures = [f"gapless simulate --router {run.router} --seed {run.seed}: {run.failure}" for run in total.failures]
    assert not failures, failures
    assert total.runs == 2 * count + on_trees
    never = [assertion for assertion in DECLARED if not total.hits[assertion]]
    assert len(never) <= RARE, (first, never)
