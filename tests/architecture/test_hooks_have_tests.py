"""Each hook has a test named after it and a heading with its very signature in the plugin reference."""

from __future__ import annotations

import inspect
from functools import cache

import pluggy
import pytest

from architecture.project import ROOT, functions, sources
from gapless import hookspecs

PLUGIN_REFERENCE = ROOT / "docs" / "reference" / "plugins.md"


def hooks() -> list[str]:
    """The names of all hooks that are specified."""
    manager = pluggy.PluginManager("gapless")
    manager.add_hookspecs(hookspecs)
    return sorted(name for name in vars(manager.hook) if not name.startswith("_"))


@cache
def names_of_tests() -> frozenset[str]:
    """The names of all functions of tests."""
    return frozenset(function.name for source in sources(ROOT / "tests") for function in functions(source.tree))


def test_there_are_hooks() -> None:
    assert hooks() != []


@pytest.mark.parametrize("hook", hooks())
def test_the_hook_has_a_test(hook: str) -> None:
    assert any(f"{name}_".startswith(f"test_hook_{hook}_") for name in names_of_tests())


@pytest.mark.parametrize("hook", hooks())
def test_the_hook_is_documented(hook: str) -> None:
    arguments = ", ".join(inspect.signature(getattr(hookspecs, hook)).parameters)

    assert f"### `{hook}({arguments})`" in PLUGIN_REFERENCE.read_text("utf-8").splitlines()
