"""The contracts of .importlinter hold; `lint-imports` prints the same chains when they do not."""

from __future__ import annotations

import sys

import pytest
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

from architecture.project import ROOT, contracts


def test_the_contracts_hold(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", sys.path.copy())  # the linter puts the root on it

    status = lint_imports(config_filename=".importlinter", no_cache=True, no_logo=True)

    assert status == EXIT_STATUS_SUCCESS, capsys.readouterr().out


def test_there_are_three() -> None:
    """An empty file would hold too."""
    names = {section.rpartition(":")[2] for section in contracts() if ":contract:" in section}

    assert names == {"star", "sdk", "sans-io"}
