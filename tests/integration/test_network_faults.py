"""A network of eight real nodes under faults, short; `python -m bench network faults` strikes every node and link."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from documents import ROOT


@pytest.mark.skipif(sys.platform == "win32", reason="it kills with SIGKILL")
@pytest.mark.timeout(150)
def test_nodes_killed_and_links_cut_leave_every_database_exact() -> None:
    """PHB – {IB, IB} – {IB, IB} – 3 SHBs with one link dead throughout; publishers at the PHB and at an SHB."""
    command = [sys.executable, "-m", "bench", "network", "--json", "faults", "--quick", "--seconds=0.5", "--rate=150"]

    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=140, check=False, env=env)

    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout)
    struck = [trouble["what"] for trouble in said["troubles"]]
    assert [what.split()[0] for what in struck] == ["nothing", "kill", "cut", "kill", "kill"]
    assert said["databases"] == 12
    assert said["wrong"] == []
    assert said["consumed"] == said["expected"] > said["published"] > 300
