"""The plugins of docs/howto/write-a-routing-plugin.md, and the tests of that page, as its reader runs them."""

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


@pytest.mark.parametrize(
    ("tests", "skipped"),
    [
        ("test_counting_router.py", ("has a link", "two ways to anybody")),  # it is for one node, which has no links
        ("test_tree_router.py", ("two ways to anybody",)),
    ],
)
def test_the_page(tmp_path: Path, tests: str, skipped: tuple[str, ...]) -> None:
    """Each block is saved as its first line says. One part of the suite needs a real process."""
    save_programs(PAGE, tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", str(tmp_path / tests)]
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path}

    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    reasons = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    assert reasons
    assert [line for line in reasons if not line.endswith(skipped)] == []


def test_the_page_names_every_clause() -> None:
    text = PAGE.read_text("utf-8")

    clauses = [clause.value for clause in Clause if clause.value.startswith("C")]
    assert [clause for clause in clauses if f"| {clause} |" not in text] == []
