"""docs/topics/architecture.md and docs/protocol name what is there, and its program prints what the page says."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from architecture.project import ROOT, package_sources
from documents import code_blocks

PAGE = ROOT / "docs" / "topics" / "architecture.md"
PAGES = [PAGE, *sorted((ROOT / "docs" / "protocol").glob("*.md"))]

_NAME = re.compile(r"`(gapless(?:_\w+)?(?:\.\w+)*)`")


@cache
def known() -> frozenset[str]:
    """Every module, and every class, function and constant in it, by its full name."""
    return frozenset(name for source in package_sources() for name in names(source.module, source.tree))


def names(module: str, tree: ast.Module) -> Iterator[str]:
    """A module, and what it defines."""
    yield module
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{module}.{node.name}"
        for target in node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]:
            if isinstance(target, ast.Name):
                yield f"{module}.{target.id}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_is_there(page: Path) -> None:
    assert sorted(set(_NAME.findall(page.read_text("utf-8"))) - known()) == []


def test_a_made_up_name_is_not_there() -> None:
    assert {"gapless.spi", "gapless.spi.LogVolume"} <= known()
    assert not known() & {"gapless.no_such_module", "gapless.spi.NoSuchClass"}


def test_the_page_names_much() -> None:
    assert len(_NAME.findall(PAGE.read_text("utf-8"))) > 60


def test_a_core_is_driven_as_the_page_says(tmp_path: Path) -> None:
    (program,) = code_blocks(PAGE, "python")
    (printed,) = (block.code for block in code_blocks(PAGE, "text") if block.line > program.line)

    done = subprocess.run(
        [sys.executable, "-c", program.code], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
    )

    assert done.stderr == ""
    assert done.stdout == printed
