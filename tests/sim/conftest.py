"""The seeds of this run, told before it begins."""

from __future__ import annotations

from sim.seeds import first_seed, seed_count


def pytest_report_header() -> str:
    first = first_seed()
    return f"simulator: seeds {first} to {first + seed_count() - 1}; GAPLESS_SEED_FIRST={first} runs them again"
