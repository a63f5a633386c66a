"""A few kills and pauses of what keeps its position with its effects; `python -m bench tokens` and `transforms` do 200.

19.4: every row once, in PostgreSQL and SQLite, whoever is killed, and wherever a rival was paused that wakes; and so
the output log of a transform, with its PHB and its SHB as two nodes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from documents import ROOT
from integration.postgres import programs

KILLS = 8
PAUSES = 2

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="it kills with SIGKILL"),
    pytest.mark.timeout(240),
]


def figures_of(bench: str, *options: str) -> Any:
    """What a benchmark prints. Fails if something was not as it has to be."""
    command = [sys.executable, "-m", "bench", bench, *options, "--rounds=0", "--json"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=230, check=False, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_every_row_is_there_once_whoever_is_killed_and_whoever_wakes() -> None:
    if programs() is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")

    said = figures_of("tokens", f"--kills={KILLS}", f"--pauses={PAUSES}")

    for victim in ("broker", "PostgreSQL", "server of PostgreSQL", "SQLite"):
        assert said["kills"][victim] == KILLS // 4
    assert [sum(map(len, points.values())) for points in said["woken"].values()] == [PAUSES] * 2
    assert [proof["consumed"] for proof in said["proofs"]] == [said["published"]] * 2
    assert said["published"] > 0


def test_the_output_of_a_transform_is_there_once_whoever_is_killed_and_whoever_wakes() -> None:
    said = figures_of("transforms", "--kills=3", "--pauses=1")

    for victim in ("application", "phb", "shb"):
        assert said["kills"][victim] == 1
    assert said["endings"] == {"application": {"PublisherFencedError": 1}}
    assert [proof["consumed"] for proof in said["proofs"]] == [proof["expected"] for proof in said["proofs"]]
    assert said["bars"]["token_covers_the_input"]["holds"]
    assert said["published"] > 0
