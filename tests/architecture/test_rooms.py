"""The rooms of a role: a folder or a module directly in its core. Each stands on those below it, and on few of them.

The contracts of .importlinter say which room stands where. Here is counted what they do not say: how many arrows there
are between rooms, how many rooms stand on each other, and that none is in a knot, not even by types alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import TopologicalSorter
from typing import TypeAlias

import pytest

from architecture.project import Source, package_sources, parse

Arrows: TypeAlias = "Mapping[str, set[str]]"
"""On which other rooms each room stands."""

MOST = {"gapless_shb.core": (60, 10), "gapless_phb.core": (50, 7)}
"""The package, and at most how many arrows and levels its rooms have."""


def rooms_in(node: ast.AST, package: str) -> Iterator[str]:
    """The rooms of a package that an import statement names, one that is for types alone, too."""
    if isinstance(node, ast.ImportFrom) and node.module is not None:
        for alias in node.names:
            yield from room_of(f"{node.module}.{alias.name}", package)
    elif isinstance(node, ast.Import):
        for alias in node.names:
            yield from room_of(alias.name, package)


def room_of(module: str, package: str) -> Iterator[str]:
    """The room that a module is in."""
    if module.startswith(f"{package}."):
        yield module.removeprefix(f"{package}.").split(".")[0]


def arrows_of(package: str, sources: tuple[Source, ...]) -> Arrows:
    """The arrows between the rooms of a package."""
    arrows: dict[str, set[str]] = {}
    for source in sources:
        for room in room_of(source.module, package):
            named = (found for node in ast.walk(source.tree) for found in rooms_in(node, package))
            arrows.setdefault(room, set()).update(found for found in named if found != room)
    return arrows


def levels_of(arrows: Arrows) -> dict[str, int]:
    """The level of each room: 1 for those that stand on no other. Raises CycleError if there is a knot."""
    levels: dict[str, int] = {}
    for room in TopologicalSorter(arrows).static_order():
        levels[room] = 1 + max((levels[below] for below in arrows[room]), default=0)
    return levels


@cache
def arrows_in(package: str) -> Arrows:
    """The arrows of a package of this project."""
    return arrows_of(package, package_sources())


@pytest.mark.parametrize("package", MOST)
def test_rooms_stand_on_few_others_and_in_no_knot(package: str) -> None:
    arrows = arrows_in(package)
    most_arrows, most_levels = MOST[package]

    assert sum(map(len, arrows.values())) <= most_arrows
    assert max(levels_of(arrows).values()) <= most_levels


def test_a_breach_would_be_seen() -> None:
    text = "from p.low.a import B\nfrom p import top\nimport p.mid.c\nfrom elsewhere import d\n"
    arrows = arrows_of(
        "p", (parse(text, module="p.mid.x"), parse("", module="p.low"), parse("import p.low", module="p.top"))
    )

    assert arrows == {"mid": {"low", "top"}, "low": set(), "top": {"low"}}
    assert levels_of(arrows) == {"low": 1, "top": 2, "mid": 3}
