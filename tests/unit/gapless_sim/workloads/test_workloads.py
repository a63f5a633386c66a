"""Each workload that is run by its name: that its runs hold, and that in them happens what they are for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from gapless_sim.search.campaign import Plan, run_one
from gapless_sim.workloads import (
    COMMITTING_SOMETIMES,
    RANGES_SOMETIMES,
    ROAMING_SOMETIMES,
    SHARING_SOMETIMES,
    TRANSACTIONS_SOMETIMES,
    TRANSFORMS_SOMETIMES,
)
from gapless_sim.world.choices import Choices
from gapless_sim.world.options import draw_options
from gapless_sim.world.topology import roaming_of
from gapless_sim.world.transform import OUTPUTS_MOST, input_of

SOMETIMES = {
    "ranges": RANGES_SOMETIMES,
    "roaming": ROAMING_SOMETIMES,
    "transforms": TRANSFORMS_SOMETIMES,
    "committing": COMMITTING_SOMETIMES,
    "transactions": TRANSACTIONS_SOMETIMES,
    "sharing": SHARING_SOMETIMES,
}
"""What each promises. Of `kafka`, tests/sim/test_seeds.py says how much of it may be missing."""

RUNS: dict[str, dict[str, Sequence[int]]] = {
    "ranges": {"local": (1, 2, 4, 8), "hostile": (3,)},
    "roaming": {"knowledge": (10, 12, 22, 23, 58)},
    "transforms": {"local": (2, 4, 5), "hostile": (3, 20)},
    "committing": {"local": (0, 1, 4, 6, 16, 21, 28)},
    "transactions": {"local": (2, 4), "hostile": (1, 4)},
    "sharing": {"local": (17, 203, 208, 211, 217, 220), "hostile": (4,)},
}
"""Seeds by router in which it happens, most of it twice: not many, for each day's seeds run these workloads, too."""

RARE = {
    "ranges.range given up",
    "ranges.began anew",
    "ranges.gap in a range",
    "ranges.read again with a gap",
    "ranges.pubend found later",
    "roaming.consumed while the home was down",
    "roaming.taken over",
    "roaming.in total order",
    "roaming.changed at home: jms",
    "roaming.changed elsewhere: jms",
    "committing.delivered three times",
    "committing.batch redelivered",
    "committing.left with something in hand",
    "transforms.stood still with outputs unsent",
    "transforms.client and broker died together",
    "transactions.client and broker died together",
    "transactions.refused",
}
"""What does not happen in every few runs."""


@pytest.mark.timeout(240)
@pytest.mark.parametrize("workload", RUNS)
def test_nothing_breaks_and_everything_happens(workload: str) -> None:
    hits: Counter[str] = Counter()
    for router, seeds in RUNS[workload].items():
        for seed in seeds:
            run = run_one(Plan((router,), workload), seed, router)
            assert run.failure is None, (router, seed, run.failure)
            hits.update(run.hits)

    assert [assertion for assertion in SOMETIMES[workload] if not hits[assertion] and assertion not in RARE] == []


def test_a_seed_draws_none_of_them() -> None:
    drawn = {draw_options(seed, Choices(seed), router="hostile").workload for seed in range(60)}

    assert drawn == {"churn", "scenarios"}


def test_who_roams_has_always_another_shb_to_go_to() -> None:
    for seed in range(20):
        roaming = roaming_of(Plan(("knowledge",), "roaming").options(seed, "knowledge"))
        assert roaming is not None
        assert len(roaming.shbs) >= 2
    assert roaming_of(Plan(("knowledge",), "churn").options(1, "knowledge")) is None


def test_an_output_tells_its_input() -> None:
    assert input_of((7 * (1 << 32) + 12) * OUTPUTS_MOST + 1) == (7, 12, 1)
    assert input_of(12) is None
