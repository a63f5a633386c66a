"""The loop of kill -9, short; `python bench/kill_loop.py` runs it with 200 kills and more."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from documents import ROOT

KILLS = 5


@pytest.mark.skipif(sys.platform == "win32", reason="it kills with SIGKILL")
@pytest.mark.timeout(150)
def test_kills_lose_double_and_reorder_nothing() -> None:
    command = [sys.executable, str(ROOT / "bench" / "kill_loop.py"), "--kills", str(KILLS), "--json"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=140, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout)
    assert said["right"] is True
    assert sum(said["kills"].values()) == KILLS
    assert said["kills"]["broker"] >= 1
    assert all(verdict["consumed"] == verdict["expected"] for verdict in said["subscriptions"])
    assert said["published"] > 0
