"""What networks show, in a size that shows no more than that it runs and that no promise breaks.

Those of `release` are real processes: an SHB is lost and retired, another one is moved to other IBs, and a gap that
anybody is told of ends the command with an error. The others are in virtual time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from documents import ROOT

WORKS = {
    "consolidation": {"ibs_remember_questions_to_phb", "reads_restart_of_one", "reads_restart_of_both"},
    "release": {"retired_ratio_to_steady", "moved_ratio_to_steady", "at_the_end_ratio_to_steady", "databases_wrong"},
    "relay": {"python_pass_us_per_event"},
    "routers": {"sequences_that_differ", "events_compared"},
    "race": {"events_lost", "events_twice", "events_lost_without_stamps"},
}
"""Each work, and the figures of it whose bars hold in any size."""


@pytest.mark.parametrize(
    "work", [pytest.param(work, marks=pytest.mark.long) if work == "release" else work for work in WORKS]
)
@pytest.mark.timeout(180)
def test_the_work_runs_and_these_bars_hold(work: str) -> None:
    command = [sys.executable, "-m", "bench", "network", "--json", work, "--quick"]

    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False, cwd=ROOT, env=env)

    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["figures"].keys() >= WORKS[work]
    assert {name: bar for name, bar in said["bars"].items() if name in WORKS[work] and not bar["holds"]} == {}
