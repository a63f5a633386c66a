"""What the command takes, what it prints, and that `gapless` finds it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gapless_report
import pytest
from archives import P
from gapless_report.figures import figures
from typer.testing import CliRunner

from gapless.cli import extending
from gapless.core.stream.ticks import SECOND
from gapless.errors import ConfigurationError


class Called(dict[str, Any]):
    """Stands for the report: remembers what it was asked for, and answers."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def __call__(self, *places: Any, **names: Any) -> Any:
        self.update(names, places=places)
        return self.answer


def invoke(*arguments: object, status: int = 0) -> Any:
    result = CliRunner().invoke(gapless_report.app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == status, result.output
    return result


def test_gapless_finds_the_command() -> None:
    assert "report" in extending.names()
    assert "--plot" in [option for each in extending.command("report").params for option in each.opts]


def test_the_command_prints_a_line_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = figures(
        {1000: 5}, 1000 * SECOND, 1100 * SECOND, [(1010 * SECOND, 1020 * SECOND)],
        source="broker", client_id="desk", subscription="late", pubend=P, lag_events=5, lag_seconds=3.0, complete=False,
    )  # fmt: skip
    called = Called([found])
    monkeypatch.setattr(gapless_report, "figures_of", called)
    text = invoke(tmp_path, "--subscription", "late").stdout

    for part in ("desk/late", P, "0.1", "at least 5", "3 s", "10 s", "98.9%", "the first 200,000 events were counted"):
        assert part in text
    assert called["places"] == ("gapless://127.0.0.1:7400", [tmp_path])
    [row] = json.loads(invoke(tmp_path, "--no-broker", "--json").stdout)
    assert (row["events"], row["lag_seconds"], row["complete"]) == (5, 3.0, False)
    assert called["places"] == (None, [tmp_path])
    wrong = figures({}, 0, 0, source="broker", client_id="", subscription="s", pubend="", error="'s' was removed")
    monkeypatch.setattr(gapless_report, "figures_of", Called([found, wrong]))
    ended = invoke(tmp_path, status=1)
    assert "desk/late" in ended.stdout, "the others are reported on"
    assert ended.stderr == "gapless: 's' was removed\n"
    with pytest.raises(ConfigurationError, match="nothing to look at"):
        invoke("--no-broker")
    with pytest.raises(ConfigurationError, match=r"ends with \.svg"):
        invoke("--plot", "x.txt")
