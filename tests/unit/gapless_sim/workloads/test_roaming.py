"""The workload `roaming`: that its runs hold, and that in them happens what they are for."""

from __future__ import annotations

from collections import Counter

from gapless_sim.search.campaign import Plan, run_one
from gapless_sim.workloads import ROAMING_SOMETIMES
from gapless_sim.world.topology import roaming_of

RARE = {
    "roaming.consumed while the home was down",
    "roaming.taken over",
    "roaming.in total order",
    "roaming.changed at home: jms",
    "roaming.changed elsewhere: jms",
}
"""What does not happen in every few runs."""


def test_nothing_breaks_and_everything_happens() -> None:
    plan, hits = Plan(("knowledge",), "roaming"), Counter[str]()
    for seed in (10, 21, 22, 23, 58):
        run = run_one(plan, seed, "knowledge")
        assert run.failure is None, (seed, run.failure)
        hits.update(run.hits)

    assert [assertion for assertion in ROAMING_SOMETIMES if not hits[assertion] and assertion not in RARE] == []


def test_there_is_always_another_shb_to_go_to() -> None:
    for seed in range(20):
        roaming = roaming_of(Plan(("knowledge",), "roaming").options(seed, "knowledge"))
        assert roaming is not None
        assert len(roaming.shbs) >= 2


def test_other_workloads_do_not_roam() -> None:
    assert roaming_of(Plan(("knowledge",), "churn").options(1, "knowledge")) is None
