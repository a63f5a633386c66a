"""The smallest scope, whole: every fault at every position. `gapless simulate --exhaustive` does all of them."""

from __future__ import annotations

import pytest

from gapless.testing.sim.exhaustive import SCOPES, cases, run_case


@pytest.mark.timeout(300)
def test_one_fault_at_every_position_of_the_smallest_scope() -> None:
    failures = [(case, failure) for case in cases(SCOPES[0], 1) if (failure := run_case(case)) is not None]

    assert not failures


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scope", SCOPES[1:4], ids=str)
def test_one_fault_here_and_there_in_larger_ones(scope: object) -> None:
    assert scope in SCOPES
    chosen = cases(next(one for one in SCOPES if one == scope), 1, stride=11)
    failures = [(case, failure) for case in chosen if (failure := run_case(case)) is not None]

    assert not failures
