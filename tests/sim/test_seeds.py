"""Seeds that no run of another day has tried, both generators and all routers: no promise is broken."""

from __future__ import annotations

import os

import pytest

from gapless_sim.oracles.copies import PAST_AN_OUTAGE
from gapless_sim.search.campaign import Plan, Total, campaign
from gapless_sim.search.sometimes import DECLARED
from gapless_sim.workloads import KAFKA_SOMETIMES
from gapless_sim.world.topology import SINGLES
from sim.seeds import first_seed, seed_count

UNDRAWN = ("ranges", "committing", "transforms", "transactions", "sharing")
"""The workloads that no seed draws by itself, but for `kafka`, which finds most in many runs."""
ENOUGH = 200
"""With fewer seeds what did not happen says nothing."""
ENOUGH_BYPASSING = 100
"""With so many under `delta` some are about nodes that are away."""
RARE = 40
"""So many of the *sometimes* assertions may not hold once in so few runs."""
RARE_AT_KAFKA = 15
"""So many of those of the workload `kafka`."""


@pytest.mark.timeout(2400)
def test_no_seed_breaks_a_promise() -> None:
    first, count = first_seed(), seed_count()
    on_trees = count // 3  # of which a run takes three times as long
    bypassing = count // 2
    roaming, undrawn, at_kafka = count // 10, count // 20, count // 4
    total = Total()
    plans = [
        (Plan(), count),
        (Plan(("knowledge",)), on_trees),
        (Plan(("delta",)), bypassing),
        (Plan(("knowledge",), "roaming"), roaming),
        (Plan(("knowledge",), topology=SINGLES), undrawn),
        *((Plan(workload=workload), undrawn) for workload in UNDRAWN),
        (Plan(workload="kafka"), at_kafka),
    ]
    failures = []
    for plan, seeds in plans:
        for summary in campaign(plan, range(first, first + seeds), processes=os.cpu_count()):
            total.add(summary)
            if summary.failure is not None:
                failures.append(f"{plan.command(summary.seed, summary.router)}: {summary.failure}")

    assert not failures, failures
    on_all = 2 * count + on_trees + bypassing + roaming + undrawn
    assert total.runs == on_all + 2 * (len(UNDRAWN) * undrawn + at_kafka)
    if bypassing >= ENOUGH_BYPASSING:  # else what D1 says of outages may have been judged nowhere
        assert total.hits[PAST_AN_OUTAGE], first
    if count < ENOUGH:
        return
    for declared, rare in ((DECLARED, RARE), (KAFKA_SOMETIMES, RARE_AT_KAFKA)):
        never = [assertion for assertion in declared if not total.hits[assertion]]
        assert len(never) <= rare, (first, never)
