"""tests/unit mirrors the packages: each module of any size has test files of its own, found by its name.

`sdk/gapless/core/stream/ticks.py` is tested by `tests/unit/gapless/core/stream/test_ticks.py`, or by several:
`test_ticks_calendar.py`.
"""

from __future__ import annotations

from pathlib import Path

from architecture.project import ROOT, Source, body_without_docstring, functions, package_sources, parse

UNIT = ROOT / "tests" / "unit"
CODE_LINES_MAX = 40
"""A module with as many lines of behaviour or fewer may be tested through the one that uses it."""

UNTESTED: dict[str, str] = {}
"""The ratchet: a module without a test file of its own, and what tests it instead."""


def code_lines(source: Source) -> int:
    """How many lines of functions do something: signatures, docstrings and comments do not count."""
    lines: set[int] = set()
    for function in functions(source.tree):
        for statement in body_without_docstring(function):
            lines.update(range(statement.lineno, (statement.end_lineno or 0) + 1))
    text = ["", *(line.strip() for line in source.text.splitlines())]
    return sum(1 for number in lines if text[number] and not text[number].startswith("#"))


def files_testing(source: Source) -> list[Path]:
    """The files under tests/unit that bear a module's name."""
    *packages, name = source.module.split(".")
    directory = UNIT.joinpath(*packages)
    return [*directory.glob(f"test_{name}.py"), *directory.glob(f"test_{name}_*.py")]


def test_every_module_has_a_test_file() -> None:
    large = [
        source
        for source in package_sources()
        if source.path.name != "__init__.py" and code_lines(source) > CODE_LINES_MAX
    ]
    untested = {source.module for source in large if not files_testing(source)}

    assert sorted(untested - set(UNTESTED)) == []
    assert sorted(set(UNTESTED) - untested) == [], "take out of the ratchet what is tested now"


def test_every_test_file_has_a_module() -> None:
    """A test file whose module was renamed or removed would go on by itself, where nobody looks for it."""
    mirrored = {path for source in package_sources() for path in files_testing(source)}

    assert sorted(str(path.relative_to(ROOT)) for path in set(UNIT.rglob("test_*.py")) - mirrored) == []


def test_behaviour_is_what_counts() -> None:
    source = parse('"""One."""\n\nTWO = 2\n\n\ndef f(\n    a,\n):\n    """Three."""\n    # four\n\n    return a\n')

    assert code_lines(source) == 1
