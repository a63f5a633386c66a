"""Runs about one story, with nothing that goes wrong beside it."""

from __future__ import annotations

from collections.abc import Iterable

from gapless_sim.options import STORIES, Options, about
from gapless_sim.run import run_seed

SEEDS = 20


def all_turns_of(story: str, probes: Iterable[str]) -> None:
    """Runs until all that it is about has happened; raises AssertionError where it does not, or breaks something."""
    missing = {probe for probe in probes if probe.startswith(f"story.{story}.")}
    assert missing
    router = "local" if STORIES[story]["shbs"] == 1 else "hostile"
    for seed in range(SEEDS):
        result = run_seed(about(Options(seed, router=router), story))
        assert result.violation is None, f"seed {seed}: {result.violation}"
        missing -= result.probes.keys()
        if not missing:
            return
    raise AssertionError(f"never happened: {sorted(missing)}")
