"""The workload `ranges`: that its runs hold, and that in them happens what they are for."""

from __future__ import annotations

from collections import Counter

import pytest

from gapless_sim.search.campaign import Plan, run_one
from gapless_sim.workloads import RANGES_SOMETIMES
from gapless_sim.world.choices import Choices
from gapless_sim.world.options import draw_options

RARE = {
    "ranges.range given up",
    "ranges.began anew",
    "ranges.gap in a range",
    "ranges.read again with a gap",
    "ranges.pubend found later",
}
"""What does not happen in every eighteen runs."""


@pytest.mark.timeout(240)  # 13 s alone; beside other workers it met the limit
@pytest.mark.parametrize("router", ["local", "hostile"])
def test_nothing_breaks_and_everything_happens(router: str) -> None:
    plan, hits = Plan((router,), "ranges"), Counter[str]()
    for seed in range(18):
        run = run_one(plan, seed, router)
        assert run.failure is None, (seed, run.failure)
        hits.update(run.hits)

    assert [assertion for assertion in RANGES_SOMETIMES if not hits[assertion] and assertion not in RARE] == []


def test_a_seed_is_the_same_run_each_time() -> None:
    plan = Plan(("hostile",), "ranges")

    assert run_one(plan, 3, "hostile").digest == run_one(plan, 3, "hostile").digest


def test_it_is_run_by_its_name_alone() -> None:
    drawn = {draw_options(seed, Choices(seed), router="hostile").workload for seed in range(60)}

    assert drawn == {"churn", "scenarios"}
    assert draw_options(1, Choices(1), router="local", workload="ranges").workload == "ranges"
