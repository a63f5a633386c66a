"""The workload `transforms`: that its runs hold, and that in them happens what they are for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from gapless_sim.search.campaign import Plan, run_one
from gapless_sim.workloads import TRANSFORMS_SOMETIMES
from gapless_sim.world.transform import OUTPUTS_MOST, input_of

RARE = {"transforms.stood still with outputs unsent", "transforms.client and broker died together"}
"""What does not happen in every few runs."""


@pytest.mark.parametrize(("router", "seeds"), [("local", (*range(6), 7)), ("hostile", (*range(5), 15, 20))])
def test_nothing_breaks_and_everything_happens(router: str, seeds: Iterable[int]) -> None:
    plan, hits = Plan((router,), "transforms"), Counter[str]()
    for seed in seeds:
        run = run_one(plan, seed, router)
        assert run.failure is None, (seed, run.failure)
        hits.update(run.hits)

    assert [assertion for assertion in TRANSFORMS_SOMETIMES if not hits[assertion] and assertion not in RARE] == []


def test_a_seed_is_the_same_run_each_time() -> None:
    plan = Plan(("hostile",), "transforms")

    assert run_one(plan, 3, "hostile").digest == run_one(plan, 3, "hostile").digest


def test_an_output_tells_its_input() -> None:
    assert input_of((7 * (1 << 32) + 12) * OUTPUTS_MOST + 1) == (7, 12, 1)
    assert input_of(12) is None
