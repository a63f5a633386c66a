"""The smallest scope, whole: every fault at every position. `gapless simulate --exhaustive` does all of them."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from gapless_sim.faults.fault_injection import InjectionContext, Mark
from gapless_sim.recording.trace import Trace
from gapless_sim.search.exhaustive import FAULTS, SCOPES, Case, Injection, Outcome, follow, perform, run_case, tasks
from gapless_sim.search.scopes import CELL_SCOPES, Scope
from sim.switches.catalogue import switch_named

OF_STRIKES = {"disk", "pause", "cut", "crash", "kill"}
"""What a fault says of itself: when, and in its own words."""


def outcomes(scope: Scope, each: int = 1) -> Iterator[Outcome]:
    return (perform(task) for task in tasks(scope, 1)[1][::each])


@pytest.mark.timeout(300)
def test_one_fault_at_every_position_of_the_smallest_scope() -> None:
    assert [outcome.failures for outcome in outcomes(SCOPES[0]) if outcome.failures] == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scope", SCOPES[1:4], ids=str)
def test_one_fault_here_and_there_in_larger_ones(scope: Scope) -> None:
    assert [outcome.failures for outcome in outcomes(scope, each=12) if outcome.failures] == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scope", CELL_SCOPES[:2], ids=str)
def test_one_fault_here_and_there_where_ibs_are_between(scope: Scope) -> None:
    assert [outcome.failures for outcome in outcomes(scope, each=150) if outcome.failures] == []


@pytest.mark.timeout(300)
def test_a_second_fault_at_every_position_behind_some_first() -> None:
    deeper = tasks(SCOPES[0], 2)[1][::150]
    done = [perform(task) for task in deeper]

    assert sum(outcome.counts.run for outcome in done) > 100 * len(deeper)
    assert [outcome.failures for outcome in done if outcome.failures] == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["acknowledged_before_sync", "told_before_sync"])
def test_what_is_wrong_is_found_with_one_fault_in_the_smallest_scope(name: str) -> None:
    switch = switch_named(name)
    with switch.applied():
        failures = (failure for outcome in outcomes(SCOPES[0]) for _, failure in outcome.failures)

        assert any(failure.oracle in switch.oracle for failure in failures)


# ------------------------------------------------------------------------- what is not run because it is equal


class Steps(Trace):
    """Every step, and what is noted but for what the faults say of themselves."""

    __slots__ = ("all",)

    def __init__(self) -> None:
        super().__init__()
        self.all: list[tuple[object, ...]] = []

    def step(self, at: int, lane: str, kind: str, digest: int = 0) -> None:
        super().step(at, lane, kind, digest)
        self.all.append((at, lane, kind, digest))

    def note(self, at: int, lane: str, kind: str, text: str, peer: str = "") -> None:
        super().note(at, lane, kind, text, peer)
        if kind not in OF_STRIKES:
            self.all.append((at, lane, kind, text, peer))


def steps_of(case: Case) -> list[tuple[object, ...]]:
    trace = Steps()
    run_case(case, trace)
    return trace.all


def by_mark(case: Case) -> dict[Mark, list[Injection]]:
    """All that could go wrong from the last injection on, together what is said to lead to the same run."""
    found: dict[Mark, list[Injection]] = {}

    def look(context: InjectionContext) -> None:
        for fault in FAULTS.values():
            for number in range(fault.count(case.scope)):
                injection = Injection(context.position, fault.name, number)
                found.setdefault(fault.mark(context, number), []).append(injection)

    run_case(case, look=look)
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(12))
def test_injections_with_the_same_mark_lead_to_the_same_run(seed: int) -> None:
    """A sample of them, behind no fault and behind one."""
    random = Random(seed)
    case = Case(random.choice(SCOPES))
    if seed % 2:
        case = case.also(random.choice(follow(case).injections))
    groups = by_mark(case)
    nothing = groups.pop(None)

    assert steps_of(case.also(random.choice(nothing))) == steps_of(case)
    for injections in random.sample([injections for injections in groups.values() if len(injections) > 1], 4):
        one, other = random.sample(injections, 2)
        assert steps_of(case.also(one)) == steps_of(case.also(other)), f"{case}: {one} and {other}"
