"""The plugin of docs/howto/write-a-routing-plugin.md, and the test that page ends with, as its reader runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from documents import ROOT, save_programs
from gapless_testing.routing.breaches import Clause

PAGE = ROOT / "docs" / "howto" / "write-a-routing-plugin.md"

pytestmark = pytest.mark.timeout(300)


def test_the_page(tmp_path: Path) -> None:
    """Each block is saved as its first line says; the last one is run. One part of it needs a real process.

    A router for one node has no links, and what is skipped is about links.
    """
    save_programs(PAGE, tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    reasons = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    assert reasons
    assert [line for line in reasons if not line.endswith(("has a link", "two ways to anybody"))] == []


def test_the_page_names_every_clause() -> None:
    text = PAGE.read_text("utf-8")

    clauses = [clause.value for clause in Clause if clause.value.startswith("C")]
    assert [clause for clause in clauses if f"| {clause} |" not in text] == []
