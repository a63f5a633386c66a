"""Worlds with a Kafka: a few seeds, in which all that can happen to it does."""

from __future__ import annotations

from collections import Counter

from gapless_sim.choices import Choices
from gapless_sim.options import draw_options
from gapless_sim.run import run_seed
from gapless_sim.workloads import KAFKA_SOMETIMES

SEEDS = range(40)
RARE = 3
"""So many of the *sometimes* assertions may not hold once in so few runs."""


def test_no_seed_breaks_a_promise() -> None:
    hits: Counter[str] = Counter()
    failures = []
    for seed in SEEDS:
        result = run_seed(draw_options(seed, Choices(seed), router="local", workload="kafka"))
        hits += result.hits
        if result.violation is not None:
            failures.append(f"gapless simulate --router local --workload kafka --seed {seed}: {result.violation}")

    assert not failures, failures
    never = [assertion for assertion in KAFKA_SOMETIMES if not hits[assertion]]
    assert len(never) <= RARE, never


def test_a_seed_is_the_same_run_again() -> None:
    """An event loop of asyncio runs in it, and connections that break."""
    options = draw_options(3, Choices(3), router="local", workload="kafka")

    assert run_seed(options).digest == run_seed(options).digest
