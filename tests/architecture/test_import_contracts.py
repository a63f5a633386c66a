"""The contracts of .importlinter hold; `lint-imports` prints the same chains when they do not."""

from __future__ import annotations

import subprocess
import sys

from architecture.project import ROOT, contracts

LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"


def test_the_contracts_hold() -> None:
    """In a process of its own: the linter sets logging up anew, which would silence every other test's loggers."""
    command = [sys.executable, "-c", LINT, "--config", ".importlinter", "--no-cache"]
    linted = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert linted.returncode == 0, linted.stdout + linted.stderr


def test_they_are_all_there() -> None:
    """An empty file would hold too."""
    names = {section.rpartition(":")[2] for section in contracts() if ":contract:" in section}

    assert names == {"star", "sdk", "core", "client-core", "phb", "shb", "routers", "common-of-routers", "sans-io"}
