"""The workload `transactions`: that its runs hold, and that in them happens what they are for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from gapless_sim.search.campaign import Plan, run_one
from gapless_sim.workloads import TRANSACTIONS_SOMETIMES

RARE = {"transactions.client and broker died together", "transactions.refused"}
"""What does not happen in every few runs."""


@pytest.mark.parametrize(("router", "seeds"), [("local", range(6)), ("hostile", (*range(6), 9, 12))])
def test_nothing_breaks_and_everything_happens(router: str, seeds: Iterable[int]) -> None:
    plan, hits = Plan((router,), "transactions"), Counter[str]()
    for seed in seeds:
        run = run_one(plan, seed, router)
        assert run.failure is None, (seed, run.failure)
        hits.update(run.hits)

    assert [assertion for assertion in TRANSACTIONS_SOMETIMES if not hits[assertion] and assertion not in RARE] == []


def test_a_seed_is_the_same_run_each_time() -> None:
    plan = Plan(("hostile",), "transactions")

    assert run_one(plan, 3, "hostile").digest == run_one(plan, 3, "hostile").digest
