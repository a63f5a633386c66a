"""Limits on size, and words that must not occur. A limit is met by making two things of one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from architecture.project import (
    ROOT,
    Source,
    body_without_docstring,
    functions,
    imported_modules,
    package_sources,
    parse,
    sources,
)

FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 800

LONG_FUNCTIONS: dict[str, str] = {}
"""The ratchet: `path:function`, and why it may stay longer for now. Nothing is added without a reason."""

BANNED_MODULES = {
    "dill": "bytes that others may write are never unpickled",
    "marshal": "bytes that others may write are never unmarshalled",
    "pickle": "bytes that others may write are never unpickled",
    "shelve": "a shelf is a pickle",
}
BANNED_CALLS = {
    "eval": "text is parsed, not run",
    "exec": "text is parsed, not run",
    "yaml.load": "it makes objects of any class",
}


def long_functions(source: Source) -> Iterator[str]:
    """Every function whose body, without its docstring, is longer than the limit."""
    for function in functions(source.tree):
        body = body_without_docstring(function)
        lines = (function.end_lineno or 0) - body[0].lineno + 1 if body else 0
        if lines > FUNCTION_LINES_MAX:
            yield f"{source.path.relative_to(ROOT)}:{function.name} {lines} lines"


def banned_words(source: Source) -> Iterator[str]:
    """Every import, call and argument that code of ours must not hold."""
    for node in ast.walk(source.tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for name in imported_modules(node):
                if reason := BANNED_MODULES.get(name.partition(".")[0]):
                    yield f"{source.at(node)}: {name}: {reason}"
        elif isinstance(node, ast.Call):
            if reason := BANNED_CALLS.get(ast.unparse(node.func)):
                yield f"{source.at(node)}: {ast.unparse(node.func)}(): {reason}"
            for keyword in node.keywords:
                if keyword.arg == "raw_mode" and ast.unparse(keyword.value) != "True":
                    yield f"{source.at(node)}: RocksDB is opened in raw mode only, the other one unpickles"


def all_sources() -> Iterator[Source]:
    """Every Python file of the project, tests and tools too."""
    yield from package_sources()
    for folder in ("bench", "examples", "tests"):
        yield from sources(ROOT / folder)
    yield parse((ROOT / "dev.py").read_text("utf-8"), ROOT / "dev.py", "dev")


def test_no_function_is_long() -> None:
    found = [line for source in all_sources() for line in long_functions(source)]
    excused = [line for line in found if line.split()[0] in LONG_FUNCTIONS]

    assert [line for line in found if line not in excused] == []
    assert {line.split()[0] for line in excused} == set(LONG_FUNCTIONS), "the ratchet names what is mended"


def test_no_file_is_long() -> None:
    lengths = {str(source.path.relative_to(ROOT)): source.text.count("\n") for source in all_sources()}

    assert {path: lines for path, lines in lengths.items() if lines > FILE_LINES_MAX} == {}


def test_no_banned_word_occurs() -> None:
    """In what users install and copy; tests may pickle an error to see that it can be."""
    shipped = [*package_sources(), *sources(ROOT / "examples")]

    assert [line for source in shipped for line in banned_words(source)] == []


@pytest.mark.parametrize(
    "breach",
    [
        "import pickle",
        "from pickle import loads",
        "eval('1')",
        "yaml.load(text)",
        "Options(raw_mode=False)",
        "Options(raw_mode=mode)",
    ],
)
def test_a_banned_word_is_seen(breach: str) -> None:
    assert len(list(banned_words(parse(breach)))) == 1


def test_a_long_function_is_seen() -> None:
    """The signature and the docstring do not count; one line more than the limit does."""
    head = 'def f(\n    a,\n):\n    """Says\n\n    much.\n    """\n'

    assert list(long_functions(parse(head + "    a += 1\n" * FUNCTION_LINES_MAX))) == []
    assert len(list(long_functions(parse(head + "    a += 1\n" * (FUNCTION_LINES_MAX + 1))))) == 1
