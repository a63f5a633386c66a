"""Small scopes: which cases there are, which of them are run, and what comes of them."""

from __future__ import annotations

import pytest

from gapless_sim.faults.fault_injection import InjectionContext
from gapless_sim.recording.trace import Trace
from gapless_sim.search import exhaustive
from gapless_sim.search.exhaustive import (
    FAULTS,
    SCOPES,
    Case,
    Injection,
    follow,
    perform,
    run_case,
    tasks,
)
from gapless_sim.search.result import Failure

SMALLEST = SCOPES[0]


OF_TREES = {"volume-gone", "overtaken", "link-dead", "link-down"}


def test_every_fault_is_tried_at_every_position_and_place() -> None:
    followed = follow(Case(SMALLEST))
    per_position = sum(fault.count(SMALLEST) for fault in FAULTS.values())

    assert followed.positions > 50
    assert len(followed.injections) + followed.equal + followed.nothing == followed.positions * per_position
    assert len(set(followed.injections)) == len(followed.injections)
    assert {injection.fault for injection in followed.injections} == FAULTS.keys() - {
        "crash-but-last",
        "lost",
        *OF_TREES,
    }
    assert {injection.position for injection in followed.injections if injection.fault == "client-crash"} >= set(
        range(12, 58)
    )


def test_only_each_so_manieth_position_is_looked_at() -> None:
    positions = {injection.position for injection in follow(Case(SMALLEST), stride=9).injections}

    assert positions == set(range(0, 58, 9))


def test_looking_changes_nothing() -> None:
    plain, watched = Trace(), Trace()
    case = Case(SCOPES[3], (Injection(80, "crash", 0),))
    looks: list[InjectionContext] = []
    run_case(case, plain)
    run_case(case, watched, looks.append)

    assert plain.digest() == watched.digest()
    assert plain.steps == watched.steps
    assert len(looks) > 100


def test_a_injection_comes_at_its_position() -> None:
    at: list[int] = []
    run_case(Case(SMALLEST, (Injection(20, "pause", 0),)), look=lambda context: at.append(context.position))

    assert at[0] == 20
    assert at == list(range(20, 20 + len(at)))


def test_one_fault_is_every_injection_once() -> None:
    followed, all_tasks = tasks(SMALLEST, 1)
    cases = [case for task in all_tasks for case in task.cases]

    assert [case.injections for case in cases] == [(), *((injection,) for injection in followed.injections)]
    assert sum(task.weight for task in all_tasks) == len(cases)
    assert not any(task.deeper for task in all_tasks)


def test_the_second_fault_is_looked_for_behind_the_first() -> None:
    last = tasks(SMALLEST, 2)[1][-1]
    outcome = perform(last)

    assert last.deeper
    assert outcome.counts.run == 1 + len(follow(last.cases[0]).injections)
    assert outcome.counts.cases > outcome.counts.run > 1
    assert outcome.failures == []


def test_what_fails_is_kept_with_its_case(monkeypatch: pytest.MonkeyPatch) -> None:
    failure = Failure("I3", "lost", 1)
    task = tasks(SMALLEST, 1)[1][0]
    monkeypatch.setattr(exhaustive, "run_case", lambda case: failure if case is task.cases[3] else None)

    outcome = perform(task)

    assert outcome.failures == [(task.cases[3], failure)]
    assert outcome.counts.run == len(task.cases)


def test_a_second_fault_is_not_looked_for_where_the_first_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    failure = Failure("I3", "lost", 1)
    task = tasks(SMALLEST, 2)[1][1]
    monkeypatch.setattr(exhaustive, "run_case", lambda _case, **_: failure)

    assert perform(task).failures == [(task.cases[0], failure)]
