"""The interest of subscriptions through two IBs, of a few; `python -m bench network interest` takes 100,000."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from documents import ROOT


@pytest.mark.timeout(120)
def test_a_restarted_ib_has_all_interest_again() -> None:
    command = [sys.executable, "-m", "bench", "network", "--json", "interest", "--count=1000"]

    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False, env=env)

    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout)
    for what in ("first", "low", "high", "low_after_a_minute"):
        assert said[f"{what}_s"] > 0
        assert {f"{what}_longest_turn_{node}_ms" for node in ("phb", "high", "low", "shb")} <= said.keys()
