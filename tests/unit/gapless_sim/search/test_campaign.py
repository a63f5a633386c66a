from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice

import pytest

from gapless_sim.search.campaign import Plan, campaign, run_one
from gapless_sim.world.options import Options
from gapless_sim.world.topology import Topology


def test_a_plan_can_shorten_the_phase_with_faults_and_changes_nothing_else() -> None:
    plan, short = Plan(("hostile",)), Plan(("hostile",), seconds=9.5)
    drawn = [plan.options(seed, "hostile") for seed in range(40)]
    shortened = [short.options(seed, "hostile") for seed in range(40)]

    assert shortened == [replace(options, duration=min(options.duration, 9_500_000_000)) for options in drawn]
    assert {options.duration for options in shortened} > {9_500_000_000}


def test_a_plan_can_say_how_many_levels_of_ibs_there_are() -> None:
    for levels in (0, 1, 2):
        plan = Plan(("knowledge",), "churn", levels=levels)

        assert {depth(plan.options(seed, "knowledge")) for seed in range(40)} == {levels}


def test_a_seed_that_has_as_many_levels_anyway_is_what_it_was() -> None:
    drawn, deep = (
        [Plan(("knowledge",), "churn", levels=levels).options(seed, "knowledge") for seed in range(40)]
        for levels in (None, 2)
    )

    same = [options for options, other in zip(drawn, deep, strict=True) if options == other]

    assert len(same) > 10
    assert {depth(options) for options in same} == {2}


def depth(options: Options) -> int:
    """How far from the first PHB's cell the farthest one of IBs is."""
    cells, far = Topology.parse(options.cells).cells, {"": -1}
    for name, cell in cells.items():
        far[name] = far[cell.up] + 1
    return max((far[name] for name, cell in cells.items() if not cell.roles), default=0)


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
