"""The workload `committing`: that its runs hold, and that in them happens what they are for."""

from __future__ import annotations

from collections import Counter

from gapless_sim.search.campaign import Plan, run_one
from gapless_sim.workloads import COMMITTING_SOMETIMES

RARE = {
    "committing.delivered three times",
    "committing.batch redelivered",
    "committing.left with something in hand",
}
"""What does not happen in every few runs."""


def test_nothing_breaks_and_everything_happens() -> None:
    hits = Counter[str]()
    for router, seeds in (("local", (*range(7), 16, 21, 28)), ("knowledge", (1, 2))):
        for seed in seeds:
            run = run_one(Plan((router,), "committing"), seed, router)
            assert run.failure is None, (router, seed, run.failure)
            hits.update(run.hits)

    assert [assertion for assertion in COMMITTING_SOMETIMES if not hits[assertion] and assertion not in RARE] == []
