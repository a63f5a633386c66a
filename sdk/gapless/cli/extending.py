"""Commands that a connector adds: each entry point of the group `gapless.cli` is a module with a Typer called `app`."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

import typer

from gapless.errors import PluginError

GROUP: Final = "gapless.cli"


def names() -> list[str]:
    """The commands that are installed beside our own, sorted, none of them imported."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def command(name: str) -> Any:
    """The command of that name. One that cannot be loaded says so when it is called: the others go on working."""
    try:
        found = typer.main.get_command(_load(name))
    except PluginError as error:
        found = typer.main.get_command(_broken(error))
    found.name = name
    return found


def _load(name: str) -> typer.Typer:
    """The Typer of a command. Raises PluginError."""
    points: list[EntryPoint] = list(entry_points(group=GROUP, name=name))
    if len({point.value for point in points}) != 1:
        claims = ", ".join(sorted(point.value for point in points))
        raise PluginError(f"{len(points)} distributions add a command {name!r} ({claims}): uninstall all but one")
    try:
        app = getattr(points[0].load(), "app", None)
    except (ImportError, AttributeError) as error:
        raise PluginError(f"the command {name!r} ({points[0].value}) cannot be loaded: {error}") from error
    if not isinstance(app, typer.Typer):
        raise PluginError(f"the command {name!r} ({points[0].value}) is no module with a typer.Typer called app")
    return app


def _broken(error: PluginError) -> typer.Typer:
    """A command that does nothing but say what is wrong with it, whatever it is given."""
    app = typer.Typer(add_completion=False)

    @app.command(help=str(error), context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
    def fail() -> None:
        raise error

    return app
