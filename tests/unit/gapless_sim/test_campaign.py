from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import count, islice

import pytest

from gapless_sim.campaign import Plan, Summary, Total, campaign, run_one
from gapless_sim.result import Failure


def summary(seed: int, failure: Failure | None = None) -> Summary:
    return Summary(seed, "local", "churn", 100, 5 * 10**9, "digest", Counter(x=seed), failure)


def test_a_total_adds_up() -> None:
    total = Total()
    total.add(summary(1))
    total.add(summary(2, Failure("I3", "lost", 7)))

    assert (total.runs, total.steps, total.simulated) == (2, 200, 10 * 10**9)
    assert total.hits == Counter(x=3)
    assert [run.seed for run in total.failures] == [2]


def test_a_plan_makes_the_options_of_a_seed() -> None:
    plan = Plan(("local",), "scenarios", ("network",))
    options = plan.options(7, "local")

    assert options == plan.options(7, "local")
    assert options.seed == 7
    assert options.workload == "scenarios"
    assert options.process.crash == 0


@pytest.mark.timeout(120)
def test_every_seed_is_run_under_every_router_wherever() -> None:
    """Each worker has a hash seed of its own, and yet the same comes out."""
    plan = Plan(("local", "hostile"), "churn", ())
    here = [run_one(plan, seed, router) for seed in (3, 4) for router in plan.routers]
    there = list(campaign(plan, [3, 4], processes=2))

    assert sorted((run.seed, run.router, run.digest) for run in there) == sorted(
        (run.seed, run.router, run.digest) for run in here
    )
    assert list(campaign(plan, [3], processes=1)) == here[:2]


@pytest.mark.timeout(120)
def test_seeds_may_come_without_end() -> None:
    """They are drawn as workers become free: `simulate --minutes` draws them until the time is over."""
    drawn: list[int] = []

    def endless() -> Iterator[int]:
        for seed in count():
            drawn.append(seed)
            assert len(drawn) < 10_000, "all seeds are drawn before the first is run"
            yield seed

    runs = campaign(Plan(("local", "hostile"), "churn", ()), endless(), processes=2)

    assert [(run.seed, run.router) for run in islice(runs, 3)] == [(0, "local"), (0, "hostile"), (1, "local")]
    assert len(drawn) < 100
