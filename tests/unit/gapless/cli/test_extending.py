"""Commands that connectors add: found by their entry points, and no trouble to the others when they are broken."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

import pytest
import typer

from gapless.cli import extending
from unit.gapless.cli.conftest import Gapless


def added(monkeypatch: pytest.MonkeyPatch, **modules: Any) -> None:
    """Installs commands: each a module with this `app`; None: there is no such module."""
    points = []
    for name, app in modules.items():
        module = ModuleType(f"test_extending_{name}")
        module.app = app  # type: ignore[attr-defined]
        if app is not None:
            monkeypatch.setitem(sys.modules, module.__name__, module)
        points.append(EntryPoint(name, module.__name__, extending.GROUP))

    def entry_points(*, group: str, name: str | None = None) -> list[EntryPoint]:
        assert group == "gapless.cli"
        return [point for point in points if name in {None, point.name}]

    monkeypatch.setattr(extending, "entry_points", entry_points)


def tower() -> typer.Typer:
    app = typer.Typer(help="Towers, of any height.", add_completion=False)

    @app.command()
    def build(height: int) -> None:
        typer.echo(f"{height} m")

    @app.command()
    def fell() -> None:
        raise OSError(5, "it stands too well")

    return app


def test_a_command_is_added(gapless: Gapless, monkeypatch: pytest.MonkeyPatch) -> None:
    added(monkeypatch, tower=tower())

    assert "Towers, of any height." in gapless("--help").stdout
    assert gapless("tower", "build", "30").stdout == "30 m\n"
    assert "build" in gapless("tower", "--help").stdout
    assert gapless("tower", "fell", status=1).stderr == "gapless: it stands too well\n"
    gapless("tower", "paint", status=2)


def test_one_that_cannot_be_loaded_says_so_and_the_others_work(
    gapless: Gapless, monkeypatch: pytest.MonkeyPatch
) -> None:
    added(monkeypatch, missing=None, wrong="no typer", tower=tower())

    listed = gapless("--help").stdout
    assert "missing" in listed
    assert "wrong" in listed
    assert "cannot be loaded" in gapless("missing", "whatever", "--json", status=2).stderr
    assert "is no module with a typer.Typer called app" in gapless("wrong", status=2).stderr
    assert gapless("tower", "build", "2").stdout == "2 m\n"


def test_two_of_one_name_are_told_apart_from_none(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint("x", value, extending.GROUP) for value in ("one", "other")]
    monkeypatch.setattr(extending, "entry_points", lambda **_: points)

    assert extending.names() == ["x"]
    assert "2 distributions add a command 'x' (one, other)" in extending.command("x").help


def test_our_own_commands_cannot_be_replaced(gapless: Gapless, monkeypatch: pytest.MonkeyPatch) -> None:
    added(monkeypatch, selector=tower())

    assert gapless("--help").stdout.count("Towers") == 0
    assert "Selectors" not in gapless("selector", "--help").stdout
    assert "EXPRESSION" in gapless("selector", "--help").stdout


def test_what_is_no_command_is_none(gapless: Gapless, monkeypatch: pytest.MonkeyPatch) -> None:
    added(monkeypatch, tower=tower())

    gapless("towers", status=2)
