"""The authorizer of docs/howto/write-an-acl-plugin.md: its tests as the reader runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from documents import ROOT, install_programs

PAGE = ROOT / "docs" / "howto" / "write-an-acl-plugin.md"

pytestmark = pytest.mark.timeout(300)


def test_the_page(tmp_path: Path) -> None:
    install_programs(PAGE, tmp_path, "teams")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}

    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "9 passed" in done.stdout, done.stdout
    assert "skipped" not in done.stdout
