"""Switches of who has a subscription, each at a seed where X1 finds it; the same seed holds without it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import pytest

from gapless_sim.search.campaign import Plan
from gapless_sim.search.result import Failure
from gapless_sim.search.run import run_seed
from sim.switches.catalogue import switch_named

SEEDS = {
    "stale_request_takes_over": 23,
    "attempts_of_a_connection_alone": 23,
}


@pytest.mark.parametrize(("name", "seed"), SEEDS.items())
def test_it_is_found_and_nothing_else_is_wrong_there(name: str, seed: int) -> None:
    switch = switch_named(name)
    assert failure(seed, nullcontext()) is None

    found = failure(seed, switch.applied())

    assert found is not None
    assert found.oracle in switch.oracle, found


def failure(seed: int, rule: AbstractContextManager[None]) -> Failure | None:
    with rule:
        return run_seed(Plan(("knowledge",), "roaming").options(seed, "knowledge"), steps_max=300_000).violation
