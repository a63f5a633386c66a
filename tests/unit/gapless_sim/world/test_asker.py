"""Asking again, and asking for what nobody was told, in whole runs."""

from __future__ import annotations

from gapless_sim.search.run import run_seed
from gapless_sim.world.asker import SOMETIMES
from gapless_sim.world.options import Options


def test_all_of_it_comes_within_a_few_runs() -> None:
    missing = set(SOMETIMES)
    for seed in range(12):
        result = run_seed(Options(seed, router="local", workload="ranges"))
        assert result.violation is None, result.violation
        missing -= {assertion for assertion, count in result.hits.items() if count}
        if not missing:
            return
    assert not missing
