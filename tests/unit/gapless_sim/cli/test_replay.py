"""`gapless simulate --seed`: one run, to be understood."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gapless_sim.oracles import all_oracles
from gapless_sim.recording.observation import Oracle, Violation
from gapless_sim.search import run
from gapless_sim.world.world import World
from unit.gapless.cli.conftest import Gapless

SEED = ("simulate", "--router", "local", "--seed", "2", "--workload", "churn")


class Strict(Oracle):
    """Nobody may be told anything."""

    def handed_out(self, consumer: Any, item: Any) -> None:
        raise Violation("I99", f"{consumer.lane} was told something")


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    def oracles(world: World) -> list[Oracle]:
        return [*all_oracles(world), Strict(world)]

    monkeypatch.setattr(run, "all_oracles", oracles)
    monkeypatch.setattr("gapless_sim.cli.replay.RUNS_MAX", 12)


def test_a_run_that_keeps_the_promise_is_summed_up(gapless: Gapless) -> None:
    result = gapless(*SEED)

    assert result.stdout.startswith("seed 2, router local: ")
    assert "no promise was broken" in result.stdout
    assert "trace" in result.stdout


def test_a_run_that_does_not_is_made_smaller_and_drawn(gapless: Gapless, strict: None, tmp_path: Path) -> None:
    kept = tmp_path / "regressions"
    kept.mkdir()
    result = gapless(*SEED, "--regression", kept, status=1)

    assert "I99" in result.stdout
    assert "smaller:" in result.stdout
    assert len(list(kept.iterdir())) == 1


def test_a_program_gets_an_object(gapless: Gapless, strict: None) -> None:
    report = json.loads(gapless(*SEED, "--no-shrink", "--json", status=1).stdout)

    assert report["seed"] == 2
    assert report["violation"]["oracle"] == "I99"
    assert report["shrunk"] is None
