"""`gapless simulate --exhaustive`: small scopes."""

from __future__ import annotations

import json

import pytest

from gapless.testing import campaign
from gapless.testing.sim.exhaustive import Case
from gapless.testing.sim.result import Failure
from unit.gapless.cli.conftest import Gapless

FEW = ("simulate", "--exhaustive", "1", "--scopes", "1", "--stride", "25", "--processes", "1")


def test_every_case_of_a_scope_is_run(gapless: Gapless) -> None:
    report = json.loads(gapless(*FEW, "--json").stdout)
    (scope,) = report["scopes"]

    assert report["failures"] == 0
    assert scope["cases"] == 30
    assert scope["positions"] == 50


def test_what_fails_is_shown(gapless: Gapless, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_case(case: Case) -> Failure | None:
        return Failure("I3", "lost", 1) if case.strikes[0].fault == "kill" else None

    monkeypatch.setattr(campaign, "run_case", run_case)
    result = gapless(*FEW, status=1)

    assert "kill at step" in result.output
    assert "2 failed" in result.stdout
