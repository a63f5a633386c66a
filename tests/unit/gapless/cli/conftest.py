"""The command line, run in this process against a broker in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from typer.testing import CliRunner, Result

from gapless.cli.app import app

Gapless: TypeAlias = Callable[..., Result]


@pytest.fixture
def gapless() -> Gapless:
    """Runs `gapless ARGUMENTS…` and returns what came of it: `.output`, `.stdout`, `.stderr`, `.exit_code`."""

    def run(*arguments: str | Path, status: int = 0) -> Result:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert result.exit_code == status, result.output
        return result

    return run


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A broker that each command starts anew on the same volume."""
    return f"embedded:{tmp_path / 'volume'}"


@pytest.fixture
def write_events(tmp_path: Path) -> Callable[..., Path]:
    """Writes a file with a line of JSON for each event; text is written as it is."""

    def write(*events: Any) -> Path:
        path = tmp_path / "events.jsonl"
        lines = [event if isinstance(event, str) else json.dumps(event) for event in events]
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        return path

    return write
