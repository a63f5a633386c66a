"""What the architecture tests look at: the project's folders, its packages and their syntax trees."""

from __future__ import annotations

import ast
import configparser
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]

Definition: TypeAlias = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
"""What may have a docstring."""

FOLDERS = (
    "sdk",
    "phb",
    "shb",
    "plugins/storage",
    "plugins/transport",
    "plugins/routing",
    "plugins/log",
    "spark_connector",
    "testing",
    "examples/flights",
)
"""The folders that hold import packages."""


@dataclass(frozen=True)
class Source:
    """One Python file of the project."""

    path: Path
    module: str
    text: str
    tree: ast.Module

    def at(self, node: ast.AST) -> str:
        """Where a node stands, as an editor opens it."""
        return f"{self.path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"


@cache
def pyproject() -> dict[str, Any]:
    """pyproject.toml, parsed."""
    parsed: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return parsed


@cache
def contracts() -> dict[str, dict[str, list[str]]]:
    """.importlinter, parsed: each section's options as lists of lines."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / ".importlinter", "utf-8")
    return {name: {key: value.split() for key, value in parser[name].items()} for name in parser.sections()}


@cache
def package_paths() -> tuple[Path, ...]:
    """The directory of every import package that lies in one of the folders."""
    found = (init.parent for folder in FOLDERS for init in (ROOT / folder).glob("*/__init__.py"))
    return tuple(sorted(found))


@cache
def sources(directory: Path) -> tuple[Source, ...]:
    """Every Python file below a directory; modules are named as seen from that directory's parent."""
    return tuple(_read(path, directory.parent) for path in sorted(directory.rglob("*.py")))


@cache
def package_sources() -> tuple[Source, ...]:
    """Every Python file of the import packages: what users install."""
    return tuple(source for path in package_paths() for source in sources(path))


def is_within(module: str, packages: Iterable[str]) -> bool:
    """Whether a module is one of the packages or lies in one."""
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method, nested ones too. Expressions are not walked: no function is in one."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node
        for block in ("finalbody", "orelse", "cases", "handlers", "body"):
            waiting += reversed(getattr(node, block, ()))


def imported_modules(node: ast.Import | ast.ImportFrom) -> list[str]:
    """The modules that an import statement names."""
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or "."]


def body_without_docstring(node: Definition) -> list[ast.stmt]:
    """The statements of a definition after its docstring."""
    return node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body


def parse(text: str, path: Path = ROOT / "breach.py", module: str = "breach") -> Source:
    """A source from text: how each test shows that it would see a breach."""
    return Source(path, module, text, ast.parse(text, str(path)))


def _read(path: Path, base: Path) -> Source:
    parts = path.relative_to(base).with_suffix("").parts
    module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return parse(path.read_text("utf-8"), path, module)
