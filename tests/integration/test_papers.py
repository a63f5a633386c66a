"""The papers' experiments run, in a size that only shows that: `python -m bench papers NAME --quick`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from documents import ROOT

EXPERIMENTS = {
    "catchup": {"catchup_median_s", "ratio_catchup_to_should", "ratio_delivered_to_time"},
}
"""Each experiment, and some of the figures that it must have."""


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.timeout(120)
def test_an_experiment_runs_and_has_its_figures(name: str) -> None:
    command = [sys.executable, "-m", "bench", "papers", name, "--quick", "--json"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False, cwd=ROOT)

    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)["experiments"]
    assert list(said) == [name]
    assert said[name]["figures"].keys() >= EXPERIMENTS[name]
    assert said[name]["bars"].keys() <= said[name]["figures"].keys()


def test_every_experiment_is_tried() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "papers", "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
    )

    said = " ".join(done.stdout.split())
    assert [name for name in EXPERIMENTS if f"{name}: " not in said] == []
    assert said.count("; ") >= len(EXPERIMENTS)
