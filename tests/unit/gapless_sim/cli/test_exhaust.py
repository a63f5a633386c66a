"""`gapless simulate --exhaustive`: small scopes."""

from __future__ import annotations

import json

import pytest

from gapless_sim.cli import exhaust
from gapless_sim.search import campaign
from gapless_sim.search.exhaustive import Counts, Outcome, Task
from gapless_sim.search.result import Failure
from unit.gapless.cli.conftest import Gapless

COMMAND = ("simulate", "--exhaustive", "1")
FEW = (*COMMAND, "--scopes", "1", "--stride", "25", "--processes", "1")


def test_every_case_of_a_scope_is_counted_on_one_process_and_on_several(gapless: Gapless) -> None:
    alone = json.loads(gapless(*FEW, "--json").stdout)
    together = json.loads(gapless(*FEW[:-1], "2", "--json").stdout)
    (scope,) = alone["scopes"]

    assert alone["failures"] == 0
    assert scope["positions"] > 50
    assert scope["cases"] == 1 + 3 * 20, "without a fault, and at three positions"
    assert scope["cases"] == scope["run"] + scope["equal"] + scope["nothing"]
    assert scope["run"] > 10
    for report in (alone, together):
        del report["elapsed_s"], report["scopes"][0]["cpu_s"]
    assert alone == together


def test_the_table_says_what_was_not_run_and_why(gapless: Gapless) -> None:
    result = gapless(*FEW)

    assert "61 cases with up to 1 of 18 kinds of faults" in result.stdout
    assert "equal one of these" in result.stdout
    assert "0 failed" in result.stdout


def test_the_parts_are_the_whole(gapless: Gapless) -> None:
    whole, one, two = (
        json.loads(gapless(*COMMAND, "--scopes", "1", "--stride", "20", "--processes", "1", *part, "--json").stdout)
        for part in ((), ("--part", "1/2"), ("--part", "2/2"))
    )

    for name in ("run", "equal", "nothing", "cases"):
        assert whole["scopes"][0][name] == one["scopes"][0][name] + two["scopes"][0][name]
    assert one["scopes"][0]["run"] > 0
    assert two["scopes"][0]["run"] > 0


def fail_on_pause(task: Task, stride: int = 1) -> Outcome:
    failing = [case for case in task.cases if any(injection.fault == "pause" for injection in case.injections)]
    return Outcome(task, Counts(len(task.cases)), [(case, Failure("I3", "lost", 1)) for case in failing])


def test_what_fails_is_shown_with_the_command_that_shows_it(gapless: Gapless, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "perform", fail_on_pause)
    result = gapless(*FEW, status=1)

    assert "gapless simulate --exhaustive 1 --scope 1/1/1/1 --strike 25:pause:0" in result.output
    assert "2 failed" in result.stdout


def test_what_fails_is_in_the_report(gapless: Gapless, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "perform", fail_on_pause)
    report = json.loads(gapless(*FEW, "--json", status=1).stdout)

    assert report["failures"] == len(report["failed"]) == 2
    assert report["failed"][0]["oracle"] == "I3"
    assert report["failed"][0]["replay"].endswith(":pause:0")


def test_a_case_is_shown(gapless: Gapless) -> None:
    result = gapless(*COMMAND, "--scope", "1/1/1/1", "--strike", "25:crash:0", "--strike", "30:client-crash:1")

    assert "batches were not synced" in result.stdout
    assert "no promise was broken" in result.output


def test_the_case_without_a_fault_is_shown(gapless: Gapless) -> None:
    assert "no promise was broken" in gapless(*COMMAND, "--scope", "1/1/1/1", "--strike", "none").output


def test_that_the_case_without_a_fault_fails_is_shown(gapless: Gapless, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(task: Task, stride: int = 1) -> Outcome:
        return Outcome(
            task, Counts(1), [(case, Failure("I3", "lost", 1)) for case in task.cases if not case.injections]
        )

    monkeypatch.setattr(campaign, "perform", fail)

    assert "--scope 1/1/1/1 --strike none" in gapless(*FEW, status=1).output


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("--scope", "3/1/1/1"), "there is no '3/1/1/1'"),
        (("--part", "3/2"), "'3/2' is not K/N"),
        (("--part", "x"), "'x' is not K/N"),
        (("--strike", "25:crash:0"), "which --scope"),
        (("--scope", "1/1/1/1", "--strike", "25:flood:0"), "faults are crash"),
    ],
)
def test_what_there_is_not_is_refused(gapless: Gapless, wrong: tuple[str, ...], said: str) -> None:
    assert said in " ".join(gapless(*COMMAND, *wrong, status=2).output.split())


def test_scopes_with_ibs_are_listed_for_the_router_that_works_by_cells() -> None:
    names = [str(scope) for scope in exhaust.scopes_of(2, (), ("knowledge",))]

    assert names == ["1-1-1/1/1", "1-2-1/1/1"]
    assert [str(scope) for scope in exhaust.scopes_of(1, ())] == ["1/1/1/1"]
    assert [str(scope) for scope in exhaust.scopes_of(1, (), ("knowledge", "hostile"))] == ["1/1/1/1"]
    assert str(exhaust.scopes_of(1, ("1-2-1/2/2",))[0]) == "1-2-1/2/2"
