"""The token in the application's database under kills and pauses, of a few; `python -m bench tokens` does 200.

19.4: every row once, in PostgreSQL and SQLite, whoever is killed, and wherever a twin was paused that wakes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from documents import ROOT
from integration.postgres import programs

KILLS = 8
PAUSES = 2


@pytest.mark.skipif(sys.platform == "win32", reason="it kills with SIGKILL")
@pytest.mark.timeout(240)
def test_every_row_is_there_once_whoever_is_killed_and_whoever_wakes() -> None:
    if programs() is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    command = [
        sys.executable,
        "-m",
        "bench",
        "tokens",
        f"--kills={KILLS}",
        f"--pauses={PAUSES}",
        "--rounds=0",
        "--json",
    ]

    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=230, check=False, env=env)

    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout)
    assert said["kills"] == dict.fromkeys(("broker", "PostgreSQL", "server of PostgreSQL", "SQLite"), KILLS // 4)
    assert [len(points) for points in said["woken"].values()] == [PAUSES] * 2
    assert [database["consumed"] for database in said["databases"]] == [said["published"]] * 2
    assert said["published"] > 0
