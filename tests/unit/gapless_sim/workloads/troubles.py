"""Runs about one scenario, with nothing that goes wrong beside it."""

from __future__ import annotations

from collections.abc import Iterable

from gapless_sim.search.run import run_seed
from gapless_sim.world.options import SCENARIOS, Options, about

SEEDS = 20


def all_turns_of(scenario: str, hits: Iterable[str]) -> None:
    """Runs until all that it is about has happened; raises AssertionError where it does not, or breaks something."""
    missing = {assertion for assertion in hits if assertion.startswith(f"scenario.{scenario}.")}
    assert missing
    router = "local" if SCENARIOS[scenario]["shbs"] == 1 else "hostile"
    for seed in range(SEEDS):
        result = run_seed(about(Options(seed, router=router), scenario))
        assert result.violation is None, f"seed {seed}: {result.violation}"
        missing -= result.hits.keys()
        if not missing:
            return
    raise AssertionError(f"never happened: {sorted(missing)}")
