"""Small scopes: a part of them, so that the command is known to work; all of them take an hour."""

from __future__ import annotations

import pytest

from gapless.testing.sim.exhaustive import FAULTS, SCOPES, Case, Scope, Strike, cases, length, run_case

SMALLEST = Scope(1, 1, 1, 1)


def test_the_scopes_are_all_there() -> None:
    assert len(SCOPES) == 24
    assert SCOPES[0] == SMALLEST
    assert Scope(2, 2, 3, 2) in SCOPES


def test_every_fault_is_tried_at_every_position_and_place() -> None:
    first, last = length(SMALLEST)
    alone = list(cases(SMALLEST, 1))

    assert last - first > 20
    brokers, clients = 1, 2
    per_position = (len(FAULTS) - 3) * brokers + clients + (brokers + clients) + 1
    assert len(alone) == (last - first) * per_position
    assert len({case.strikes for case in alone}) == len(alone)


def test_two_faults_are_every_pair() -> None:
    count = sum(1 for _ in cases(SMALLEST, 1, stride=20))

    assert sum(1 for _ in cases(SMALLEST, 2, stride=20)) == count * (count - 1) // 2


@pytest.mark.parametrize("scope", SCOPES[:4], ids=str)
def test_without_a_fault_all_is_well(scope: Scope) -> None:
    assert run_case(Case(scope, ())) is None


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_middle_is_survived(fault: str) -> None:
    first, last = length(SMALLEST)

    assert run_case(Case(SMALLEST, (Strike((first + last) // 2, fault, 0),))) is None
