"""The tests of docs/howto/simulate-your-plugin.md, as their reader runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from documents import ROOT, code_blocks

PAGE = ROOT / "docs" / "howto" / "simulate-your-plugin.md"

pytestmark = pytest.mark.timeout(300)


def test_the_page(tmp_path: Path) -> None:
    for block in code_blocks(PAGE, "python"):
        assert block.file_name is not None
        (tmp_path / block.file_name).write_text(block.code, "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 passed" in done.stdout
